"""What users of numpy, TVM and Triton try first, and what the errors say to write."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import T, ops, tir
from tilewright.base.hints import INSTEAD, KINDS, OPTIONS, Hinted
from tilewright.lab import plot
from tilewright.target import CpuTarget, Target
from tilewright.tir import te as _te
from tilewright.tir.te_arguments import Pair

from .lab.test_result import RESULT
from .refusals import refused

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


PYTHON: dict[str, Callable[[], object]] = {
    "cast": element(lambda x: te.cast("int8", x)),
    "a dtype of numpy first": element(lambda x: te.cast(x, x)),
    "an array of numpy": index(lambda i: N[0][i]),
    "a matrix of numpy": index(lambda i: N[i, 0]),
    "rows of numpy": index(lambda i: N[[i]]),
    "a list": index(lambda i: [1, 2][i]),
    "a range": index(lambda i: sum(range(i))),
    "three": element(lambda x: te.maximum(x, 1, 2)),
    "one": element(te.minimum),
    "a word": element(lambda x: te.sum(x, axes=1)),
    "exp": element(lambda x: te.exp(x, 2)),
    "round": element(round),
    "floor": element(math.floor),
    "ceil": element(math.ceil),
    "trunc": element(math.trunc),
    "bool": lambda: bool(X),
    "or": lambda: X or V,
    "len": lambda: len(X),
    "list": lambda: list(V),
    "numpy.round": element(lambda x: np.round(x, 2)),
    "numpy.where": element(np.where),
    "numpy.sum": element(np.sum),
    "numpy.add.reduce": element(np.add.reduce),
    "numpy.deg2rad": element(np.deg2rad),
    "numpy.gcd": element(lambda x: np.gcd(x, 2)),
    "numpy.exp of a tensor": lambda: np.exp(X),
    "numpy.power of one": lambda: np.power(X, 2),
    "te.exp of a tensor": lambda: te.exp(V),
    "te.clip of a tensor": lambda: te.clip(V, 0, 1),
    "te.sum of a tensor": lambda: te.sum(X),
    "where of a number": element(lambda x: te.where(x, 1, 2)),
    "an integer power": index(lambda i: i**-1),
    "numpy.mean of a tensor": lambda: np.mean(X),
    "numpy.add.reduce of one": lambda: np.add.reduce(X),
    "numpy.dot of tensors": lambda: np.dot(X, X),
    "numpy.gcd of a tensor": lambda: np.gcd(X, 2),
    "a sum of Python": index(lambda i: te.sum(X[i, r] for r in range(6))),
    "a slice": lambda: X[0, :],
    "an ellipsis": lambda: X[..., 0],
    "a new axis": lambda: X[None, :],
    "a pair": element(lambda x: x + te.argmax(X[0, R], axis=R)),
    "a pair on the left": element(lambda x: te.argmin(X[0, R], axis=R) * x),
    "twice a pair": element(lambda _: te.argmax(X[0, R], axis=R) * 2),
    "a pair as an index": element(lambda _: X[0, te.argmax(X[0, R], axis=R)]),
    "a pair compared": element(lambda _: te.argmax(X[0, R], axis=R) == 2),
    "a pair among bits": element(lambda _: 1 << te.argmax(X[0, R], axis=R)),
    "a pair in numpy": lambda: np.add(te.argmax(X[0, R], axis=R), 1),
    "a dtype of a compute": lambda: te.compute((4,), lambda i: V[i], dtype="float16"),
    "a store": lambda: X.__setitem__((0, 0), 1),
}


@pytest.mark.parametrize("case", PYTHON)
def test_what_python_would_refuse(case: str) -> None:
    with pytest.raises(tw.IRError):
        PYTHON[case]()


def test_a_pair_refuses_every_operator_of_expressions() -> None:
    """Of a tuple, `!=` would be a bool: a choice by it would be constant, and nobody told."""
    special = {n for n in vars(tir.ir.Expr) if re.fullmatch("__(?!annot).*__", n)}
    conversions = {"__bool__", "__float__", "__int__", "__complex__", "__index__"}
    others = {"__array_function__", "__hash__", "__repr__"}
    assert special - vars(Pair).keys() == conversions | others
    pair: Any = te.argmax(X[0, R], axis=R)
    calls: list[Callable[[], object]] = [lambda: pair == 2, lambda: pair != 2, lambda: ~pair]
    for call in calls:
        with pytest.raises(tw.IRError, match="found the pair"):
            call()
    assert len({pair}) == 1


def test_two_sums_are_no_pair() -> None:
    two = (te.sum(X[0, R], axis=R), te.sum(X[1, R], axis=R))
    with pytest.raises(tw.IRError) as error:
        te.compute((4,), lambda i: V[i] + two)
    assert "argmax" not in str(error.value)


def test_errors_of_the_function_itself_are_its_own() -> None:
    """What only looks like a wrong call or index is left as it is."""
    with pytest.raises(IndexError):
        te.compute((4,), lambda i: [V[i]][3 + 0])
    with pytest.raises(IndexError):
        te.compute((4,), lambda i: V[i] * N[7, 0])
    with pytest.raises(TypeError):
        te.compute((4,), lambda i: len(*(3,)))  # type: ignore[arg-type]


def test_arrays_of_expressions_stay_arrays() -> None:
    found: Any = np.array([V[0], V[1]]) * np.array([2.0, 3.0])
    assert found.shape == (2,)
    assert found.dtype == object


MODULE = tw.build(FUNC, "cpu -threads=1")
DATABASE = object.__new__(tw.TuningDatabase)
LAB = tw.lab(FUNC, "cpu -threads=1")
LAB.close()

NAMES: dict[str, tuple[object, str]] = {
    "te.einsum": (te, "einsum"),
    "tw.placeholder": (tw, "placeholder"),
    "tw.matmul_func": (tw, "matmul_func"),
    "tw.float32": (tw, "float32"),
    "te.float32": (te, "float32"),
    "tw.meta_schedule": (tw, "meta_schedule"),
    "T.prim_func": (T, "prim_func"),
    "X.T": (X, "T"),
    "X.astype": (X, "astype"),
    "x.exp": (V[0], "exp"),
    "x.shape": (V[0], "shape"),
    "sch.mod": (tw.Schedule(FUNC), "mod"),
    "mod.asm": (MODULE, "asm"),
    "result.schedule": (RESULT, "schedule"),
}


@pytest.mark.parametrize("case", NAMES)
def test_names_of_other_libraries(case: str) -> None:
    thing, name = NAMES[case]
    with pytest.raises(AttributeError, match=f"{name!r}; write ") as error:
        getattr(thing, name)
    assert error.value.name == name
    assert not hasattr(thing, name)


MISSPELT: dict[str, tuple[object, str, str]] = {
    "te": (te, "maximun", "maximum"),
    "T": (T, "maximun", "maximum"),
    "ops": (ops, "softmx", "softmax"),
    "plot": (plot, "prediction", "predictions"),
    "func": (FUNC, "parms", "params"),
    "tensor": (X, "extent", "extents"),
    "sch": (tw.Schedule(FUNC), "get_blok", "get_block"),
    "mod": (MODULE, "sinature", "signature"),
    "db": (DATABASE, "to_panda", "to_pandas"),
    "lab": (LAB, "clos", "close"),
    "best": (RESULT.best, "second", "seconds"),
}


@pytest.mark.parametrize("case", MISSPELT)
def test_misspelt_names(case: str) -> None:
    thing, name, meant = MISSPELT[case]
    with pytest.raises(AttributeError, match=rf"{name!r}; did you mean ([a-z_]+ or )?{meant}\b"):
        getattr(thing, name)


def test_the_names_of_the_table_are_not_there() -> None:
    owners: dict[str, object] = {
        "tw": tw,
        "te": te,
        "T": T,
        "Expr": V[0],
        "Tensor": X,
        "Schedule": tw.Schedule(FUNC),
        "Module": MODULE,
        "TuneResult": RESULT,
    }
    functions = {"compute": te.compute, "tune": tw.tune}
    for owner, _, name in (key.partition(".") for key in INSTEAD):
        if owner in functions:
            assert name not in inspect.signature(functions[owner]).parameters
        else:
            assert not hasattr(owners[owner], name), f"{owner} has {name}"
    assert len(INSTEAD) + len(KINDS) + len(OPTIONS) <= 40


def test_a_keyword_of_another_tuner() -> None:
    tune: Any = tw.tune
    for name, hint in {"timeout": INSTEAD["tune.timeout"], "n_trials": "trials"}.items():
        with pytest.raises(tw.TuningError) as error:
            tune(FUNC, **{name: 3})
        assert hint in str(error.value)


def test_what_plots_there_are_is_said() -> None:
    wrong: Any = plot
    with pytest.raises(AttributeError, match="'nothing'; there are ablation, convergence, decisi"):
        _ = wrong.nothing


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
    mod: Any = tw.build(FUNC, "cpu -threads=1")
    with pytest.raises(tw.ArgumentError, match=r"found 'main'\n  hint: mod\(\*arrays\)"):
        mod["main"]
    with refused(tw.ScheduleError, "nparts", "4"):
        sch.split(sch.get_loop("i"), nparts=4)
    with pytest.raises(tw.ScheduleError, match=r"found V; .*\n  hint: sch.get_block\('V'\)"):
        sch.get_block(V)
    with pytest.raises(tw.ScheduleError, match=r"split: found V; .*\n  hint: sch.get_block\('V'\)"):
        sch.split(V, factors=[4, None])


def test_what_has_to_be_given_is_shown() -> None:
    missing: Any = tw.open_run
    with pytest.raises(tw.DatabaseError, match=r"'database'\n  hint: tw.open_run\("):
        missing()


def test_a_keyword_that_is_like_no_other() -> None:
    wrong: Any = tw.build
    with pytest.raises(tw.BuildError) as error:
        wrong(FUNC, opt_level=3)
    text, hint = str(error.value).splitlines()[:2]
    assert text.startswith("build: it takes no argument 'opt_level'; it takes program, target, ")
    assert hint == '  hint: tw.build(program, "cpu")'


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
    with refused(tw.VerifyError, "X", at) as error:
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
    "a processor": (lambda t: t("x86-64-v3"), "unknown", 'write "cpu -mcpu=x86-64-v3"'),
    "its options": (lambda t: t("znver4 -threads=1"), "", 'write "cpu -mcpu=znver4 -threads=1"'),
    "an architecture": (lambda t: t("x86_64"), "unknown", 'write "cpu -mcpu=x86-64"'),
    "another": (lambda t: t("arm64"), "unknown", 'write "cpu -mcpu=generic"'),
    "a feature": (lambda t: t("avx2"), "unknown", 'write "cpu -mcpu=x86-64-v3"'),
    "its processor": (lambda t: t("cpu -mcpu=avx512f"), "unknown", "-mcpu=x86-64-v4?"),
    "this machine": (lambda _: BUILD(FUNC, "native"), "unknown", 'write "cpu -mcpu=native"'),
    "a GPU": (lambda t: t("sm_90a"), "unknown", 'write "cuda -arch=sm_90a"'),
    "another GPU": (lambda t: t("cuda SM_80"), "unknown", "did you mean -arch=sm_80?"),
}


@pytest.mark.parametrize("case", TARGETS)
def test_other_spellings_of_targets(case: str) -> None:
    use, text, hint = TARGETS[case]
    with pytest.raises(tw.TargetError) as error:
        use(Target)
    condition, _, rest = str(error.value).partition("\n  hint: ")
    assert text in condition
    assert rest.endswith(hint)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("-num-cores=2", "write -threads=2"),
        ("-num_cores=2", "write -threads=2"),
        ("-march=haswell", "write -mcpu=haswell"),
        ("-arch", "write -mcpu="),
    ],
)
def test_options_of_other_compilers(option: str, hint: str) -> None:
    with pytest.raises(tw.TargetError) as error:
        tw.build(FUNC, f"cpu {option}")
    assert str(error.value).endswith(f"hint: {hint}")
    assert set(OPTIONS.values()) <= set(CpuTarget.option_names)
