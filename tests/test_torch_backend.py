"""`torch.compile(..., backend="tilewright")`: what Dynamo captures, built and called."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw

from .torch_compiled import alone, compiled, mlp

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with alone():
        yield


def check(module: Any, *args: Any, tolerance: float = 1e-5, **options: Any) -> Any:
    """Compare with PyTorch, without gradients; returns what was compiled."""
    fast = compiled(module, **options)
    with torch.no_grad():
        torch.testing.assert_close(fast(*args), module(*args), rtol=tolerance, atol=tolerance)
    return fast


@pytest.mark.parametrize("freeze", [False, True])
def test_a_module_runs_as_one_graph(freeze: bool) -> None:
    check(mlp(), torch.randn(3, 8), freeze=freeze)
    (graph,) = tw.torch_report().graphs
    assert (graph.kind, graph.ran_on, graph.programs, graph.frozen) == (
        "inference", "tilewright", 1, 4 * freeze,
    )  # fmt: skip
    assert not tw.torch_report().breaks


@pytest.mark.parametrize("write", ["in place", "through data", "another tensor", "set"])
def test_weights_that_change_are_seen(write: str) -> None:
    module, x = torch.nn.Linear(8, 4), torch.randn(3, 8)
    fast = check(module, x, freeze=True)
    with torch.no_grad():
        match write:
            case "in place":
                module.weight[1, 2] += 1
            case "through data":
                module.weight.data.mul_(2)
            case "another tensor":
                module.weight = torch.nn.Parameter(torch.randn(4, 8))
            case _:
                module.weight.data = torch.randn(4, 8)
        torch.testing.assert_close(fast(x), module(x))
    (graph,) = tw.torch_report().graphs
    assert graph.programs == 2


def relu(x: Any) -> Any:
    return torch.relu(x) * 2 + 1


def scaled(x: Any) -> Any:
    return x * 2j + 1


class Product(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, weights: Any) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, x: Any) -> Any:
        return x @ self.weights.t()


@pytest.mark.parametrize(
    ("x", "copies"),
    [
        (torch.randn(3, 4), 0),
        (torch.randn(4, 3).t(), 0),
        (torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last), 0),
        (torch.randn(6, 8)[::2, 1:6], 1),
        (torch.randn(3, 1).expand(3, 4), 1),
        (torch.randn(4, dtype=torch.complex64).conj().imag, 1),
        (torch._neg_view(torch.randn(3, 4)), 1),
        (torch.randn(0, 4), 0),
        (torch.tensor(-2.0), 0),
        (torch.randn(4, 3, dtype=torch.complex64).t(), 0),
        (torch.randn(4, 3, dtype=torch.complex64)[:, 1], 1),
        (torch.randn(4, dtype=torch.complex64).conj(), 1),
    ],
)
def test_tensors_pass_as_they_lie(x: Any, copies: int) -> None:
    function = scaled if x.is_complex() else relu
    fast = check(function, x)
    with torch.no_grad():
        assert fast(x).stride() == function(x).stride()
    (graph,) = tw.torch_report().graphs
    assert graph.copies == 2 * copies


def test_a_conjugate_is_no_view_of_what_it_is_of() -> None:
    def function(x: Any) -> Any:
        y = x * 1j
        return y, y.conj(), y[1:]

    x = torch.randn(3, dtype=torch.complex64)
    fast = check(function, x)
    with torch.no_grad():
        y, other, rest = fast(x)
    assert y.data_ptr() == rest.data_ptr() - 8 != other.data_ptr()


def test_complex_weights() -> None:
    weights = torch.nn.Parameter(torch.randn(3, 5, dtype=torch.cfloat))
    module = Product(weights)
    fast = check(module, torch.randn(2, 5, dtype=torch.cfloat), freeze=True)
    with torch.no_grad():
        weights.mul_(2)
        x = torch.randn(2, 5, dtype=torch.cfloat)
        torch.testing.assert_close(fast(x), module(x))
    (graph,) = tw.torch_report().graphs
    assert (graph.frozen, graph.programs) == (1, 2)


def test_a_tensor_without_memory_is_refused() -> None:
    with pytest.raises(tw.BuildError), torch.no_grad():
        compiled(relu)(torch._efficientzerotensor((4,)))


def test_results_are_those_of_a_function() -> None:
    def function(x: Any) -> Any:
        x.add_(1)
        return {"same": x, "view": x.t(), "new": (x * 2, None, 3)}

    mine, theirs = torch.ones(2, 3), torch.ones(2, 3)
    found, wanted = compiled(function)(mine), function(theirs)
    torch.testing.assert_close(mine, theirs)
    assert found["same"] is mine
    assert found["view"].data_ptr() == mine.data_ptr()
    torch.testing.assert_close(found["new"][0], wanted["new"][0])
    assert found["new"][1:] == (None, 3)


def test_what_a_function_asserts_of_data_is_compared_in_each_call() -> None:
    def rows(places: Any, scale: Any) -> Any:
        return torch.nn.functional.one_hot(places, 4) * scale

    places, scale = torch.tensor([[0, 3], [2, 1]]), torch.randn(4)
    fast = check(rows, places, scale)
    with pytest.raises(tw.GuardError) as caught, torch.no_grad():
        fast(places + 1, scale)
    assert "num_classes" in caught.value.first_line
    assert caught.value.data["node"] == "aten._assert_async.msg"
    (graph,) = tw.torch_report().graphs
    assert (graph.ran_on, graph.programs) == ("tilewright", 1)
    flat = check(lambda p: torch.nn.functional.one_hot(p, 4).reshape(-1, 2), places)
    with pytest.raises(tw.GuardError), torch.no_grad():
        flat(places + 1)


def test_bits_of_elements_are_a_view() -> None:
    def function(x: Any) -> Any:
        return (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32), x.view(torch.int32)

    x = torch.randn(3, 4)
    check(function, x)
    assert compiled(function)(x)[1].data_ptr() == x.data_ptr()


def test_linear_algebra_that_fails_is_the_error_of_pytorch() -> None:
    """In the forward pass of training, too."""
    good, bad = torch.eye(2), torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    fast = compiled(lambda x: torch.linalg.cholesky(x) * 2)
    for gradients in (False, True):
        x = good.clone().requires_grad_(gradients)
        with torch.set_grad_enabled(gradients):
            torch.testing.assert_close(fast(x), 2 * good)
            with pytest.raises(torch.linalg.LinAlgError) as caught:
                fast(bad.clone().requires_grad_(gradients))
        assert isinstance(caught.value, tw.GuardError)
        assert caught.value.data["index"] == 2
        torch.testing.assert_close(fast(x), 2 * good)


def test_results_outlive_the_next_call() -> None:
    fast, x = compiled(relu), torch.randn(5)
    first = fast(x)
    kept = first.clone()
    fast(x + 1)
    torch.testing.assert_close(first, kept)


def test_results_share_memory_where_pytorch_has_views() -> None:
    def function(x: Any) -> tuple[Any, ...]:
        y = x + 1
        return y[1:].t(), y, y.view(-1), x * 2

    fast, x = compiled(function), torch.randn(3, 4)
    found, expected = fast(x), function(x)
    for results in (found, expected):
        results[2].mul_(3)
    for result, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(result, wanted)
        assert result.stride() == wanted.stride()


@pytest.mark.parametrize("narrow_weights", [False, True])
@pytest.mark.parametrize("norm", ["layer", "group"])
def test_norms_of_narrow_floats(norm: str, narrow_weights: bool) -> None:
    kind = torch.nn.LayerNorm(6) if norm == "layer" else torch.nn.GroupNorm(2, 6)
    own = kind.to(torch.bfloat16 if narrow_weights else torch.float32)
    check(own, torch.randn(4, 6, dtype=torch.bfloat16), tolerance=1e-2)


def test_one_function_is_built_for_each_module() -> None:
    layers = [torch.nn.Linear(4, 4) for _ in range(2)]

    def function(layer: Any, x: Any) -> Any:
        return layer(x)

    fast, x = compiled(function, freeze=True), torch.randn(2, 4)
    with torch.no_grad():
        for layer in (*layers, *layers):
            torch.testing.assert_close(fast(layer, x), layer(x))
    (graph,) = tw.torch_report().graphs
    assert (graph.programs, graph.calls) == (2, 4)


def test_weights_that_keep_changing_become_inputs() -> None:
    module, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    fast = compiled(module, freeze=True)
    with torch.no_grad():
        for _ in range(7):
            module.bias += 1
            torch.testing.assert_close(fast(x), module(x))
    (graph,) = tw.torch_report().graphs
    assert graph.programs == 5  # the first, three changes, and one with inputs


def test_what_is_not_frozen_is_read_by_every_call() -> None:
    module, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    fast = compiled(module)
    with torch.no_grad():
        for _ in range(3):
            module.weight.data[0, 1] += 1
            torch.testing.assert_close(fast(x), module(x))
    (graph,) = tw.torch_report().graphs
    assert (graph.programs, graph.frozen) == (1, 0)


def test_buffers_that_are_written_are_not_frozen() -> None:
    class Counter(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x * self.count

    module = Counter()
    fast = compiled(module, freeze=True)
    with torch.no_grad():
        assert [float(fast(torch.ones(1))) for _ in range(3)] == [1, 2, 3]
    assert float(module.count) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"treads": 2},
        {"threads": 0},
        {"breaks": "ignore"},
        {"unsupported": True},
        {"database": 3},
        {"tune_seconds": 10},
        {"tolerance": 2.0},
        {"tune_seconds": float("nan"), "database": "x.db"},
        {"freeze": 1},
        {"locked": 3},
        {"locked": "tilewright.lock", "database": "x.db"},
    ],
)
def test_options_that_mean_nothing_are_errors(options: dict[str, Any]) -> None:
    fast = torch.compile(relu, backend="tilewright", options=options)
    with pytest.raises(tw.BuildError) as caught:
        fast(torch.ones(2))
    assert caught.value.data["option"] in options


def exponential(x: Any) -> Any:
    return torch.matrix_exp(x) * 2


def test_what_is_not_supported_is_named_with_its_line() -> None:
    with pytest.raises(tw.UnsupportedError) as caught:
        compiled(exponential)(torch.eye(3))
    ((place, operator, reason, _),) = caught.value.data["reasons"]
    line = exponential.__code__.co_firstlineno + 1
    assert place == f"test_torch_backend.py:{line}"
    assert (operator, reason) == ("aten.linalg_matrix_exp.default", "OPERATOR")
    (graph,) = tw.torch_report().graphs
    assert graph.ran_on == "refused"


def test_torch_runs_what_is_not_supported_where_asked() -> None:
    fast = compiled(exponential, unsupported="eager")
    x = torch.eye(3)
    torch.testing.assert_close(fast(x), exponential(x))
    (graph,) = tw.torch_report().on("torch")
    assert "matrix_exp" in graph.reason
    assert not tw.torch_report().on("tilewright")


def test_tensors_that_graphs_do_not_have_are_refused() -> None:
    with pytest.raises(tw.UnsupportedError):
        compiled(lambda x: x * 2)(torch.ones(2, device="meta"))


@pytest.mark.parametrize("largest", [torch.max, torch.min])
def test_the_largest_of_nothing_is_refused(largest: Callable[..., Any]) -> None:
    with pytest.raises(tw.UnsupportedError):
        compiled(lambda x: largest(x) + 1)(torch.randn(0, 4))
    check(lambda x: x.sum(0) + 1, torch.randn(0, 4))
    check(torch.mm, torch.randn(2, 0), torch.randn(0, 3))


@pytest.mark.parametrize("kind", ["sparse", "quantised"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_dynamo_does_not_capture_is_left_to_python(kind: str) -> None:
    """Dynamo runs it itself, and no backend is asked: the report says why."""
    x = torch.eye(3) - 0.5
    x = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8) if kind[0] == "q" else x.to_sparse()
    found = compiled(torch.relu)(x)
    assert (found.layout, found.dtype) == (x.layout, x.dtype)
    wanted = torch.relu(x)
    plain = torch.dequantize if x.is_quantized else torch.Tensor.to_dense
    assert torch.equal(plain(found), plain(wanted))
    told = tw.torch_report()
    assert not told.graphs
    assert sum(told.skipped.values()) == 1


def test_tensors_of_another_kind_than_before_are_compiled_anew() -> None:
    fast, x = compiled(relu), torch.randn(2, 4, 3, 3)
    with torch.no_grad():
        fast(x)
    y = x.clone().requires_grad_()
    fast(y).sum().backward()
    assert torch.equal(y.grad, 2.0 * (x > 0))
    last = x.to(memory_format=torch.channels_last)
    assert fast(last).is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(tw.UnsupportedError):
        fast(x.to("meta"))
    for other in (x, last, x.double(), x[:, :1].expand(2, 4, 3, 3)):
        torch.testing.assert_close(fast(other), relu(other))


def test_weights_may_need_gradients_after_they_were_constants() -> None:
    module = torch.nn.Linear(4, 3).requires_grad_(False)
    fast, x = check(module, torch.randn(2, 4), freeze=True), torch.randn(2, 4)
    module.requires_grad_(True)
    fast(x).sum().backward()
    torch.testing.assert_close(module.weight.grad, x.sum(0).expand(3, 4))


def test_what_is_written_must_not_overlap() -> None:
    def write(x: Any) -> Any:
        return x.add_(1) * 2

    x = torch.zeros(3, 1)
    with pytest.raises(RuntimeError, match="single memory location"):
        compiled(write)(x.expand(3, 4))
    assert not x.any()


def prints(x: Any) -> Any:
    y = x + 1
    print("seen")
    return y * 2


def prints_first(x: Any) -> Any:
    print("seen")
    return x * 2


def branches(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x - 1


@pytest.mark.parametrize(("function", "after"), [(prints, 2), (prints_first, 1), (branches, 1)])
def test_breaks_are_recorded_with_their_line(function: Callable[..., Any], after: int) -> None:
    fast = compiled(function)
    for x in (torch.ones(2), -torch.ones(2)):
        torch.testing.assert_close(fast(x), function(x))
    (found,) = tw.torch_report().breaks
    line = function.__code__.co_firstlineno + after
    assert found.source == f"test_torch_backend.py:{line}"
    assert found.reason


@pytest.mark.parametrize("function", [prints, prints_first, branches])
def test_breaks_fail_where_asked(function: Callable[..., Any]) -> None:
    with pytest.raises(tw.BuildError) as caught:
        compiled(function, breaks="fail")(torch.ones(2))
    assert caught.value.data["source"].startswith("test_torch_backend.py:")


def test_what_dynamo_leaves_to_python_is_told() -> None:
    x = torch.eye(3).to_sparse()
    assert compiled(lambda x: x * 2)(x).is_sparse
    report = tw.torch_report()
    assert not report.graphs
    assert sum(report.skipped.values()) == 1


def limit_of_sizes(limit: int) -> Any:
    return torch._dynamo.config.patch(recompile_limit=limit)


def shifted(x: Any) -> Any:
    return x.relu() + x.shape[0], x.new_ones(x.shape[0] + 1), x.T


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_captured_graph_with_open_sizes_is_built_for_some_of_them(dynamic: bool | None) -> None:
    fast = torch.compile(shifted, backend="tilewright", dynamic=dynamic, options={"threads": 1})
    with limit_of_sizes(2):
        for rows in (2, 3, 4, 5, 3, 6):
            x = torch.randn(rows, 3)
            found = fast(x)
            for one, expected in zip(found, shifted(x), strict=True):
                torch.testing.assert_close(one, expected)
            assert found[2].data_ptr() == x.data_ptr()
    *first, graph = tw.torch_report().graphs
    assert len(first) == (dynamic is None)
    assert (graph.programs, graph.calls, graph.left) == ((2, 5, 2) if first else (2, 6, 3))
    assert graph.ran_on == "tilewright"


def test_a_size_is_built_while_other_threads_call() -> None:
    fast = torch.compile(shifted, backend="tilewright", dynamic=True, options={"threads": 1})
    known, new = torch.randn(3, 4), torch.randn(5, 4)
    fast(known)
    with ThreadPoolExecutor(1) as thread:
        building = thread.submit(fast, new)
        calls = 0
        while not building.done():
            torch.testing.assert_close(fast(known), shifted(known))
            calls += 1
    assert calls
    torch.testing.assert_close(building.result(), shifted(new))


@pytest.mark.parametrize("dynamic", [True, False])
def test_too_many_sizes_are_an_error_where_breaks_are_to_fail(dynamic: bool) -> None:
    options = {"threads": 1, "breaks": "fail"}
    fast = torch.compile(relu, backend="tilewright", dynamic=dynamic, options=options)
    with limit_of_sizes(3):
        for rows in range(2, 5 if dynamic else 4):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(fast(x), relu(x))
        for rows in (5, 6):
            with pytest.raises((tw.BuildError, torch._dynamo.exc.BackendCompilerFailed)) as caught:
                fast(torch.randn(rows, 3))
            error = getattr(caught.value, "inner_exception", caught.value)
            assert isinstance(error, tw.BuildError)
            assert any(dim.startswith("dim 0 of ") for dim in error.data["dims"])
        x = torch.randn(2, 3)
        torch.testing.assert_close(fast(x), relu(x))


def test_what_dynamo_gives_up_for_its_sizes_is_told() -> None:
    fast = torch.compile(relu, backend="tilewright", dynamic=False, options={"threads": 1})
    with limit_of_sizes(2):
        for rows in (2, 3, 4, 5):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(fast(x), relu(x))
    report = tw.torch_report()
    assert len(report.graphs) == 2
    assert report.skipped == {"Dynamo recompile limit exceeded": 1}


def test_heads_may_share_keys_and_sizes_of_attention_may_vary() -> None:
    def attended(q: Any, k: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)

    fast = compiled(attended)
    for rows in (3, 4):
        q, k = torch.randn(1, 4, rows, 8), torch.randn(1, 2, rows, 8)
        torch.testing.assert_close(fast(q, k), attended(q, k))
    operators = tw.torch_report().operators
    assert operators["aten._scaled_dot_product_flash_attention_for_cpu.default"] == 2


def test_gradients_of_sizes_that_vary() -> None:
    module = mlp().train()
    fast, plain = compiled(module), copy.deepcopy(module)
    for rows in (2, 3, 4):
        x = torch.randn(rows, 8)
        for one in (fast, plain):
            one.zero_grad()
            one(x).square().sum().backward()
        for p, q in zip(module.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    kinds = [(g.kind, g.programs) for g in tw.torch_report().graphs]
    assert kinds == [("forward", 1), ("backward", 1), ("forward", 2), ("backward", 2)]


def test_numbers_of_a_call() -> None:
    fast, x = compiled(lambda x, n: x * n + n), torch.randn(3)
    for n in (2, 3, 2.5, 3.5, 4.5):
        torch.testing.assert_close(fast(x, n), x * n + n)


def test_an_index_out_of_range_is_an_error() -> None:
    fast, table = compiled(lambda w, i: w[i]), torch.randn(4, 2)
    fast(table, torch.tensor([1, -4]))
    with pytest.raises(tw.GuardError):
        fast(table, torch.tensor([1, 9]))


def test_a_label_below_0_is_no_class() -> None:
    loss = compiled(torch.nn.functional.cross_entropy)
    x = torch.randn(3, 4, requires_grad=True)
    loss(x, torch.tensor([3, 0, -100])).backward()
    assert x.grad[2].count_nonzero() == 0
    with pytest.raises(tw.GuardError) as caught:
        loss(x, torch.tensor([3, 0, -1]))
    data = caught.value.data
    assert (data["index"], data["least"], data["greatest"]) == (-1, 0, 3)


def test_threads_compile_and_call_at_once() -> None:
    x = torch.randn(5)
    fast = [compiled(relu), compiled(torch.tanh)]
    wanted = [relu(x), torch.tanh(x)]
    wrong: list[object] = []

    def call(n: int) -> None:
        try:
            for _ in range(20):
                torch.testing.assert_close(fast[n](x), wanted[n])
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=call, args=(n % 2,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


IN_ITS_OWN = """
import os, sys, torch
from torch.utils.data import DataLoader
layer = torch.nn.Linear(4, 3)
fast = torch.compile(layer, backend="tilewright")
x = torch.randn(2, 4)

