"""What to write here for names that users of numpy, TVM, Triton and others know.

One table for each kind of thing that is asked for a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

_VALUES = "mod(*arrays), with mod = tw.build(program): there is no value before"
_SAVED = 'tw.build_library(program, "kernel.so"), and tw.load("kernel.so") reads it'

_SOURCES = 'mod.source("tir"), "llvm" or "asm"; of a GPU "tir", "cuda" or "ptx"'

_TUNE = "tw.tune(func, database=...)"
_JIT = "tw.build(func), of a program that te.func or tw.script makes"
_GRAPH = "one program of several operators: ops.softmax(ops.matmul(A, B)), and te.func"

_OPS = "argmax argmin max mean min prod relu sigmoid softmax sum tanh gelu"

_INVERSE = "acos acosh asin asinh atan atanh"
_SAME: Mapping[str, dict[str, str]] = {
    "te": {
        "absolute": "fabs",
        "broadcast_to": "broadcast",
        "ceildiv": "cdiv",
        "choose": "piecewise",
        "concatenate": "concat hstack vstack",
        "conj": "conjugate real",
        "create_schedule": "Schedule",
        "cumprod": "cumulative_prod",
        "cumsum": "cumulative_sum",
        "deg2rad": "radians",
        "diag": "diagonal",
        "dot": "inner vdot",
        "einsum": "tensordot",
        "empty": "empty_like",
        "expand_dims": "newaxis",
        "extern": "extern_primfunc",
        "eye": "identity",
        "floordiv": "floor_divide indexdiv",
        "floormod": "indexmod mod remainder",
        "full": "full_like",
        "inf": "infinity",
        "left_shift": "shift_left",
        "logical_and": "bitwise_and",
        "logical_not": "bitwise_invert bitwise_not invert",
        "logical_or": "bitwise_or",
        "logical_xor": "bitwise_xor",
        "matvec": "vecmat",
        "mean": "average",
        "meshgrid": "indices",
        "ones": "ones_like",
        "rad2deg": "degrees",
        "ravel": "flatten",
        "right_shift": "shift_right",
        "rint": "around nearbyint",
        "split": "array_split",
        "take": "gather take_along_axis",
        "transpose": "matrix_transpose moveaxis permute_dims swapaxes",
        "true_divide": "div divide",
        "zeros": "zeros_like",
    },
    "script": {
        "ceildiv": "cdiv",
        "clip": "clamp",
        "debug_barrier": "syncthreads",
        "fdiv": "div_rn",
        "floormod": "mod",
        "handle": "match_buffer",
        "if_then_else": "where",
        "rand": "randn",
        "reduce": "sum",
    },
}
"""Further names of what a name of a table means."""

_OPERATORS = {
    "ceildiv": "-(-a // b)",
    "floordiv": "a // b",
    "floormod": "a % b",
    "logical_and": "a & b",
    "logical_not": "~a",
    "logical_or": "a | b",
}
"""What is said of functions of elements in both languages."""

INSTEAD: Mapping[str, dict[str, str]] = {
    "te": {
        **_OPERATORS,
        "absolute": "te.abs(x)",
        "add": "a + b",
        "all": "a & b, of conditions",
        "amax": "te.max(x, axis=r)",
        "amin": "te.min(x, axis=r)",
        "any": "a | b, of conditions",
        "arange": "te.compute((n,), lambda i: te.cast(i, dtype))",
        **{name.replace("a", "arc", 1): f"te.{name}(x)" for name in _INVERSE.split()},
        "arctan2": "te.atan2(y, x)",
        "array": "te.placeholder(shape, dtype), an argument of the program",
        "broadcast_to": "te.compute((n, m), lambda i, j: X[j]), any number of times",
        "choose": "te.where(condition, a, b)",
        "clamp": "te.clip(x, low, high)",
        "comm_reducer": "te.sum, te.prod, te.max, te.min, te.argmax or te.argmin; others by "
        "tilewright.script",
        "concatenate": "te.select(i < n, A[i], B[i - n]), with n the rows of A",
        "conv2d": "tilewright.ops.conv2d(X, W)",
        "convolve": "te.compute((n,), lambda i: te.sum(X[i + r] * W[k - 1 - r], axis=r))",
        "conj": "x: there are no complex numbers",
        "correlate": "te.compute((n,), lambda i: te.sum(X[i + r] * W[r], axis=r))",
        "count_nonzero": 'te.sum(te.cast(x != 0, "int32"), axis=r)',
        "create_prim_func": "te.func([X, Y], name=...)",
        "create_schedule": "tilewright.Schedule(func)",
        "cumprod": "te.prod(te.where(r <= i, X[r], 1.0), axis=r), or a loop of tilewright.script",
        "cumsum": "te.sum(te.where(r <= i, X[r], 0.0), axis=r), or a loop of tilewright.script",
        "decl_buffer": "te.placeholder(shape, dtype, strides=(...))",
        "deg2rad": "x * (math.pi / 180)",
        "diag": "te.compute((n,), lambda i: X[i, i])",
        "diff": "te.compute((n - 1,), lambda i: X[i + 1] - X[i])",
        "divmod": "a // b and a % b",
        "dot": "te.sum(A[i, r] * B[r, j], axis=r) with r = te.reduce_axis(k)",
        "e": "math.e",
        "einsum": "te.compute(shape, lambda i, j: te.sum(A[i, r] * B[r, j], axis=r)) with r = "
        "te.reduce_axis(k); of matrices tilewright.ops.matmul(A, B)",
        "empty": "te.compute: its result has memory of its own",
        "equal": "a == b",
        "erfc": "1 - te.erf(x)",
        "expand_dims": "te.compute((n, 1), lambda i, j: X[i])",
        "expit": "te.sigmoid(x)",
        "extern": "te.compute, or loops of your own with tilewright.script",
        "eye": "te.compute((n, n), lambda i, j: te.where(i == j, 1.0, 0.0))",
        "fix": "te.trunc(x)",
        "flip": "te.compute((n,), lambda i: X[n - 1 - i])",
        "fliplr": "te.compute((n, m), lambda i, j: X[i, m - 1 - j])",
        "flipud": "te.compute((n, m), lambda i, j: X[n - 1 - i, j])",
        "float": 'te.cast(x, "float32")',
        "float_power": 'te.pow(te.cast(x, "float64"), y)',
        "fma": "a * b + c, which is one instruction where the target has it",
        "fmod": "a % b, which has the sign of b",
        "full": "te.compute(shape, lambda i, j: te.const(value, dtype))",
        "gradient": "the derivative as a program of its own: none is derived",
        "greater": "a > b",
        "greater_equal": "a >= b",
        "heaviside": "te.where(x < 0, 0.0, te.where(x > 0, 1.0, h))",
        "hybrid": "tilewright.script",
        "if_then_else": "te.select(condition, a, b)",
        "inf": 'float("inf")',
        "isclose": "te.abs(a - b) <= tolerance",
        "isneginf": 'x == -float("inf")',
        "isposinf": 'x == float("inf")',
        "layer_norm": "tilewright.ops.layer_norm(X, gamma, beta)",
        "ldexp": "x * te.exp2(n)",
        "left_shift": "a << b",
        "less": "a < b",
        "less_equal": "a <= b",
        "likely": "nothing: the guards of tails are derived, and peeled by sch.loop_partition",
        "linspace": "te.compute((n,), lambda i: low + te.cast(i, dtype) * step)",
        "load": "A[i, j], which reads an element",
        "log_softmax": "x - m - te.log(s), m = te.max(x, axis=r), s = te.sum(te.exp(x - m), "
        "axis=r)",
        "logaddexp2": "te.maximum(a, b) + te.log2(1 + te.exp2(-te.abs(a - b)))",
        "logical_xor": "a ^ b",
        "logsumexp": "m + te.log(te.sum(te.exp(x - m), axis=r)), with m = te.max(x, axis=r)",
        "matmul": "tilewright.ops.matmul(a, b)",
        "matvec": "te.sum(A[i, r] * x[r], axis=r) with r = te.reduce_axis(k)",
        "max_value": "te.highest(dtype)",
        "mean": "te.sum(x, axis=r) / extent",
        "meshgrid": "the parameters of the function of te.compute, which are the indices",
        "min_value": "te.lowest(dtype)",
        "modf": "te.trunc(x) and x - te.trunc(x)",
        "multiply": "a * b",
        "nan": 'float("nan")',
        "nan_to_num": "te.where(te.isnan(x), 0.0, x)",
        "nanmax": "te.max(te.where(te.isnan(x), te.lowest(dtype), x), axis=r)",
        "nanmin": "te.min(te.where(te.isnan(x), te.highest(dtype), x), axis=r)",
        "nansum": "te.sum(te.where(te.isnan(x), 0.0, x), axis=r)",
        "negative": "-x",
        "norm": "te.sqrt(te.sum(te.square(x), axis=r))",
        "not_equal": "a != b",
        "one_hot": "te.where(j == idx[i], 1.0, 0.0)",
        "ones": "te.compute(shape, lambda i, j: te.const(1, dtype))",
        "outer": "te.compute((n, m), lambda i, j: a[i] * b[j])",
        "pad": "te.select(condition, X[i - 1], 0.0), which reads nothing where it is false",
        "pi": "math.pi",
        "polyval": "a + x * (b + x * c)",
        "power": "te.pow(x, y)",
        "program_id": "the parameters of the function of te.compute, which are the indices",
        "ptp": "te.max(x, axis=r) - te.min(x, axis=r)",
        "rad2deg": "x * (180 / math.pi)",
        "ravel": "te.compute((n * m,), lambda i: X[i // m, i % m])",
        "reciprocal": "1 / x",
        "repeat": "te.compute((n,), lambda i: X[i // times])",
        "reshape": "te.compute((n, m), lambda i, j: X[i * m + j])",
        "right_shift": "a >> b",
        "rint": "te.round(x)",
        "roll": "te.compute((n,), lambda i: X[(i - shift) % n])",
        "scan": "tilewright.script, with a loop that reads what its earlier iterations wrote",
        "size_var": "a number: sizes are known when a program is built",
        "softmax": "tilewright.ops.softmax(x)",
        "split": "te.compute((k,), lambda i: X[begin + i]), for each part",
        "squeeze": "te.compute((n,), lambda i: X[i, 0])",
        "stack": "te.compute((2, n), lambda i, j: te.select(i == 0, A[j], B[j]))",
        "std": "te.sqrt of the variance: te.sum(te.square(x - mean[i]), axis=r) / extent",
        "store": "the value that the function of te.compute returns",
        "strided_slice": "te.compute((k,), lambda i: X[begin + i * step])",
        "subtract": "a - b",
        "swish": "te.silu(x)",
        "tag_scope": "nothing: blocks are found by their names",
        "take": "te.compute((n, m), lambda i, j: X[idx[i], j]); the placeholder idx has a "
        "value_range",
        "thread_axis": "sch.parallel(loop) or sch.bind(loop, axis), of a tw.Schedule",
        "tile": "te.compute((n,), lambda i: X[i % m])",
        "to": "te.cast(x, dtype)",
        "trace": "te.sum(X[r, r], axis=r)",
        "transpose": "te.compute((m, n), lambda i, j: X[j, i])",
        "tri": "te.compute((n, m), lambda i, j: te.where(j <= i, 1.0, 0.0))",
        "tril": "te.compute((n, m), lambda i, j: te.where(j <= i, X[i, j], 0.0))",
        "triu": "te.compute((n, m), lambda i, j: te.where(j >= i, X[i, j], 0.0))",
        "true_divide": "a / b",
        "truncdiv": "te.cast(te.trunc(a / b), dtype), or a // b, which floors",
        "truncmod": "a - b * te.cast(te.trunc(a / b), dtype), or a % b, which floors",
        "var": "te.scalar(dtype, name) for a number of each call; the variance is "
        "te.sum(te.square(x - mean[i]), axis=r) / extent",
        "vecdot": "te.sum(A[i, r] * B[i, r], axis=r) with r = te.reduce_axis(k)",
        "zeros": "te.compute(shape, lambda i, j: te.const(0, dtype))",
    },
    "func": {
        "args": "func.params",
        "script": "print(func), whose text tw.script(text) reads",
        "show": "print(func)",
    },
    "ops": {
        "conv1d": "ops.conv2d(X, W), of one row: X (n, c, 1, w) and W (o, c, 1, k)",
    },
    "script": {
        **_OPERATORS,
        "alloc_buffer": "T.alloc(shape, dtype)",
        "alloc_fragment": 'T.alloc(shape, dtype, scope="register")',
        "alloc_local": 'T.alloc(shape, dtype, scope="local")',
        "alloc_shared": 'T.alloc(shape, dtype, scope="shared")',
        "arange": "a loop, for i in range(n), and sch.vectorize(loop)",
        "assume": "nothing: facts are derived; value_range=(0, n) bounds what a buffer of "
        "integers holds",
        "atomic_add": "C[i] = C[i] + x in a block whose axis is T.axis.reduce",
        "bitcast": "no such cast: T.float32(x) converts the value",
        "Buffer": 'a parameter or buffer: A: T.Buffer((16,), "float32")',
        "call_extern": "an expression, or tilewright.register_intrin for an instruction",
        "Cast": "T.cast(dtype, x)",
        "cat": "T.select(i < n, A[i], B[i - n])",
        "clip": "T.minimum(T.maximum(x, low), high)",
        "constexpr": "the name of a Python number around the function",
        "cumsum": "a loop with C[i] = C[i - 1] + x",
        "debug_barrier": "nothing: barriers are derived",
        "device_print": "print(func): values are seen in the interpreter, or in an output",
        "evaluate": "nothing: a statement stores an element",
        "fdiv": "a / b",
        "fma": "a * b + c",
        "full": "a loop with C[i] = value",
        "gelu": "x * 0.5 * (T.erf(x * 0.7071067811865476) + 1.0)",
        "handle": 'A: T.Buffer((16,), "float32") as a parameter',
        "if_then_else": "T.select(condition, a, b)",
        "isfinite": 'T.abs(x) < T.float32("inf")',
        "isinf": 'T.abs(x) == T.float32("inf")',
        "isnan": "x != x",
        "launch_thread": 'for tx in T.thread("threadIdx.x", n)',
        "log10": "T.log(x) * 0.4342944819032518",
        "log2": "T.log(x) * 1.4426950408889634",
        "make_block_ptr": "A[i, j]: buffers have shapes and are indexed",
        "max": "T.maximum(a, b); over a loop, C[i] = T.maximum(C[i], x)",
        "max_value": 'T.float32("inf"), or the largest integer as a number: T.int32(2147483647)',
        "mean": "a loop with C[i] = C[i] + x / n",
        "min": "T.minimum(a, b); over a loop, C[i] = T.minimum(C[i], x)",
        "min_value": 'T.float32("-inf"), or the least integer as a number: T.int32(-2147483648)',
        "multiple_of": "nothing: divisibility is derived",
        "num_programs": "the extent of the loop",
        "pi": "3.141592653589793",
        "power": "T.pow(x, y)",
        "prim_func": "@tw.script",
        "program_id": 'for b in T.thread("blockIdx.x", n)',
        "rand": "an array of random numbers as a parameter",
        "reduce": "a loop with C[i] = C[i] + x",
        "relu": "T.maximum(x, 0.0)",
        "relu6": "T.minimum(T.maximum(x, 0.0), 6.0)",
        "rint": "T.round(x)",
        "sblock": "T.block(name)",
        "sign": "T.select(x > 0.0, 1.0, T.select(x < 0.0, -1.0, 0.0))",
        "silu": "x * T.sigmoid(x)",
        "softmax": "loops for the maximum, the sum of T.exp(x - m) and the quotient",
        "sqrt_rn": "T.sqrt(x)",
        "square": "x * x",
        "static_assert": "an assert of Python before the function",
        "static_range": "T.unrolled(n)",
        "tan": "T.sin(x) / T.cos(x)",
        "thread_binding": 'T.thread("threadIdx.x", n)',
        "trans": "A[j, i]",
        "truncdiv": "a // b, which floors",
        "vectorized_range": "T.vectorized(n)",
        "zeros": "a loop with C[i] = 0.0",
    },
    "tilewright": {
        "Database": 'tw.TuningDatabase("tuning.db")',
        "IRModule": "tw.Func, which te.func and tw.script make",
        "PrimFunc": "tw.Func, which te.func and tw.script make",
        "Tensor": "te.placeholder(shape, dtype, name=...), of `from tilewright import te`",
        "TuneResult": "result = tw.tune(func, database=...); for annotations `from "
        "tilewright.autotune.result import TuneResult`",
        "array": "a numpy array: modules are called with those",
        "auto_scheduler": _TUNE,
        "autotune": _TUNE,
        "autotvm": _TUNE,
        "cdiv": "-(-a // b)",
        "compile": "tw.build(func)",
        "cpu": 'the target as a text: "cpu -threads=1"',
        "create_schedule": "tw.Schedule(func)",
        "cuda": 'the target as a text: "cuda", or "cuda -arch=sm_90a" for an architecture',
        "device": 'the target as a text: tw.build(func, "cpu -threads=1")',
        "empty": "numpy.empty: modules are called with arrays of numpy",
        "gpu": 'the target as a text: "cuda", or "cuda -arch=sm_90a" for an architecture',
        "interpret": "interpret(func, *arrays), of `from tilewright.tir.interpreter import "
        "interpret`",
        "jit": _JIT,
        "language": "`from tilewright import T`, whose names tw.script reads",
        "load_database": 'tw.TuningDatabase("tuning.db")',
        "lower": "tw.build(func); module.source('tir') is the lowered program",
        "meta_schedule": _TUNE,
        "nd": "numpy arrays, or DeviceArray.of(array), of tilewright.runtime, for a GPU",
        "njit": _JIT,
        "nn": _GRAPH,
        "ones": "numpy.ones: modules are called with arrays of numpy",
        "prange": "sch.parallel(loop), of sch = tw.Schedule(func)",
        "relax": _GRAPH,
        "relay": _GRAPH,
        "report": "`tilewright report tuning.db -o report.html` in a shell; here a result, a run "
        "and a database show themselves",
        "save": _SAVED,
        "show": "`tilewright show FILE.py:FUNC` in a shell, or print(func)",
        "time": "mod.time(*arrays), with mod = tw.build(func)",
        "vectorize": "sch.vectorize(loop), of sch = tw.Schedule(func)",
        "watch": '`tilewright watch tuning.db` in a shell, or tw.open_run("tuning.db")',
        "zeros": "numpy.zeros: modules are called with arrays of numpy",
    },
    "target": {
        "create": 'tw.Target("cpu -threads=1")',
        "current": '"cpu", which is this machine',
        "from_device": '"cpu" or "cuda", which are of this machine',
        "from_string": 'tw.Target("cpu -threads=1")',
        "list_kinds": 'tw.Target("cpu -threads=1"), of the kind cpu or cuda',
    },
    "tensor": {
        **{name: f"ops.{name}({{0}})" for name in _OPS.split()},
        "T": "ops.transpose({0}), or read it so: te.compute((n, m), lambda i, j: {0}[j, i])",
        "astype": "te.compute({0}.extents, lambda {1}: {0}[{1}].astype(dtype))",
        "flatten": "te.compute((n * m,), lambda i: {0}[i // m, i % m])",
        "item": _VALUES,
        "numpy": _VALUES,
        "op": "{0}.stage, which is None for a placeholder",
        "reshape": "te.compute((n, m), lambda i, j: {0}[i * m + j])",
        "size": "math.prod({0}.extents)",
        "tolist": _VALUES,
        "transpose": "ops.transpose({0}, axes), or read it so: te.compute((n, m), "
        "lambda i, j: {0}[j, i])",
    },
    "expression": {
        "T": "the indices in another order: X[j, i]",
        "clamp": "te.clip(x, low, high)",
        "item": _VALUES,
        "mean": "te.sum(x, axis=r) / extent",
        "shape": "X.extents, of the tensor: an expression is one element",
    },
    "schedule": {
        "annotate_buffer_access": "nothing: the regions that blocks touch are computed",
        "apply": "trace.apply(func)",
        "blocks": "sch.get_block(name), for each name in print(sch.func)",
        "build": "tw.build(sch)",
        "can_decompose_padding": "sch.decompose_padding(block, loop), which raises ScheduleError "
        "where it cannot",
        "compute_root": "nothing: a block has loops of its own until compute_at or compute_inline",
        "enter_postproc": "nothing: there are no postprocessors",
        "env_thread": 'sch.bind(loop, "threadIdx.x")',
        "fork_seed": "tw.Schedule(func, seed=...)",
        "func_working_on": "sch.func",
        "get": "sch.get_block(name)",
        "get_child_blocks": "sch.get_block(name), for each name in print(sch.func)",
        "get_output_blocks": "sch.get_block(name), of the blocks that write parameters",
        "get_sblock": "sch.get_block(name)",
        "get_sref": "sch.get_block(name) and sch.get_loop(name)",
        "loops": "sch.get_loops(block), or sch.get_loop(name)",
        "lower": "tw.build(sch)",
        "mod": "sch.func; print(sch.func) shows it",
        "pragma": "sch.unroll(loop), or sch.annotate(loop, key, value) for a pass of your own",
        "remove_rv": "nothing: handles are plain values",
        "save": "sch.trace.to_json(), and tw.Trace.from_json(text).apply(func)",
        "script": "print(sch.func)",
        "seed": "tw.Schedule(func, seed=...)",
        "show": "print(sch.func); print(sch.trace) shows the steps",
        "stages": "sch.get_block(name), for each name in print(sch.func)",
        "state": "sch.func",
        "unrolled": "sch.unroll(loop)",
        "unsafe_hide_buffer_access": "nothing: the regions that blocks touch are computed",
        "unsafe_set_dtype": "nothing: steps keep every result; cast in the program",
        "vectorized": "sch.vectorize(loop)",
    },
    "annotation": {
        "buffer_dim_align": "sch.storage_align(block, buffer_index, axis, factor, offset)",
        "double_buffer_scope": "sch.double_buffer(block, loop)",
        "double_buffer_write": "sch.double_buffer(block, loop)",
        "layout_free_buffers": "sch.pack or sch.transform_layout, for a layout of your choice",
        "meta_schedule": "tw.tune(func, database=...), whose rules decide this, or the step itself",
        "meta_schedule.auto_tensorize": "sch.tensorize(block, intrin)",
        "meta_schedule.auto_tensorize_init": "sch.tensorize(block, intrin)",
        "meta_schedule.cooperative_fetch": 'sch.bind(loop, "threadIdx.x"), for a loop of the copy',
        "meta_schedule.inline_rule": "sch.compute_inline(block)",
        "meta_schedule.layout_rewrite_preproc": "sch.pack(block, buffer, layout, factors)",
        "meta_schedule.parallel": "sch.parallel(loop)",
        "meta_schedule.unroll_explicit": "sch.unroll(loop)",
        "meta_schedule.unroll_implicit": "sch.unroll(loop)",
        "meta_schedule.vectorize": "sch.vectorize(loop)",
        "pragma_auto_unroll_max_step": "sch.unroll(loop), for each loop to unroll",
        "pragma_loop_partition_hint": "sch.loop_partition(loop)",
        "pragma_unroll_explicit": "sch.unroll(loop), for each loop to unroll",
        "pragma_vectorize": "sch.vectorize(loop)",
        "software_pipeline_async_stages": "sch.pipeline(loop, stages=...)",
        "software_pipeline_order": "sch.pipeline(loop, stages=..., order=...)",
        "software_pipeline_stage": "sch.pipeline(loop, stages=...)",
        "vector_bytes": "sch.vectorize(loop)",
        "virtual_thread": "sch.split and sch.reorder, and sch.unroll(loop) of the outer loop",
        "warp_execution": "sch.tensorize(block, intrin)",
    },
    "result": {
        "decisions": "result.best.trace",
        "errors": "result.failures",
        "gain": "result.gains, of the best over the program as written and the untuned build",
        "log": "print(result); result.to_pandas() has the trials",
        "measurements": "result.to_pandas()",
        "module": "tw.build(func, target, database)",
        "schedule": "result.best.trace.apply(func)",
        "schedule_id": "result.best.schedule_id",
        "time": "result.best.seconds",
        "to_dataframe": "result.to_pandas()",
        "trace": "result.best.trace",
    },
    "best": {
        "func": "best.trace.apply(func).func",
        "gain": "result.gains, of the result of tw.tune",
        "id": "best.schedule_id",
        "schedule": "best.trace.apply(func)",
    },
    "run": {
        "cancel": "run.stop()",
        "cancelled": "run.done, and run.result().status says how it ended",
        "exception": "run.result(), which raises what ended it",
        "is_alive": "run.done",
        "join": "run.result(), which waits",
        "progress": "run, which shows itself, or print(run)",
        "session": "run.sessions",
        "state": "run, which shows itself, or print(run)",
        "status": "run, which shows itself, or print(run)",
        "wait": "run.result(), or `await run`",
    },
    "recorded run": {
        "cancel": "the process that tunes ends it: an interrupt (Ctrl-C) there",
        "result": "run.best; database.explain(workload, target) says why it is",
        "stop": "the process that tunes ends it: an interrupt (Ctrl-C) there",
        "wait": "a loop that calls poll() until it is `done`",
    },
    "database": {
        "commit": "nothing: what was written is durable",
        "execute": "`sqlite3` in a shell, or db.to_pandas(view)",
        "list": "db.to_pandas(), or `tilewright db list tuning.db` in a shell",
        "query": "db.to_pandas(), with a view: trials, sessions or best",
        "sessions": 'db.to_pandas("sessions"), or tw.open_run(db)',
        "to_dataframe": "db.to_pandas()",
        "workloads": 'db.to_pandas("best"), or db.records(Workload), of tilewright.tuning_db',
    },
    "lab": {
        "apply": 'lab.bench.do({{"do": "apply", "op": ..., "args": ...}})',
        "best": 'lab.bench.state()["fastest"], the id of the fastest version',
        "export": 'lab.bench.do({{"do": "export"}})["result"]["text"], the text of a file',
        "fastest": 'lab.bench.state()["fastest"], the id of the fastest version',
        "func": "lab.schedule.func",
        "measure": 'lab.bench.do({{"do": "measure"}})',
        "pin": 'lab.bench.do({{"do": "pin"}}), of the version that is shown',
        "redo": 'lab.bench.do({{"do": "redo"}})',
        "show": "lab, as the last line of a cell of a notebook",
        "trace": "lab.schedule.trace",
        "undo": 'lab.bench.do({{"do": "undo"}})',
    },
    "plot": {
        "best": "tw.plot.convergence(result)",
        "history": "tw.plot.convergence(result)",
        "parameters": "tw.plot.decisions(result)",
        "progress": "tw.plot.convergence(result)",
        "show": "tw.plot.convergence(result), and matplotlib's plt.show()",
    },
    "module": {
        "asm": 'mod.source("asm")',
        "benchmark": "mod.time(*arrays)",
        "entry_func": "mod(*arrays)",
        "evaluate": "mod.time(*arrays)",
        "export_library": _SAVED,
        "get_function": "mod(*arrays): a module is one kernel",
        "get_source": _SOURCES,
        "imported_modules": _SOURCES,
        "llvm": 'mod.source("llvm")',
        "name": "mod.signature.name",
        "ptx": 'mod.source("ptx"), of a GPU',
        "run": "mod(*arrays), the outputs among them",
        "save": _SAVED,
        "schedule": 'mod.origin, which says where it is from; mod.source("tir") is what it made',
        "tir": 'mod.source("tir")',
        "time_evaluator": "mod.time(*arrays), whose median is in seconds",
        "trace": 'mod.origin, which says where it is from; mod.source("tir") is what it made',
    },
}

for _kind, _names in _SAME.items():
    for _name, _others in _names.items():
        INSTEAD[_kind].update(dict.fromkeys(_others.split(), INSTEAD[_kind][_name]))

_CUDA = 'write "cuda" for the GPU of this machine, or "cuda -arch=sm_90a" for an architecture'

KINDS: Mapping[str, str] = {
    "gpu": _CUDA,
    "llvm": "LLVM makes the code of `cpu`",
    "nvidia": _CUDA,
    "nvptx": _CUDA,
    "ptx": _CUDA,
}
"""What to write for kinds of targets that have other names elsewhere."""

OPTIONS: Mapping[str, str] = {
    "arch": "mcpu",
    "attr": "mattr",
    "cores": "threads",
    "cpu": "mcpu",
    "features": "mattr",
    "march": "mcpu",
    "num-cores": "threads",
    "num-threads": "threads",
    "target": "mtriple",
    "triple": "mtriple",
}
"""The options of targets by the names that they have elsewhere."""

_SECONDS = "seconds=60, of wall-clock time"
_CAST = "te.cast(x, dtype) or x.astype(dtype) in the function: the dtype is that of the expression"
_FILE = 'database="tuning.db"'

KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "compute": {"dtype": _CAST},
    "schedule": {
        "assume_injective_transform": "leave it out: what the map does is found out",
        "consumer_blocks": "leave it out: consumers read the output; cache_read gives them a copy",
        "disable_predication": "leave it out; perfect=True refuses factors that do not divide",
        "factors": "write at=n, the iteration at which the loop is cut in two; for a third part, "
        "cut the tail's loop again",
        "func_name": "sch.work_on(function) goes before it",
        "index": "leave it out: it goes before its first consumer in the loop, or after its last "
        "producer there",
        "pad_value": "leave it out: places that the map gives to no element are never read",
        "preserve_unit_iters": "leave it out: iterations of extent 1 are kept",
        "preserve_unit_loops": "leave it out: loops of one iteration are kept until lowering",
    },
    "tune": {
        "db": _FILE,
        "max_seconds": _SECONDS,
        "max_trials_global": "trials=64",
        "num_measure_trials": "trials=64",
        "time_limit": _SECONDS,
        "timeout": _SECONDS,
        "work_dir": _FILE,
    },
}
"""What to write for the parameters that functions have elsewhere, by the name of the function."""


def instead(kind: str, name: str, *words: str) -> str | None:
    """The hint of the table for a name that a `kind` of thing does not have.

    `words` are put in their places.
    """
    hint = INSTEAD[kind].get(name)
    return None if hint is None else f"write {hint.format(*words)}"


class MissingNameError(AttributeError):
    """The error for a `name` that is not there; `text` says so, as in "X has no attribute".

    `hint` is asked for when the text is read: imports and `hasattr` try names that are not there.
    """

    def __init__(self, text: str, name: str, hint: Callable[[], str | None]) -> None:
        super().__init__(f"{text} {name!r}", name=name)
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return AttributeError, (str(self),)

    def __str__(self) -> str:
        hint = self.hint()
        return f"{self.args[0]}; {hint}" if hint else str(self.args[0])


def raise_missing(
    value: object, name: str, hint: Callable[[], str | None], text: str | None = None
) -> NoReturn:
    """Raise the error of an attribute that a value does not have; `text` says so.

    A `__getattr__` is also asked for a property that raised an `AttributeError`, which Python then
    drops. The property is asked again, for its error.
    """
    if any(name in vars(each) for each in type(value).__mro__):
        object.__getattribute__(value, name)
    text = text or f"{type(value).__name__!r} object has no attribute"
    raise MissingNameError(text, name, hint)


def called(value: object) -> str | None:
    """What the table calls a value; `None` for those of which it has nothing."""
    return value._hints if isinstance(value, Hinted) else None


class Hinted:
    """A class whose values say what to write instead of an attribute that they do not have."""

    _hints: ClassVar[str]
    """What the table calls them."""

    if not TYPE_CHECKING:  # type checkers then still know what there is

        def __getattr__(self, name: str) -> Any:
            def hint() -> str | None:
                from .errors import similar

                return instead(type(self)._hints, name) or similar(name, dir(self))

            raise_missing(self, name, hint)
