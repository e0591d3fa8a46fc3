"""TVM with MetaSchedule at its default settings, in an environment of its own (the extra `tvm`).

Each case is tuned once for each number of trials, that of `TILEWRIGHT_BENCHMARK_TVM_TRIALS`, which
`kernels.py` sets; what was found is kept in `build/tvm`.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SITE = Path(__file__).resolve().parent.parent / "tvm_site"
runpy.run_path(str(_SITE / "sitecustomize.py"))  # in this process too, before TVM is loaded

import tvm  # noqa: E402
from tvm import te, topi  # noqa: E402
from tvm.s_tir import meta_schedule as ms  # noqa: E402

from .. import suite  # noqa: E402
from ..suite import Array, Case, Params  # noqa: E402
from .call import Call  # noqa: E402

VERSION = tvm.__version__
TRIALS = "TILEWRIGHT_BENCHMARK_TVM_TRIALS"
_ROOT = Path(__file__).resolve().parent.parent.parent


def prepare(case: Case, arrays: list[Array], threads: int) -> Call | None:
    """The call for a case, tuned first where it was not; `None` for those not written down here."""
    if case.op not in _PROGRAMS or case.params.get("constant_b"):
        return None
    operands = [te.placeholder(a.shape, a.dtype.name, name=f"a{i}") for i, a in enumerate(arrays)]
    made = _PROGRAMS[case.op](case.params, *operands)
    func = te.create_prim_func([*operands, made])
    target = tvm.target.Target(
        {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": threads}
    )
    trials = int(os.environ[TRIALS])
    name = "".join(c if c.isalnum() else "-" for c in case.name)
    folder = _ROOT / "build" / "tvm" / f"{name}-{threads}-{trials}"
    schedule = _tuned(func, target, folder, trials, threads)
    library = tvm.compile(
        tvm.IRModule({"main": func}) if schedule is None else schedule.mod, target
    )
    device = tvm.cpu()
    buffers = [tvm.runtime.tensor(a, device) for a in (*arrays, suite.output(case))]
    kernel = library["main"]
    note = "not tuned" if schedule is None else ""
    return Call(lambda: kernel(*buffers), buffers[-1].numpy, note=note)


def _tuned(func: Any, target: Any, folder: Path, trials: int, threads: int) -> Any:
    """The best schedule found, `None` where there is none."""
    if not (folder / "database_tuning_record.json").exists():
        os.environ["PYTHONPATH"] = str(_SITE)  # for the builders
        folder.mkdir(parents=True, exist_ok=True)
        ms.tune_tir(
            func,
            target,
            str(folder),
            max_trials_global=trials,
            num_trials_per_iter=min(trials, 64),
            num_tuning_cores=threads,
            seed=42,
        )
    found = ms.database.JSONDatabase(work_dir=str(folder))
    return ms.tir_integration.compile_tir(found, func, target)


def _matmul(p: Params, a: Any, b: Any, bias: Any = None) -> Any:
    if "batch" in p:
        return topi.nn.batch_matmul(a, b, transpose_b=False)
    c = topi.nn.matmul(a, b)
    if bias is not None:
        c = topi.add(c, bias)
    if p.get("epilogue") == "gelu":
        c = te.compute(
            c.shape,
            lambda i, j: c[i, j] * 0.5 * (1 + tvm.tirx.erf(c[i, j] * 0.70710678)),
            name="gelu",
        )
    return c


def _conv(p: Params, x: Any, w: Any, bias: Any = None) -> Any:
    stride, padding = (p["stride"], p["stride"]), (p["padding"], p["padding"])
    if p.get("groups", 1) > 1:
        w = te.compute(
            (w.shape[0], 1, *w.shape[2:]), lambda o, i, y, x: w[o, i, y, x], name="weights"
        )
        return topi.nn.depthwise_conv2d_nchw(x, w, stride, padding, (1, 1))
    y = topi.nn.conv2d_nchw(x, w, stride, padding, (1, 1))
    if bias is not None:
        y = topi.add(y, topi.reshape(bias, (1, p["o"], 1, 1)))
    return topi.nn.relu(y) if p.get("epilogue") == "relu" else y


_PROGRAMS: dict[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "conv2d": _conv,
    "softmax": lambda _, x: topi.nn.softmax(x, axis=-1),
    "layer_norm": lambda _, x, g, b: topi.nn.layer_norm(x, g, b, [1], 1e-5),
    "add_relu": lambda _, a, b: topi.nn.relu(topi.add(a, b)),
    "sum": lambda p, x: topi.sum(x, axis=p["axis"]),
    "transpose": lambda _, x: topi.transpose(x, [1, 0]),
}