class Rows:
    def __len__(self):
        return 4
    def __getitem__(self, place):
        with torch.no_grad():
            return fast(x)

with torch.no_grad():
    torch.testing.assert_close(fast(x), layer(x))
    pid = os.fork()
    if not pid:
        os._exit(0 if torch.allclose(fast(x), layer(x)) else 3)
    assert os.waitpid(pid, 0)[1] == 0
    (rows,) = DataLoader(Rows(), batch_size=4, num_workers=2)
    torch.testing.assert_close(rows, layer(x).expand(4, 2, 3))
assert "tilewright" in sys.modules
print("right")
"""


def test_a_fresh_interpreter_finds_the_backend_and_forks(tmp_path: Path) -> None:
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IN_ITS_OWN],
        check=False, capture_output=True, text=True, env=environment, timeout=300,
    )  # fmt: skip
    assert told.stdout == "right\n", told.stderr


WARM = """
import torch, tilewright as tw
torch.manual_seed(0)
layer = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout())
x = torch.randn(2, 4)
for freeze in (False, True):
    fast = torch.compile(layer, backend="tilewright", options={"freeze": freeze, "threads": 1})
    with torch.no_grad(), torch.random.fork_rng():
        y = fast(x)
    with torch.no_grad():
        torch.testing.assert_close(y, layer(x))
