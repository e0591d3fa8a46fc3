"""What users of numpy, TVM and Triton try first, and what the errors say to write."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import tilewright as tw
from tilewright import T, ops, tir
from tilewright.autotune.session.tuning_run import TuningRun
from tilewright.autotune.show.recorded_run import RecordedRun
from tilewright.base.hints import INSTEAD, KEYWORDS, OPTIONS, Hinted
from tilewright.lab import plot
from tilewright.runtime import DeviceArray
from tilewright.schedule.primitive import PRIMITIVES
from tilewright.target import CpuTarget, Target
from tilewright.tir import te as _te
from tilewright.tir.expr_parser import _SPECIAL
from tilewright.tir.ir import FUNCTIONS
from tilewright.tir.pair import Pair

from .lab.test_result import RESULT

N = np.ones((4, 6), np.float32)
te: Any = _te  # wrong calls are what is tested
X = te.placeholder((4, 6), "float32", name="X")
V = te.placeholder((4,), "float32", name="V")
Y = te.compute((4,), lambda i: V[i] * te.scalar("float32", "alpha"), name="Y")
R = te.reduce_axis(6, name="R")
FUNC = te.func([V, te.compute((4,), lambda i: V[i] + 1, name="Z")], name="increment")


def element(fn: Callable[[Any], Any]) -> Callable[[], object]:
    """Use `fn` in a compute over an element of `V`."""
    return lambda: te.compute((4,), lambda i: fn(V[i]))


def index(fn: Callable[[Any], Any]) -> Callable[[], object]:
    return lambda: te.compute((4,), fn)


PYTHON: dict[str, tuple[Callable[[], object], str, str]] = {
    "cast": (element(lambda x: te.cast("int8", x)), "the value is 'int8'", "te.cast(x, 'int8')"),
    "a dtype of numpy first": (
        element(lambda x: te.cast(x, x)),
        "V[i] is not a dtype; expected a name such as 'float32'",
        "",
    ),
    "an array of numpy": (
        index(lambda i: N[0][i]),
        "T: the function indexes an array of numpy by an expression; expected a placeholder",
        "W = te.placeholder((4,)",
    ),
    "a matrix of numpy": (index(lambda i: N[i, 0]), "indexes an array of numpy", "te.func([W, .."),
    "rows of numpy": (index(lambda i: N[[i]]), "indexes an array of numpy", "te.func([W, .."),
    "a list": (index(lambda i: [1, 2][i]), "is no index or count", "is a placeholder"),
    "a range": (index(lambda i: sum(range(i))), "is no index or count", "axis=te.reduce_axis(n)"),
    "three": (
        element(lambda x: te.maximum(x, 1, 2)),
        "maximum: found 3 arguments; expected at most 2",
        "of three: te.maximum(te.maximum(a, b), c)",
    ),
    "one": (element(te.minimum), "missing a required argument: 'b'", "te.minimum(te"),
    "a word": (element(lambda x: te.sum(x, axes=1)), "no argument 'axes'", "did you mean axis?"),
    "exp": (element(lambda x: te.exp(x, 2)), "found 2 arguments", "te.exp(value)"),
    "round": (element(round), "round(x) of Python", "write te.round(x), or te.cast("),
    "floor": (element(math.floor), "floor of Python computes numbers", "write te.floor(x)"),
    "ceil": (element(math.ceil), "ceil of Python computes numbers", "write te.ceil(x)"),
    "trunc": (element(math.trunc), "trunc of Python computes numbers", "write te.trunc(x)"),
    "bool": (lambda: bool(X), "X is a tensor, whose truth is not known", "te.select(X[i] > 0"),
    "or": (lambda: X or V, "whose truth is not known", "`X is None` asks"),
    "len": (lambda: len(X), "X is a tensor, which is no sequence", "its shape is X.extents"),
    "list": (lambda: list(V), "V is a tensor, which is no sequence", "te.sum(X[r], axis=r)"),
    "numpy.round": (
        element(lambda x: np.round(x, 2)),
        "numpy.round computes numbers",
        "write te.round(...)",
    ),
    "numpy.where": (element(np.where), "numpy.where", "write te.where("),
    "numpy.sum": (element(np.sum), "numpy.sum computes numbers", "write te.sum(...)"),
    "numpy.add.reduce": (element(np.add.reduce), "numpy.sum computes", "write te.sum(...)"),
    "numpy.deg2rad": (element(np.deg2rad), "numpy.deg2rad computes", "write x * (math.pi / 180)"),
    "numpy.gcd": (element(lambda x: np.gcd(x, 2)), "numpy.gcd", "the functions of te take"),
    "numpy.exp of a tensor": (lambda: np.exp(X), "X is a tensor, and np.exp", "np.exp(X[i, j])"),
    "numpy.power of one": (lambda: np.power(X, 2), "and np.power works on", "(X[i, j], ..)"),
    "te.exp of a tensor": (lambda: te.exp(V), "V is a tensor, and te.exp", "te.exp(V[i])"),
    "te.clip of a tensor": (lambda: te.clip(V, 0, 1), "te.clip works on", "te.clip(V[i], ..)"),
    "te.sum of a tensor": (
        lambda: te.sum(X),
        "X is a tensor, and te.sum reduces elements",
        "tilewright.ops.sum(X, axis=0) takes tensors; of elements te.sum(X[r, s], axis=(r, s))",
    ),
    "where of a number": (element(lambda x: te.where(x, 1, 2)), "must be bool", "`x != 0`"),
    "an integer power": (index(lambda i: i**-1), "to the power of -1; expected", "te.pow(te.cast"),
    "numpy.mean of a tensor": (lambda: np.mean(X), "np.mean computes numbers", "ops.mean(X)"),
    "numpy.add.reduce of one": (lambda: np.add.reduce(X), "np.sum computes", "write ops.sum(X)"),
    "numpy.dot of tensors": (lambda: np.dot(X, X), "np.dot computes", "write te.sum(A[i, r] * B"),
    "numpy.gcd of a tensor": (lambda: np.gcd(X, 2), "operators work on elements", "tilewright.op"),
    "a sum of Python": (
        index(lambda i: te.sum(X[i, r] for r in range(6))),
        "is not an expression",
        "te.sum(X[i, r], axis=r) with r = te.reduce_axis(n)",
    ),
    "a slice": (lambda: X[0, :], "is not an expression", "one index for each dimension"),
    "an ellipsis": (lambda: X[..., 0], "is not an expression", "one index for each dimension"),
    "a new axis": (lambda: X[None, :], "None is no index of X", "a new dimension is one of the"),
    "a pair": (element(lambda x: x + te.argmax(X[0, R], axis=R)), "of type Pair is not", "[0]"),
    "a pair on the left": (element(lambda x: te.argmin(X[0, R], axis=R) * x), "the pair", "or [1]"),
    "twice a pair": (element(lambda _: te.argmax(X[0, R], axis=R) * 2), "the pair", "or [1]"),
    "a pair as an index": (
        element(lambda _: X[0, te.argmax(X[0, R], axis=R)]),
        "is not an expression",
        "write te.argmax(x, axis=r)[0], or [1]",
    ),
    "a pair compared": (element(lambda _: te.argmax(X[0, R], axis=R) == 2), "the pair", "or [1]"),
    "a pair among bits": (element(lambda _: 1 << te.argmax(X[0, R], axis=R)), "the pair", "or [1]"),
    "a pair in numpy": (lambda: np.add(te.argmax(X[0, R], axis=R), 1), "the pair", "or [1]"),
    "a dtype of a compute": (
        lambda: te.compute((4,), lambda i: V[i], dtype="float16"),
        "it takes no argument 'dtype'",
        "write te.cast(x, dtype) or x.astype(dtype) in the function",
    ),
    "a store": (lambda: X.__setitem__((0, 0), 1), "elements are not assigned", "te.compute makes"),
}


@pytest.mark.parametrize("case", PYTHON)
def test_what_python_would_refuse(case: str) -> None:
    call, text, hint = PYTHON[case]
    with pytest.raises(tw.IRError) as error:
        call()
    condition, _, rest = str(error.value).partition("\n  hint: ")
    assert text in condition
    assert hint in rest


def test_a_pair_refuses_every_operator_of_expressions() -> None:
    """Of a tuple, `!=` would be a bool: a choice by it would be constant, and nobody told."""
    special = {n for n in vars(tir.ir.Expr) if re.fullmatch("__(?!annot).*__", n)}
    conversions = {"__bool__", "__float__", "__int__", "__complex__", "__index__"}
    others = {"__array_function__", "__getattr__", "__hash__", "__repr__"}
    assert special - vars(Pair).keys() == conversions | others
    pair: Any = te.argmax(X[0, R], axis=R)
    calls: list[Callable[[], object]] = [lambda: pair == 2, lambda: pair != 2, lambda: ~pair]
    for refused in calls:
        with pytest.raises(tw.IRError, match="found the pair"):
            refused()
    assert len({pair}) == 1


def test_two_sums_are_no_pair() -> None:
    two = (te.sum(X[0, R], axis=R), te.sum(X[1, R], axis=R))
    with pytest.raises(tw.IRError) as error:
        te.compute((4,), lambda i: V[i] + two)
    assert "argmax" not in str(error.value)


def test_errors_of_the_function_itself_are_its_own() -> None:
    """What only looks like a wrong call or index is left as it is."""
    with pytest.raises(IndexError, match="list index out of range"):
        te.compute((4,), lambda i: [V[i]][3 + 0])
    with pytest.raises(IndexError, match="out of bounds for axis 0"):
        te.compute((4,), lambda i: V[i] * N[7, 0])
    with pytest.raises(TypeError, match="has no len"):
        te.compute((4,), lambda i: len(*(3,)))  # type: ignore[arg-type]


def test_arrays_of_expressions_stay_arrays() -> None:
    found: Any = np.array([V[0], V[1]]) * np.array([2.0, 3.0])
    assert found.shape == (2,)
    assert found.dtype == object


MODULE = tw.build(FUNC, "cpu -threads=1")
DATABASE = object.__new__(tw.TuningDatabase)
LAB = tw.lab(FUNC, "cpu -threads=1")
LAB.close()

NAMES: dict[str, tuple[object, str, str]] = {
    "te.einsum": (te, "einsum", "te.compute(shape, lambda i, j: te.sum(A[i, r] * B[r, j]"),
    "te.var": (te, "var", "te.scalar(dtype, name) for a number of each call; the variance is"),
    "te.rint": (te, "rint", "te.round(x)"),
    "te.zeros": (te, "zeros", "te.compute(shape, lambda i, j: te.const(0, dtype))"),
    "tw.placeholder": (tw, "placeholder", "te.placeholder, of `from tilewright import te`"),
    "tw.compute": (tw, "compute", "te.compute, of"),
    "tw.matmul_func": (tw, "matmul_func", "ops.matmul_func, of"),
    "tw.float32": (tw, "float32", "'float32': dtypes are texts"),
    "te.pad": (te, "pad", "te.select(condition, X[i - 1], 0.0)"),
    "te.scan": (te, "scan", "tilewright.script, with a loop that reads"),
    "te.concatenate": (te, "concatenate", "te.select(i < n, A[i], B[i - n])"),
    "te.arctan2": (te, "arctan2", "te.atan2(y, x)"),
    "te.float32": (te, "float32", "'float32': dtypes are texts"),
    "te.extern": (te, "extern", "te.compute, or loops of your own with tilewright.script"),
    "tw.interpret": (tw, "interpret", "interpret(func, *arrays), of `from tilewright.tir.interp"),
    "ops.conv1d": (ops, "conv1d", "ops.conv2d(X, W), of one row"),
    "func.show": (FUNC, "show", "print(func)"),
    "func.args": (FUNC, "args", "func.params"),
    "func.script": (FUNC, "script", "print(func), whose text tw.script(text) reads"),
    "te.load": (te, "load", "A[i, j], which reads an element"),
    "tw.njit": (tw, "njit", "tw.build(func), of a program that te.func or tw.script makes"),
    "tw.meta_schedule": (tw, "meta_schedule", "tw.tune(func, database=...)"),
    "tir.Schedule": (tir, "Schedule", "tw.Schedule(func)"),
    "tir.IRModule": (tir, "IRModule", "tw.Func, which te.func and tw.script make"),
    "te.indexdiv": (te, "indexdiv", "a // b"),
    "tw.cuda": (tw, "cuda", 'the target as a text: "cuda", or "cuda -arch=sm_90a"'),
    "tw.nd": (tw, "nd", "numpy arrays, or DeviceArray.of(array), of tilewright.runtime"),
    "tw.create_schedule": (tw, "create_schedule", "tw.Schedule(func)"),
    "tw.report": (tw, "report", "`tilewright report tuning.db -o report.html` in a shell"),
    "tw.show": (tw, "show", "`tilewright show FILE.py:FUNC` in a shell"),
    "tw.watch": (tw, "watch", "`tilewright watch tuning.db` in a shell, or tw.open_run("),
    "X.T": (X, "T", "ops.transpose(X), or read it so: te.compute((n, m), lambda i, j: X[j, i])"),
    "X.sum": (X, "sum", "ops.sum(X)"),
    "X.astype": (X, "astype", "te.compute(X.extents, lambda i, j: X[i, j].astype(dtype))"),
    "x.exp": (V[0], "exp", "te.exp(...)"),
    "x.log2": (V[0], "log2", "te.log2(...)"),
    "x.shape": (V[0], "shape", "X.extents, of the tensor"),
    "sch.show": (tw.Schedule(FUNC), "show", "print(sch.func); print(sch.trace) shows"),
    "tw.TuneResult": (tw, "TuneResult", "result = tw.tune(func, database=...); for annotations"),
    "tw.load_database": (tw, "load_database", 'tw.TuningDatabase("tuning.db")'),
    "tw.plot.history": (plot, "history", "tw.plot.convergence(result)"),
    "mod.asm": (MODULE, "asm", 'mod.source("asm")'),
    "mod.schedule": (MODULE, "schedule", "mod.origin, which says where it is from; mod.source("),
    "db.to_dataframe": (DATABASE, "to_dataframe", "db.to_pandas()"),
    "lab.measure": (LAB, "measure", 'lab.bench.do({"do": "measure"})'),
    "lab.export": (LAB, "export", 'lab.bench.do({"do": "export"})["result"]["text"]'),
    "lab.undo": (LAB, "undo", 'lab.bench.do({"do": "undo"})'),
    "lab.best": (LAB, "best", 'lab.bench.state()["fastest"]'),
    "lab.show": (LAB, "show", "lab, as the last line of a cell of a notebook"),
    "sch.mod": (tw.Schedule(FUNC), "mod", "sch.func; print(sch.func)"),
}


@pytest.mark.parametrize("case", NAMES)
def test_names_of_other_libraries(case: str) -> None:
    thing, name, hint = NAMES[case]
    with pytest.raises(AttributeError) as error:
        getattr(thing, name)
    assert f"{name!r}; write {hint}" in str(error.value)
    assert error.value.name == name
    assert not hasattr(thing, name)


def test_what_plots_there_are_is_said() -> None:
    wrong: Any = plot
    with pytest.raises(AttributeError, match="'nothing'; there are ablation, convergence, decisi"):
        _ = wrong.nothing
    with pytest.raises(AttributeError, match=r"'prediction'; did you mean predictions\?"):
        _ = wrong.prediction


def test_commands_in_the_hints_of_the_lab_are_carried_out() -> None:
    lab = tw.lab(FUNC, "cpu -threads=1")
    for name in ("export", "undo", "redo", "measure", "pin"):
        text = INSTEAD["lab"][name].format()
        answer = eval(re.findall(r"lab\.bench\.do\(\{.*?\}\)", text)[0], {"lab": lab})
        kinds = () if answer["ok"] else (answer["error"]["text"],)
        assert not any("command" in kind or "expected" in kind for kind in kinds), answer
    assert "fastest" in lab.bench.state()
    lab.close()


def test_the_closest_name_comes_first() -> None:
    sch: Any = tw.Schedule(FUNC)
    with pytest.raises(AttributeError, match=r"'inline'; did you mean compute_inline or "):
        _ = sch.inline
    with pytest.raises(
        tw.ScheduleError, match=r"no block 'z'; there are Z\n  hint: did you mean Z"
    ):
        sch.get_block("z")


def test_what_is_indexed_in_tvm() -> None:
    sch: Any = tw.Schedule(FUNC)
    with pytest.raises(tw.ScheduleError, match=r"not indexed; found <Tensor V.*\n.*get_block\("):
        sch[V]
    mod: Any = tw.build(FUNC, "cpu -threads=1")
    with pytest.raises(tw.ArgumentError, match=r"found 'main'\n  hint: mod\(\*arrays\)"):
        mod["main"]
    with pytest.raises(tw.ScheduleError, match=r"hint: write split\(loop, factors=\[4, None\]\)"):
        sch.split(sch.get_loop("i"), nparts=4)
    with pytest.raises(tw.ScheduleError, match=r"found V; .*\n  hint: sch.get_block\('V'\)"):
        sch.get_block(V)
    with pytest.raises(tw.ScheduleError, match=r"split: found V; .*\n  hint: sch.get_block\('V'\)"):
        sch.split(V, factors=[4, None])


def test_what_has_to_be_given_is_shown() -> None:
    missing: Any = tw.TuningDatabase
    with pytest.raises(tw.DatabaseError, match=r"'path_or_url'\n  hint: tw.TuningDatabase\("):
        missing()
    missing = tw.open_run
    with pytest.raises(tw.DatabaseError, match=r"'database'\n  hint: tw.open_run\("):
        missing()


def test_operators_that_are_misspelt_or_missing() -> None:
    found: Any = ops
    with pytest.raises(AttributeError, match="'softmx'; did you mean softmax"):
        _ = found.softmx
    assert not hasattr(FUNC, "nothing")


def test_a_keyword_that_is_like_no_other() -> None:
    wrong: Any = tw.build
    with pytest.raises(tw.BuildError) as error:
        wrong(FUNC, opt_level=3)
    text, hint = str(error.value).splitlines()[:2]
    assert text.startswith("build: it takes no argument 'opt_level'; it takes program, target, ")
    assert hint == '  hint: tw.build(program, "cpu")'


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("timeout", "write seconds=60, of wall-clock time"),
        ("max_trials_global", "write trials=64"),
        ("work_dir", 'write database="tuning.db"'),
        ("n_trials", "did you mean trials?"),
    ],
)
def test_keywords_of_other_tuners(name: str, hint: str) -> None:
    tune: Any = tw.tune
    with pytest.raises(tw.TuningError) as error:
        tune(FUNC, **{name: 3})
    assert str(error.value).endswith(f"\n  hint: {hint}")


def test_keywords_that_are_said_to_be_missing_are() -> None:
    for name, function in {"compute": te.compute, "tune": tw.tune}.items():
        taken = inspect.signature(function).parameters
        assert not taken.keys() & KEYWORDS[name].keys()
        for hint in KEYWORDS[name].values():
            assert all(word in taken for word in re.findall(r"^(\w+)=", hint))
    for name in KEYWORDS["schedule"]:
        assert not all(name in p.names for p in PRIMITIVES.values())
    assert KEYWORDS.keys() == {"compute", "schedule", "tune"}


def test_a_function_that_is_not_called_is_called_in_the_hint() -> None:
    def lnproj() -> object:
        return FUNC

    lab: Any = tw.lab
    for name, call in {"tune": tw.tune, "build": tw.build, "Schedule": tw.Schedule}.items():
        wrong: Any = call
        given = {"database": "unused.db"} if name == "tune" else {}
        with pytest.raises(tw.TilewrightError, match=rf"hint: .*: tw.{name}\(lnproj\(\), \.\.\."):
            wrong(lnproj, **given)
        with pytest.raises(tw.TilewrightError, match=rf"hint: .*: tw.{name}\(matmul\(\), \.\.\."):
            wrong(lambda: FUNC, **given)
    with pytest.raises(tw.TilewrightError, match=r"tw.lab\(lnproj\(\), \.\.\."):
        lab(lnproj)


def test_a_database_in_the_place_of_a_target(tmp_path: Path) -> None:
    given: Any = tw.TuningDatabase(tmp_path / "tuning.db")
    for call in (tw.build, tw.lab, tw.Target):
        wrong: Any = call
        with pytest.raises(tw.TargetError, match=r"TuningDatabase\(.*\n  hint: .* database=db,"):
            wrong(*([FUNC] if call is not tw.Target else []), given)
    tw.build(FUNC, database=given)


def test_the_name_of_a_placeholder_comes_last() -> None:
    with pytest.raises(tw.IRError) as error:
        te.placeholder("X", (8, 6))
    assert str(error.value) == (
        "placeholder: the shape is 'X'; expected a tuple of integers\n"
        "  hint: the name comes last: te.placeholder((4, 8), \"float32\", name='X')"
    )


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu", "gelu"])
def test_functions_of_floats_say_how_to_cast(name: str) -> None:
    with pytest.raises(tw.IRError) as error:
        te.compute((4,), lambda i: getattr(te, name)(i) + 1)
    assert f'hint: cast the argument: te.{name}(te.cast(i, "float32")); in a' in str(error.value)
    te.compute((4,), lambda i: getattr(te, name)(te.cast(i, "float32")))


def test_names_that_a_module_does_not_have() -> None:
    mod: Any = tw.build(FUNC, "cpu -threads=1")
    for name, hint in {
        "save": 'write tw.build_library(program, "kernel.so")',
        "export_library": "write tw.build_library(",
        "time_evaluator": "write mod.time(*arrays)",
        "get_source": 'write mod.source("tir"), "llvm" or "asm"; of a GPU "tir", "cuda" or "ptx"',
        "sinature": "did you mean signature?",
        "timeit": "did you mean time?",
    }.items():
        with pytest.raises(AttributeError) as error:
            getattr(mod, name)
        assert "_timer" not in str(error.value)
        assert f"'Module' object has no attribute {name!r}; {hint}" in str(error.value)
    with pytest.raises(tw.ArgumentError, match=r"source: missing .*'kind'\n  hint: mod.source"):
        mod.source()


@pytest.mark.parametrize("kind", [Hinted, tw.Schedule, type(FUNC), type(X), type(X[0, 0])])
def test_an_error_inside_a_property_is_not_taken_for_a_missing_name(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise AttributeError("boom")

    monkeypatch.setattr(kind, "shown", property(fail), raising=False)
    value: Any = object.__new__(kind)
    with pytest.raises(AttributeError, match=r"^boom$"):
        _ = value.shown


SUBJECTS: dict[str, object] = {
    "DeviceArray": DeviceArray,
    "T": T,
    "te": te,
    "ops": ops,
    "tilewright": tw,
    "tw": tw,
    "sch": tw.Schedule,
    "mod": MODULE,
    "lab": LAB,
    "plt": plt,
    "module": tw.Module,
    "trace": tw.Trace,
    "func": FUNC,
    "math": math,
    "numpy": np,
    "X": X,
    "best": RESULT.best,
    "database": tw.TuningDatabase,
    "db": tw.TuningDatabase,
    "result": RESULT,
    "run": TuningRun,
}


def _spelt(text: str) -> Iterator[tuple[str, str]]:
    """The dotted names in a hint, without texts and commands: they have to exist."""
    code = re.sub(r'"[^"]*"|`tilewright [^`]*`', "", text)
    yield from re.findall(r"\b(\w+)\.([a-zA-Z_]\w*)", code)


@pytest.mark.parametrize("kind", INSTEAD)
def test_hints_name_what_there_is(kind: str) -> None:
    own = {
        "annotation": {},
        "te": te,
        "tilewright": tw,
        "tensor": X,
        "func": FUNC,
        "ops": ops,
        "expression": V[0],
        "target": tw.Target,
        "schedule": tw.Schedule,
        "script": dict.fromkeys([*FUNCTIONS, *_SPECIAL]),
        "module": tw.Module,
        "lab": LAB,
        "plot": plot,
        "result": RESULT,
        "best": RESULT.best,
        "run": TuningRun,
        "recorded run": RecordedRun,
        "database": tw.TuningDatabase,
    }[kind]
    known = own if isinstance(own, dict) else getattr(own, "__all__", dir(own))
    for name, hint in INSTEAD[kind].items():
        assert name not in known, f"{kind} has {name}"
        for thing, attribute in _spelt(hint.format("X", "i, j")):
            assert hasattr(SUBJECTS[thing], attribute), f"{name}: there is no {thing}.{attribute}"


@pytest.mark.parametrize(
    ("found", "what", "arguments"),
    [
        (Y, "the tensor Y", "alpha, V, Y"),
        ([V, Y], "a list of tensors", "V, Y"),
        (V, "the tensor V", "V"),
    ],
)
def test_a_tensor_is_no_program(found: Any, what: str, arguments: str, tmp_path: Path) -> None:
    database = tw.TuningDatabase(tmp_path / "tuning.db")
    calls: dict[str, tuple[Callable[[], object], type[tw.TilewrightError]]] = {
        "tw.build": (lambda: tw.build(found), tw.BuildError),
        "tw.Schedule": (lambda: tw.Schedule(found), tw.ScheduleError),
        "tw.tune": (lambda: tw.tune(found, database=database, trials=1), tw.TuningError),
    }
    for name, (call, kind) in calls.items():
        with pytest.raises(kind, match=f"expected a program .* found {what}\n") as error:
            call()
        hint = f"hint: a program has arguments: {name}(te.func([{arguments}]))"
        assert str(error.value).endswith(hint)


def test_an_expression_is_no_program() -> None:
    with pytest.raises(tw.BuildError, match=r"found the expression V\[0\]\n  hint: te.compute ma"):
        tw.build(V[0])


@pytest.mark.parametrize(
    ("at", "hint"),
    [
        (-1, "the last one is 5, and -1 is written 5"),
        (-6, "the last one is 5, and -6 is written 0"),
        (-7, "the last one is 5"),
    ],
)
def test_indices_do_not_count_from_the_end(at: int, hint: str) -> None:
    last = te.compute((4,), lambda i: X[i, at], name="last")
    with pytest.raises(tw.VerifyError, match=rf"index {at} of X in dimension 1") as error:
        tw.build(te.func([X, last]))
    assert str(error.value).endswith(f"hint: indices do not count from the end: {hint}")


def test_a_target_of_its_text() -> None:
    named: Any = Target
    target = named("cpu -threads=1")
    assert target == tw.Target.parse("cpu -threads=1")
    assert named(target) is target
    own: Any = CpuTarget
    assert own("cpu -threads=2").threads == 2
    tw.build(FUNC, named("cpu -threads=1"))
    for wrong in ("gpu", None, 3, ""):
        with pytest.raises(tw.TargetError):
            named(wrong)


BUILD: Any = tw.build
TARGETS: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "options": (lambda t: t("cpu", threads=1), "found options threads", '"cpu -threads=1"'),
    "fields": (lambda t: t(kind="cpu", num_cores=2), "num_cores", '"cpu -threads=2"'),
    "nothing": (lambda t: t(), "found 0 arguments", '"cpu"'),
    "a dict": (lambda t: t({"kind": "cpu", "mcpu": "znver4"}), "{'kind'", '"cpu -mcpu=znver4"'),
    "a number": (lambda _: BUILD(FUNC, 3), "found 3", '"cpu" is this machine'),
    "a dict to build": (lambda _: BUILD(FUNC, {"threads": 1}), "found {", '"cpu -threads=1"'),
    "a word": (lambda t: t("cpu -threads 1"), "-threads has no value", "write -threads=1"),
    "no word": (lambda t: t("cpu -threads"), "-threads has no value", "write -threads=VALUE"),
    "two": (lambda t: t("cpu -mcpu -threads=1"), "-mcpu has no value", "write -mcpu=VALUE"),
}


@pytest.mark.parametrize("case", TARGETS)
def test_other_spellings_of_targets(case: str) -> None:
    use, text, hint = TARGETS[case]
    with pytest.raises(tw.TargetError) as error:
        use(Target)
    condition, _, rest = str(error.value).partition("\n  hint: ")
    assert text in condition
    assert rest.endswith(hint)


def test_constructors_of_targets_elsewhere() -> None:
    named: Any = Target
    with pytest.raises(AttributeError, match=r"'from_string'; write tw.Target\(\"cpu"):
        _ = named.from_string
    with pytest.raises(AttributeError, match="'pars'; did you mean parse"):
        _ = named.pars


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("-num-cores=2", "write -threads=2"),
        ("-num_threads=2", "write -threads=2"),
        ("-march=haswell", "write -mcpu=haswell"),
        ("-cpu", "write -mcpu="),
    ],
)
def test_options_of_other_compilers(option: str, hint: str) -> None:
    with pytest.raises(tw.TargetError) as error:
        tw.build(FUNC, f"cpu {option}")
    assert str(error.value).endswith(f"hint: {hint}")
    assert set(OPTIONS.values()) <= set(CpuTarget.option_names)


@pytest.mark.parametrize("name", INSTEAD["script"])
def test_functions_that_scripts_do_not_have(name: str) -> None:
    text = f"""
def f(A: T.Buffer((4,), "float32")):
    T.inplace(A)
    for i in range(4):
        A[i] = T.{name}(A[i], 1.0)
"""
    with pytest.raises(tw.ParseError) as error:
        tw.script(text)
    assert f"T.{name} is not a function of values" in str(error.value)
    assert f"hint: write {INSTEAD['script'][name]}" in str(error.value)
