"""Groups with several results: which nodes share a kernel, and that it computes the same."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.base.errors import GuardError
from tilewright.building.build_model import build_graph
from tilewright.building.build_program import Ways
from tilewright.building.model_steps import root
from tilewright.codegen.cuda.emulate import emulate
from tilewright.codegen.detect import resolve
from tilewright.codegen.lower import lower
from tilewright.graph import Builder, Graph, TensorType, Value
from tilewright.graph.groups import divide, is_view
from tilewright.graph.ir import Constant
from tilewright.graph.joined import joined
from tilewright.graph.lower import lowered
from tilewright.graph.several_results import MAX_STREAMS
from tilewright.schedule.find import blocks_in
from tilewright.target import CudaTarget

from .random_values import Array

TARGET = "cpu -threads=1"
X = TensorType("float32", (6, 40))


def lstm_cell() -> Graph:
    """A cell of which the next step reads both results."""
    b = Builder("cell")
    gates, c = b.input("gates", TensorType("float32", (6, 160))), b.input("c", X)
    i, f, g, o = (
        b.add("slice", gates, starts=(0, 40 * n), steps=(1, 1), shape=(6, 40)) for n in range(4)
    )
    kept = b.add("multiply", b.add("sigmoid", f), c)
    c = b.add("add", kept, b.add("multiply", b.add("sigmoid", i), b.add("tanh", g)))
    return b.graph({"h": b.add("multiply", b.add("sigmoid", o), b.add("tanh", c)), "c": c})


def rounds(count: int) -> Graph:
    """Two words, each of which goes on from round to round, as those of threefry."""
    b = Builder("rounds")
    type = TensorType("uint32", (6, 40))
    x, y = b.input("x", type), b.input("y", type)
    for n in range(count):
        by = b.constant(np.full((1, 1), 5 + n % 7, np.uint32))
        rest = b.constant(np.full((1, 1), 27 - n % 7, np.uint32))
        x = b.add("add", x, y)
        turned = b.add("bitwise_or", b.add("shift_left", y, by), b.add("shift_right", y, rest))
        y = b.add("bitwise_xor", turned, x)
    return b.graph({"x": x, "y": y})


def backward() -> Graph:
    """The gradients of `u * silu(x)`, which share a sigmoid."""
    b = Builder("backward")
    x, u, g = (b.input(name, X) for name in "xug")
    s, one = b.add("sigmoid", x), b.constant(1.0, "float32")
    slope = b.add("add", one, b.add("multiply", x, b.add("subtract", one, s)))
    dx = b.add("multiply", b.add("multiply", g, u), b.add("multiply", s, slope))
    return b.graph({"du": b.add("multiply", g, b.add("multiply", x, s)), "dx": dx})


@pytest.mark.parametrize("graph", [backward(), rounds(20)], ids=["backward", "rounds"])
def test_two_results_are_one_kernel(graph: Graph) -> None:
    (group,) = divide(graph)
    assert set(group.outputs) == set(graph.outputs.values())
    func = lowered(group)
    assert len(func.params) == len(group.inputs) + 2
    assert not func.allocs  # nothing goes through memory
    assert len(list(blocks_in(func.body))) == 1
    check(graph)


def test_two_results_of_a_launch() -> None:
    graph, target = backward(), CudaTarget.named("sm_90a")
    (group,) = divide(graph)
    ways = Ways(target, None, ("model",), None, strict_fp=False, locked=None, require_tuned=False)
    choice = next(iter(ways.choices(lowered(group))))
    program = lower(choice.scheduled(target), target)
    arguments = dict(zip(graph.inputs.values(), random_arguments(graph), strict=True))
    results = {v: np.empty(v.shape, v.dtype) for v in group.outputs}
    assert not emulate(program, *(arguments[v] for v in group.inputs), *results.values()).faults
    wanted = graph.reference(*arguments.values())
    for value, expected in zip(graph.outputs.values(), wanted, strict=True):
        np.testing.assert_allclose(results[value], expected, rtol=2e-5, atol=2e-5)


def test_functions_that_wait_for_each_other_are_apart() -> None:
    """A cell's tanh of its new state waits for three functions that wait for none."""
    graph = lstm_cell()
    state, output = divide(graph)
    assert (state.outputs, output.outputs) == ((graph.outputs["c"],), (graph.outputs["h"],))
    check(graph)


def test_a_kernel_has_so_many_streams() -> None:
    b = Builder("streams")
    x = b.input("x", X)
    made = {}
    for n in range(MAX_STREAMS):
        x = made[f"r{n}"] = b.add("add", x, b.input(f"y{n}", X))
    groups = divide(b.graph(made))
    assert len(groups) == 3
    assert all(len(g.inputs) + len(g.outputs) <= MAX_STREAMS for g in groups)


def test_values_that_are_read_again_are_named() -> None:
    x, y = te.placeholder((8,), name="X"), te.placeholder((8,), name="Y")
    s = te.compute((8,), lambda i: x[i] + y[i], name="S")
    r = te.compute((8,), lambda i: te.maximum(s[i], 0.0), name="R")
    t = te.compute((8,), lambda i: s[i] * r[i], name="P")
    func = joined(te.func([x, y, r, t], name="two"))
    assert [line.strip() for line in str(func).splitlines()[7:]] == [
        "for i in range(8):",
        'with T.block("P"):',
        "vi = T.axis.spatial(8, i)",
        "S = X[vi] + Y[vi]",
        "R_1 = T.maximum(S, 0.0)",
        "R[vi] = R_1",
        "P[vi] = S * R_1",
    ]


def test_one_result_of_few_operations_is_left_to_the_rules() -> None:
    x = te.placeholder((8,), name="X")
    s = te.compute((8,), lambda i: x[i] + 1.0, name="S")
    func = te.func([x, te.compute((8,), lambda i: s[i] * s[i], name="R")])
    assert joined(func) is func


