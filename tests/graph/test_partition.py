"""Graphs whose parts several providers run: any cut computes what the whole does."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import BuildError, GuardError, ProviderError, UnsupportedError
from tilewright.building.build_partition import build_partition, divided
from tilewright.building.providers import PROVIDERS, Tilewright, register_provider
from tilewright.codegen.detect import resolve
from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.ir import Node
from tilewright.graph.operator import OPERATORS, find
from tilewright.graph.partition import partition
from tilewright.graph.parts import Partition
from tilewright.graph.provider import Provider
from tilewright.runtime.part_loader import LOADERS
from tilewright.runtime.partitioned import PartitionedModel
from tilewright.target import Target

from .random_graphs import a_graph, compare

TARGET = "cpu -threads=1"
HOST = resolve(TARGET)


class Plain(Provider):
    """Runs what `able` allows with numpy, in the dtypes of the graph."""

    def __init__(self, name: str, able: Callable[[Node], bool] = lambda _: True) -> None:
        self.name = name
        self.able = able
        self.compiled: list[Graph] = []

    def refusal(self, node: Node) -> str | None:
        return None if self.able(node) else f"no {node.operator} here"

    def compile(self, graph: Graph, target: Target) -> Callable[..., Any]:
        assert target is HOST
        self.compiled.append(graph)
        return graph.reference


@pytest.fixture
def registered() -> Iterator[Callable[..., Provider]]:
    """Registers providers for a test."""
    providers, loaders = dict(PROVIDERS), dict(LOADERS)
    yield register_provider
    PROVIDERS.clear()
    PROVIDERS.update(providers)
    LOADERS.clear()
    LOADERS.update(loaders)


def run_by(graph: Graph, *providers: Provider, **options: Any) -> PartitionedModel:
    """A graph that these run."""
    made = build_partition(partition(graph, providers, **options), HOST, Tilewright())
    assert isinstance(made, PartitionedModel)
    return made


def chain(*operators: str, size: int = 64) -> Graph:
    """Operators one after the other, on `size` floats."""
    b = Builder("chain")
    value = b.input("x", TensorType("float32", (size,)))
    for operator in operators:
        value = b.add(operator, value)
    return b.graph({"y": value})


def runs(found: Partition) -> list[tuple[str, int]]:
    """Who runs the parts, and how many nodes."""
    return [(part.provider.name, len(part.graph.nodes)) for part in found.parts]


def check_cut(found: Partition) -> None:
    """Each node is in one part, and what a part reads is given, or computed before it."""
    graph = found.graph
    nodes = [node for part in found.parts for node in part.graph.nodes]
    assert sorted(map(id, nodes)) == sorted(map(id, graph.nodes))
    there = set(graph.inputs.values())
    for part in found.parts:
        assert there.issuperset(part.graph.inputs.values())
        there.update(part.graph.outputs.values())
    assert there.issuperset(set(graph.outputs.values()) - set(graph.constants))


@pytest.mark.parametrize("seed", range(60))
def test_any_cut_computes_what_the_whole_does(seed: int) -> None:
    case = a_graph(seed)
    rng = np.random.default_rng(seed)
    one = {node: int(rng.integers(3)) for node in case.graph.nodes}
    providers = [
        Plain("a", lambda node: one.get(node) == 0),
        Plain("b", lambda node: one.get(node) in (0, 1)),
        Plain("c"),
    ]
    providers[1].call_seconds = float(rng.choice([0.0, 1e-3]))  # where islands are dissolved
    placement = {}
    if case.graph.nodes and rng.integers(2):
        node = case.graph.nodes[int(rng.integers(len(case.graph.nodes)))]
        placement[node.operator] = "c"
    found = partition(case.graph, providers, placement)
    check_cut(found)
    for part in found.parts:
        for node in part.graph.nodes:
            placed = node.operator in placement
            assert part.provider.refusal(node) is None
            assert not placed or part.provider.name == "c"
    model = build_partition(found, HOST, Tilewright())
    if not found.parts:
        return
    given = case.arguments.values()
    results: Any = model(*given)
    results = results if isinstance(results, tuple) else (results,)
    for result, wanted in zip(results, case.graph.reference(*given), strict=True):
        assert result.dtype == wanted.dtype
        np.testing.assert_array_equal(result, wanted)
    assert isinstance(model, PartitionedModel)
    assert model.counts["transferred_bytes"] == model.evidence.transfer_bytes
    assert sum(model.counts[p.name] for p in providers if p.name in model.counts) == len(
        found.parts
    )


@pytest.mark.parametrize("seed", [1, 4])
def test_kernels_beside_the_reference_compute_what_the_whole_does(seed: int) -> None:
    case = a_graph(seed)
    rng = np.random.default_rng(seed)
    names = dict.fromkeys(node.operator for node in case.graph.nodes)
    placement = {name: "reference" for name in names if rng.integers(3) == 0}
    assert placement
    model: Any = tw.build(
        case.graph, TARGET, providers=["tilewright", "reference"], placement=placement
    )
    assert {part.provider for part in model.evidence.parts} == {"tilewright", "reference"}
    results = model(*case.arguments.values())
    compare("parts", case, results if isinstance(results, tuple) else (results,))


def test_a_run_goes_on_as_long_as_it_can() -> None:
    """Parts are as few as the order allows, by who begins, where branches are mixed in the file."""
    b = Builder("mixed")
    x = b.input("x", TensorType("float32", (8,)))
    first = b.add("exp", x)
    second = b.add("abs", b.add("tanh", x))
    third = b.add("exp", b.add("tanh", b.add("negative", x)))
    odd, rest = Plain("odd", lambda node: node.operator == "tanh"), Plain("rest")
    two = partition(b.graph({"a": first, "b": second}), [rest, odd], {"tanh": "odd"})
    assert runs(two) == [("odd", 1), ("rest", 2)]
    three = partition(b.graph({"a": first, "b": second, "c": third}), [rest, odd], {"tanh": "odd"})
    assert runs(three) == [("rest", 2), ("odd", 2), ("rest", 2)]
    check_cut(three)


def test_islands_that_cost_more_than_they_gain_are_dissolved() -> None:
    graph = chain("exp", "tanh", "exp")
    rest = Plain("rest")
    costly, cheap = (Plain(name, lambda n: n.operator == "tanh") for name in ("costly", "cheap"))
    costly.call_seconds, cheap.call_seconds = 1.0, 0.0
    assert runs(partition(graph, [costly, rest])) == [("rest", 3)]
    assert "costly" in partition(graph, [costly, rest]).parts[0].why
    cheap.seconds = lambda node: -1.0  # type: ignore[method-assign]
    assert runs(partition(graph, [cheap, rest])) == [("rest", 1), ("cheap", 1), ("rest", 1)]
    placed = partition(graph, [costly, rest], {"tanh": "costly"})
    assert runs(placed) == [("rest", 1), ("costly", 1), ("rest", 1)]


def test_what_begins_and_ends_a_graph_is_no_island() -> None:
    graph = chain("exp", "tanh", "exp")
    own = Plain("own", lambda node: node.operator == "exp")
    own.call_seconds = 1.0
    assert runs(partition(graph, [own, Plain("rest")])) == [("own", 1), ("rest", 1), ("own", 1)]


def test_outputs_are_arrays_of_their_own() -> None:
    b = Builder("same")
    x = b.input("x", TensorType("float32", (4,)))
    held = b.constant([1.0, 2.0, 3.0, 4.0], "float32")
    y = b.add("exp", x)
    graph = b.graph({"y": y, "again": y, "x": x, "held": held})
    given = np.arange(4, dtype=np.float32)
    model = run_by(graph, Plain("numpy"))
    results = model(given)
    for result, wanted in zip(results, graph.reference(given), strict=True):
        np.testing.assert_array_equal(result, wanted)
    for n, result in enumerate(results):
        result[:] = -1
        assert all((other != -1).all() for other in results[n + 1 :])
    np.testing.assert_array_equal(given, np.arange(4))
    np.testing.assert_array_equal(model(x=given)[3], held.data)


def test_a_provider_that_returns_what_it_was_given() -> None:
    graph = chain("abs", size=4)
    given = np.ones(4, np.float32)
    own = Plain("own")
    own.compile = lambda graph, target: lambda x: x  # type: ignore[method-assign]
    assert run_by(graph, own)(given) is not given


def test_a_provider_that_returns_views() -> None:
    graph = chain("abs", size=4)
    given = np.ones(4, np.float32)
    own = Plain("own")
    own.compile = lambda graph, target: lambda x: x[:]  # type: ignore[method-assign]
    result = run_by(graph, own)(given)
    assert not np.may_share_memory(result, given)
    assert result.flags.writeable


def lying(**answers: Any) -> Provider:
    """A provider that has these in place of its methods."""
    made = Plain("liar")
    for name, answer in answers.items():
        setattr(made, name, answer)
    return made


def fail(*_: Any) -> Any:
    raise ZeroDivisionError("a bug")


class Unreadable(list[Any]):
    __iter__ = fail


CALLS: dict[str, Callable[..., Any]] = {
    "iteration": lambda x: Unreadable([x]),
    "shape": lambda x: x[:2],
    "rank": lambda x: x.reshape(2, -1),
    "dtype": lambda x: x.astype(np.float64),
    "count": lambda x: [x, x],
    "list": lambda x: [x.tolist()],
    "none": lambda x: None,
    "writes": lambda x: np.exp(x, out=x),
    "raises": fail,
    "ends": lambda x: sys.exit(4),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_call_that_is_not_as_it_should_be(kind: str) -> None:
    model = run_by(chain("exp"), lying(compile=lambda graph, target: CALLS[kind]))
    with pytest.raises(ProviderError) as error:
        model(np.zeros(64, np.float32))
    assert error.value.data["provider"] == "liar"
    assert model.counts == {"runs": 1, "liar": 1, "transferred_bytes": 0}


@pytest.mark.parametrize(
    "answers",
    [
        {"refusal": fail},
        {"refusal": lambda node: True},
        {"compile": fail},
        {"compile": lambda graph, target: None},
        {"compile": lambda graph, target: sys.exit(4)},
    ],
)
def test_an_answer_that_is_none(answers: Mapping[str, Any]) -> None:
    with pytest.raises(ProviderError) as error:
        run_by(chain("exp"), lying(**answers))
    assert error.value.data["provider"] == "liar"


def test_an_unaligned_result_is_copied() -> None:
    def call(x: Any) -> Any:
        made = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype)
        np.exp(x, out=made)
        return made

    graph = chain("exp", "tanh")
    elsewhere = lying(able=lambda node: node.operator == "exp", compile=lambda graph, target: call)
    model = run_by(graph, elsewhere, Tilewright())
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    (wanted,) = graph.reference(x)
    np.testing.assert_allclose(model(x), wanted, rtol=1e-5)


def test_a_cost_that_raises() -> None:
    liar = lying(able=lambda node: node.operator == "tanh", seconds=fail)
    with pytest.raises(ProviderError):
        partition(chain("exp", "tanh", "exp"), [liar, Plain("rest")])


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What a provider hangs for, until the test ends."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("kind", ["refusal", "seconds", "compile", "call"])
def test_a_provider_that_hangs(kind: str, released: threading.Event) -> None:
    def hang(*_: Any) -> None:
        released.wait()

    question = {"compile": lambda *_: hang} if kind == "call" else {kind: hang}
    liar = lying(able=lambda node: node.operator == "tanh", timeout=0.02, **question)
    liar.name = f"hangs as it is asked {kind}"
    options = {} if kind == "seconds" else {"placement": {"tanh": liar.name}}
    for seconds in (0.02, None):  # the second time it is refused at once
        with pytest.raises(ProviderError) as error:
            run_by(chain("exp", "tanh", "exp"), liar, Plain("rest"), **options)(np.zeros(64, "f"))
        data = error.value.data
        assert (data["provider"], data.get("seconds")) == (liar.name, seconds)
        if kind == "call" and seconds is not None:
            assert (data["part"], data["operators"]) == (1, ("tanh",))


def test_a_limit_of_time_may_be_infinite() -> None:
    patient = lying(compile=lambda graph, target: np.exp, timeout=float("inf"))
    x = np.ones(64, np.float32)
    np.testing.assert_allclose(run_by(chain("exp"), patient)(x), np.exp(x), rtol=1e-6)


def test_other_calls_go_on_while_a_provider_hangs(released: threading.Event) -> None:
    hang = threading.Event()

    def call(x: Any) -> Any:
        if hang.is_set():
            released.wait()
        return np.exp(x)

    slow = lying(compile=lambda graph, target: call, timeout=5.0)
    slow.name = "sometimes slow"
    model, x = run_by(chain("exp"), slow), np.ones(64, np.float32)
    other = run_by(chain("exp"), Plain("other"))
    np.testing.assert_allclose(model(x), np.exp(x), rtol=1e-6)
    hang.set()
    slow.timeout = 0.02
    for _ in range(2):
        with pytest.raises(ProviderError):
            model(x)
        np.testing.assert_allclose(other(x), np.exp(x), rtol=1e-6)
    hang.clear()
    released.set()
    slow.timeout = None
    while True:  # it comes back soon
        with contextlib.suppress(ProviderError):
            np.testing.assert_allclose(model(x), np.exp(x), rtol=1e-6)
            break


def test_a_provider_that_fails_once() -> None:
    count = iter(range(9))

    def call(x: Any) -> Any:
        return np.exp(x) if next(count) != 2 else fail()

    model = run_by(
        chain("exp", "tanh"),
        lying(able=lambda n: n.operator == "exp", compile=lambda graph, target: call),
        Plain("rest"),
    )
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    for n in range(5):
        if n == 2:
            with pytest.raises(ProviderError):
                model(x)
        else:
            np.testing.assert_allclose(model(x), np.tanh(np.exp(x)), rtol=1e-6)
    assert model.counts == {"runs": 5, "liar": 5, "rest": 4, "transferred_bytes": 4 * 256}


def test_errors_of_kernels_stay_what_they_are() -> None:
    b = Builder("taken")
    x = b.input("x", TensorType("float32", (5,)))
    places = b.input("places", TensorType("int64", (2,)))
    graph = b.graph({"y": b.add("exp", b.add("take", x, places, axis=0))})
    model = tw.build(
        graph, TARGET, providers=["tilewright", "reference"], placement={"exp": "reference"}
    )
    assert isinstance(model, PartitionedModel)
    with pytest.raises(GuardError):
        model(np.zeros(5, np.float32), np.array([0, 7]))
    with pytest.raises(tw.ArgumentError):
        model(np.zeros(5, np.float32), np.zeros(3, np.int64))
    assert model.counts["runs"] == 1


def test_threads_call_at_the_same_time() -> None:
    model = run_by(
        chain("exp", "tanh", "negative"), Plain("a", lambda n: n.operator == "tanh"), Plain("b"),
        placement={"tanh": "a"},
    )  # fmt: skip

    def checked(n: int) -> None:
        x = np.full(64, n / 100, np.float32)
        np.testing.assert_allclose(model(x), -np.tanh(np.exp(x)), rtol=1e-6)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(checked, range(200)))
    assert model.counts == {"runs": 200, "a": 200, "b": 400, "transferred_bytes": 200 * 512}


def test_kernels_of_a_partition_are_tuned(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "providers": ["tilewright", "reference"], "placement": {"tanh": "reference"},
    }  # fmt: skip
    graph = chain("exp", "tanh", "exp", "tanh", "negative")
    found = tw.partition(graph, **options)
    assert str(found) == str(found.evidence())
    assert {func.name.rpartition("_")[0]: n for func, n in found.kernels().items()} == {
        "exp": 2, "negative": 1,
    }  # fmt: skip
    database = str(tmp_path / "tuning.db")
    tw.tune(found, TARGET, database=database, trials=2, progress=False)
    told = tw.explain(graph, TARGET, database, **options)
    assert [kernel.origin.kind for kernel in told.kernels] == ["record", "record"]
    built: Any = tw.build(graph, TARGET, database, ("record",), **options)
    assert {k.schedule for p in built.evidence.parts if p.kernels for k in p.kernels.kernels} == {
        "record"
    }
    for wrong in (next(iter(found.kernels())), "net.onnx"):
        with pytest.raises(BuildError):
            tw.partition(wrong, ["tilewright"])  # type: ignore[arg-type]


def test_limits_of_a_partition() -> None:
    graph = chain("exp", "tanh", "exp")
    options: dict[str, Any] = {"placement": {"tanh": "reference"}}
    options["providers"] = ["tilewright", "reference"]
    assert divided(graph, **options, max_parts=3, max_transfer_bytes=512).parts
    for limit, found in (("max_parts", 3), ("max_transfer_bytes", 512)):
        with pytest.raises(BuildError) as error:
            tw.build(graph, TARGET, **options | {limit: found - 1})
        assert (error.value.data["found"], error.value.data["limit"]) == (found, found - 1)


@pytest.mark.parametrize(
    "options",
    [
        {"placement": {"tanh": "onnxruntime"}},  # is none of the providers
        {"placement": {"tang": "reference"}},  # there is no such operator
        {"placement": {"tanh": "reference"}, "never": ["reference"]},
        {"providers": ["nobody"]},
        {"never": ["nobody"]},
        {"providers": "reference"},
        {"providers": []},
        {"never": ["tilewright", "reference"]},
        {"providers": [1]},
    ],
)
def test_placements_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(BuildError):
        tw.build(
            chain("exp", "tanh"), TARGET, **{"providers": ["tilewright", "reference"]} | options
        )


def test_a_placement_that_the_provider_refuses() -> None:
    with pytest.raises(BuildError) as error:
        partition(chain("exp"), [Plain("a", lambda _: False), Plain("b")], {"exp": "a"})
    assert error.value.data["provider"] == "a"


def test_providers_are_of_graphs() -> None:
    func = next(iter(chain("exp").kernels()))
    with pytest.raises(BuildError):
        tw.build(func, TARGET, providers=["reference"])  # type: ignore[call-overload]


def test_all_that_no_provider_runs_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("exp", "tanh"):
        monkeypatch.setitem(OPERATORS, name, replace(find(name), lower=None, infer=lambda x: x))
    graph = chain("exp", "negative", "tanh")
    with pytest.raises(UnsupportedError) as error:
        tw.build(graph, TARGET)
    assert [operator for _, operator, _, _ in error.value.data["reasons"]] == ["exp", "tanh"]
    with pytest.raises(UnsupportedError):
        tw.build(graph, TARGET, providers=["tilewright", "reference"], never=["reference"])


def test_what_runs_elsewhere_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPERATORS, "tanh", replace(find("tanh"), lower=None, infer=lambda x: x))
    graph = chain("exp", "tanh")
    with caplog.at_level(logging.WARNING):
        model: Any = tw.build(graph, TARGET, providers=["tilewright", "reference"])
    assert ["reference runs tanh" in record.getMessage() for record in caplog.records] == [True]
    assert model.evidence.elsewhere == ("tanh by reference",)
    assert "tanh by reference" in str(model.evidence)
    assert [p.why for p in model.evidence.parts] == ["", "tilewright: no kernel"]
    (crossing,) = model.evidence.transfers
    assert (crossing.operator, crossing.bytes, crossing.source, crossing.destination) == (
        "exp", 256, 0, 1,
    )  # fmt: skip
    model(np.zeros(64, np.float32))
    assert model.counts == {"runs": 1, "tilewright": 1, "reference": 1, "transferred_bytes": 256}
    assert isinstance(model.parts[0], tw.Model)
    with pytest.raises(tw.ArtifactError):
        model.__reduce_ex__(4)


def test_what_is_all_kernels_is_a_model(caplog: pytest.LogCaptureFixture) -> None:
    made = tw.build(chain("exp"), TARGET, providers=["tilewright", "reference"])
    assert isinstance(made, tw.Model)
    assert not caplog.records


def test_a_provider_of_a_user(registered: Callable[..., Provider]) -> None:
    @registered
    class Mine(Provider):
        name = "mine"

        def refusal(self, node: Node) -> str | None:
            return None if node.operator == "exp" else "it has exp only"

        def compile(self, graph: Graph, target: Target) -> Callable[..., Any]:
            return np.exp

    for taken in (Plain("reference"), Plain(""), object()):
        with pytest.raises(BuildError):
            registered(taken)
    model = tw.build(chain("exp"), TARGET, providers=["mine", "tilewright"])
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    np.testing.assert_allclose(model(x), np.exp(x), rtol=1e-6)
    with pytest.raises(BuildError):
        tw.build(
            chain("tanh"), TARGET, providers=["tilewright", "mine"], placement={"tanh": "mine"}
        )


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_a_library_that_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    monkeypatch.setitem(sys.modules, name, None)
    graph = chain("exp", "tanh", size=37)
    options: dict[str, Any] = {"providers": ["tilewright", name]}
    with pytest.raises(ProviderError) as error:
        tw.build(graph, TARGET, **options, placement={"tanh": name})
    assert error.value.data["provider"] == name
    assert isinstance(tw.build(graph, TARGET, **options), tw.Model)  # it is not asked


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_parts_of_onnx(name: str) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip(name)
    b = Builder("net")
    x = b.input("x", TensorType("float32", (6, 8)))
    w = b.constant(np.random.default_rng(0).standard_normal((8, 5)), "float32")
    h = b.add("softmax", b.add("matmul", x, w), axis=1)
    total = b.add("sum", h, axes=(0, 1))
    graph = b.graph({"total": total, "y": b.add("exp", h)})
    model: Any = tw.build(
        graph, TARGET, providers=["tilewright", name], placement={"softmax": name, "sum": name}
    )
    assert {p.provider for p in model.evidence.parts} == {"tilewright", name}
    given = np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)
    for found, wanted in zip(model(given), graph.reference(given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_dtype_that_numpy_lacks_is_refused() -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    b = Builder("narrow")
    graph = b.graph({"y": b.add("exp", b.input("x", TensorType("bfloat16", (4,))))})
    (node,) = graph.nodes
    assert "bfloat16" in (PROVIDERS["onnxruntime"].refusal(node) or "")


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "float64"])
def test_a_dtype_that_openvino_narrows_is_refused(dtype: str) -> None:
    """Regression: 1764453600000 + 1 was computed in int32, exp(500) in float32."""
    b = Builder("wide")
    x = b.input("x", TensorType(dtype, (4,)))
    (node,) = b.graph({"y": b.add("add", x, x)}).nodes
    assert dtype in (PROVIDERS["openvino"].refusal(node) or "")


@pytest.mark.parametrize(
    ("provider", "operator", "dtype"),
    [
        ("onnxruntime", "fmod", "int64"),
        ("openvino", "power", "uint8"),
        ("openvino", "shift_left", "int8"),
    ],
)
def test_an_operator_whose_integers_a_provider_rounds_is_refused(
    provider: str, operator: str, dtype: str
) -> None:
    """Regression: (2**53 + 1) % 3 was 0 by onnxruntime, and -100 << 3 was -1 by OpenVINO."""
    b = Builder("integers")
    x = b.input("x", TensorType(dtype, (4,)))
    (node,) = b.graph({"y": b.add(operator, x, x)}).nodes
    assert operator in (PROVIDERS[provider].refusal(node) or "")


def test_openvino_is_given_no_indices_that_a_call_may_have_wrong() -> None:
    """Regression: it read and wrote other memory."""
    b = Builder("indices")
    x = b.input("x", TensorType("float32", (4, 3)))
    taken = b.add("take", x, b.input("places", TensorType("int8", (2,))), axis=0)
    (node,) = b.graph({"y": taken}).nodes
    assert "indices" in (PROVIDERS["openvino"].refusal(node) or "")


def loop(count: int) -> Node:
    """Exp in float64 in each step of a loop of float32."""
    step = Builder("step")
    wide = step.add("cast", step.input("x", TensorType("float32", (4,))), dtype="float64")
    text = str(step.graph({"y": step.add("cast", step.add("exp", wide), dtype="float32")}))
    b = Builder("loop")
    x = b.input("x", TensorType("float32", (4,)))
    made = b.add_all("loop", x, body=text, count=count, carried=1, sliced=0)
    (node,) = b.graph({"y": made[0]}).nodes
    return node


def test_a_dtype_that_openvino_narrows_is_refused_in_the_body_of_a_loop() -> None:
    assert "float64" in (PROVIDERS["openvino"].refusal(loop(9)) or "")


def test_a_loop_takes_as_long_as_its_steps() -> None:
    seconds = PROVIDERS["tilewright"].seconds
    assert seconds(loop(5000)) > 1000 * seconds(loop(1)) > 0