fast(x).sum().backward()
print(*(f"{g.kind} {g.kept} of {g.programs}" for g in tw.torch_report().graphs), sep=", ")
"""


def test_a_second_process_starts_warm(tmp_path: Path) -> None:
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path)}
    lines = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", WARM],
            check=True, capture_output=True, text=True, env=environment, timeout=300,
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    kinds = ("inference", "inference", "forward", "backward")
    assert lines == [", ".join(f"{kind} {n} of 1" for kind in kinds) + "\n" for n in range(2)]


def test_a_graph_is_tuned_before_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.autotune import tune

    path, asked = str(tmp_path / "tuning.db"), list[Any]()

    def tuned(graph: Any, target: str, **options: Any) -> None:
        tw.TuningDatabase(options["database"]).close()
        asked.append((len(graph.nodes), target, options["database"], options["seconds"]))

    monkeypatch.setattr(tune, "tune", tuned)
    fast, x = compiled(relu, database=path, tune_seconds=60), torch.randn(3)
    for _ in range(2):
        torch.testing.assert_close(fast(x), relu(x))
    assert asked == [(3, "cpu -threads=1", path, 60)]


def test_a_lock_is_of_the_tolerance_that_graphs_were_built_with() -> None:
    module, image = torch.nn.Conv2d(16, 16, 3), torch.randn(1, 16, 18, 18)
    exact, within = compiled(module), compiled(module, tolerance=1e-3)
    with torch.no_grad():
        torch.testing.assert_close(within(image), module(image), rtol=1e-3, atol=1e-3)
        kernels = tw.torch_report().freeze().kernels
        assert {kernel.inexact for kernel in kernels} == {"winograd"}
        exact(image)
    with pytest.raises(tw.BuildError):
        tw.torch_report().freeze()


@pytest.mark.parametrize("freeze", [False, True])
def test_what_was_built_is_frozen_and_built_again(tmp_path: Path, freeze: bool) -> None:
    module, x, path = mlp(), torch.randn(3, 8), tmp_path / "torch.lock"
    check(module, x, freeze=freeze)
    lock = tw.torch_report().freeze()
    assert [program.name for program in lock.programs] == [tw.torch_report().graphs[0].function]
    assert lock.target.endswith("-threads=1")
    lock.write(path)
    tw.torch_report(clear=True)
    torch._dynamo.reset()
    for locked in (str(path), lock):
        check(module, x, freeze=freeze, locked=locked)
    assert len(tw.torch_report().on("tilewright")) == 2
    with pytest.raises(tw.BuildError):  # these are of a lock already
        tw.torch_report().freeze()
    with pytest.raises(tw.LockError) as error, torch.no_grad():
        compiled(mlp(), freeze=freeze, locked=path)(torch.randn(5, 8))
    changes = error.value.data["changes"]
    assert {change["what"] for change in changes} == {"kernel"}
    assert all(change["locked"] != change["found"] for change in changes)
    (refused,) = tw.torch_report().on("refused")
    assert "does not fit" in refused.reason


def test_a_lock_of_other_threads_says_so() -> None:
    x = torch.randn(3)
    check(relu, x, threads=2)
    lock = tw.torch_report().freeze()
    with pytest.raises(tw.LockError) as error:
        compiled(relu, locked=lock)(x)
    assert [change["what"] for change in error.value.data["changes"]] == ["target"]


def test_only_what_is_alive_and_of_one_target_is_frozen() -> None:
    with pytest.raises(tw.BuildError):
        tw.torch_report().freeze()
    fast = [check(relu, torch.randn(3), threads=threads) for threads in (1, 2)]
    with pytest.raises(tw.BuildError) as error:
        tw.torch_report().freeze()
    assert "-threads=2" in str(error.value)
    del fast
    torch._dynamo.reset()
    gc.collect()
    with pytest.raises(tw.BuildError) as error:
        tw.torch_report().freeze()
    assert "relu" in str(error.value)


def test_reports_are_texts() -> None:
    compiled(prints)(torch.ones(2))
    text = str(tw.torch_report())
    assert text.startswith("2 graphs, 1 graph break, built in ")
    line = prints.__code__.co_firstlineno + 1
    assert f"inference of prints (test_torch_backend.py:{line}): 1 operators" in text
    assert tw.torch_report().operators == {"aten.add.Tensor": 1, "aten.mul.Tensor": 1}
    assert not tw.torch_report(clear=False).on("refused")
    tw.torch_report(clear=True)
    assert not tw.torch_report().graphs


def test_what_checks_for_errors_has_a_token() -> None:
    """PyTorch passes `None` for it, and drops the one that is returned."""

    def both(x: Any) -> Any:
        return torch.linalg.inv(x) + torch.linalg.cholesky(x)

    check(both, torch.tensor([[4.0, 1.0], [1.0, 3.0]]))