def test_what_a_reduction_reads_has_a_nest_of_its_own() -> None:
    """Of three values the first is a result, the second is computed again for the sum."""
    r = te.reduce_axis(4)
    x = te.placeholder((8, 4), name="X")
    a = te.compute((8, 4), lambda i, j: x[i, j] + 1.0, name="A")
    d = te.compute((8, 4), lambda i, j: a[i, j] * 2.0, name="D")
    total = te.compute((8,), lambda i: te.sum(d[i, r], axis=r), name="total")
    last = te.compute((8, 4), lambda i, j: d[i, j] - total[i], name="L")
    func = joined(te.func([x, a, last]))
    assert [block.label.name for block in blocks_in(func.body)] == ["A", "D", "total", "L"]


def test_groups_that_need_each_other_are_not_joined() -> None:
    """Two sums of rows lie between what they read and what reads them."""
    b = Builder("between")
    x = b.input("x", X)
    a, c = b.add("tanh", x), b.add("sigmoid", x)
    sums = [b.add("sum", v, axes=(1,), keepdims=True) for v in (a, c)]
    crossed = [b.add("multiply", c, sums[0]), b.add("multiply", a, sums[1])]
    graph = b.graph({"a": a, "c": c, "p": crossed[0], "q": crossed[1]})
    groups = divide(graph)
    assert [len(group.outputs) for group in groups] == [2, 1, 1, 1, 1]
    check(graph)


def test_a_kernel_that_is_needed_late_runs_before() -> None:
    """The row of factors is computed after the first group, and read by the one that joins it."""
    b = Builder("late")
    x, row = b.input("x", X), b.input("row", TensorType("float32", (1, 40)))
    a = b.add("tanh", x)
    factors = b.add("softmax", row, axis=1)
    graph = b.graph({"a": a, "y": b.add("multiply", b.add("relu", a), factors)})
    assert [len(group.outputs) for group in divide(graph)] == [1, 2]
    check(graph)


def test_a_view_of_what_a_kernel_writes_is_read_by_another() -> None:
    b = Builder("view")
    bits = b.add("bitwise_or", b.input("x", TensorType("uint32", (8,))), b.constant(7, "uint32"))
    floats = b.add("bitcast", bits, source="uint32", to="float32")
    graph = b.graph({"bits": bits, "y": b.add("multiply", floats, b.constant(2, "float32"))})
    assert len(divide(graph)) == 2
    check(graph)


def test_indices_that_are_compared_with_their_limits_are_in_memory_before() -> None:
    b = Builder("indices")
    table, at = (
        b.input("table", TensorType("float32", (7,))),
        b.input("at", TensorType("int64", (5,))),
    )
    next_ = b.add("add", at, b.constant(1, "int64"))
    graph = b.graph({"at": next_, "y": b.add("take", table, next_, axis=0)})
    model = tw.build(graph, TARGET)
    x = np.arange(7, dtype=np.float32)
    np.testing.assert_array_equal(model(x, np.arange(5))[1], x[1:6])
    with pytest.raises(GuardError):
        model(x, np.arange(3, 8))


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_are_divided_in_an_order_that_can_run(seed: int) -> None:
    graph = a_graph(seed, nodes=40)
    there = set(graph.inputs.values())
    seen = set[object]()
    for group in divide(graph):
        assert seen.isdisjoint(group.nodes)
        assert all(root(graph, v) in there or isinstance(v, Constant) for v in group.inputs)
        there.update(group.outputs)
        seen.update(group.nodes)
    assert seen == {node for node in graph.nodes if not is_view(node)}
    assert there.issuperset(root(graph, v) for v in graph.outputs.values())


@pytest.mark.parametrize("seed", range(5))
def test_random_graphs_of_several_results(seed: int) -> None:
    graph = a_graph(seed, nodes=14)
    assert any(len(group.outputs) > 1 for group in divide(graph))
    check(graph)


def a_graph(seed: int, nodes: int) -> Graph:
    """A graph of pointwise nodes, most of one shape, with sums and views between them."""
    rng = np.random.default_rng(seed)
    b = Builder("random")
    made: list[Value] = [
        b.input("x", X),
        b.input("y", X),
        b.input("row", TensorType("float32", (40,))),
    ]
    for _ in range(nodes):
        first, second = (made[-1 - min(int(rng.exponential(3)), len(made) - 1)] for _ in range(2))
        match rng.integers(8):
            case 0:
                made.append(b.add("sum", first, axes=(0,)) if first.type.rank == 2 else first)
            case 1:
                flat = b.add("reshape", first, shape=(first.type.size,))
                made.append(b.add("reshape", b.add("tanh", flat), shape=first.shape))
            case 2:
                made.append(b.add(("negative", "relu", "tanh")[rng.integers(3)], first))
            case _:
                made.append(b.add(("add", "subtract", "maximum")[rng.integers(3)], first, second))
    wanted = [v for v in made[3:] if rng.random() < 0.3] + made[-1:]
    return b.graph({f"r{n}": v for n, v in enumerate(dict.fromkeys(wanted))})


def check(graph: Graph) -> None:
    arguments = random_arguments(graph)
    results = build_graph(graph, resolve(TARGET), jobs=1)(*arguments)
    for found, wanted in zip(results, graph.reference(*arguments), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def random_arguments(graph: Graph) -> list[Array]:
    rng = np.random.default_rng(0)
    return [
        rng.normal(size=v.shape).astype(v.dtype)
        if v.dtype == "float32"
        else rng.integers(1 << 32, size=v.shape, dtype=v.dtype)
        for v in graph.inputs.values()
    ]
