"""Random numbers in `torch.compile(..., backend="tilewright")`: those of eager execution."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tilewright as tw

from .torch_compiled import alone, compiled

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

F = torch.nn.functional
ROWS = torch.rand(4, 6, generator=torch.Generator().manual_seed(1))
IMAGE = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with alone():
        yield


def seeded(function: Callable[..., Any], x: Any, *, trains: bool) -> Any:
    """Results after a seed, with gradients by `x`, of two calls, and the generator's state."""
    torch.manual_seed(7)
    found = []
    for _ in range(2):
        given = x.detach().requires_grad_(trains)
        results = function(given)
        if trains:
            (results * torch.linspace(-1, 1, results.numel()).view(results.shape)).sum().backward()
            results = [results.detach(), given.grad]
            x.grad = None
        found.append(results)
    return found, torch.get_rng_state()


def agrees(function: Callable[..., Any], x: Any, *, trains: bool = False, **options: Any) -> None:
    """Compiled, and run by Tilewright alone, a function draws and computes as by PyTorch."""
    found = seeded(compiled(function, **options), x, trains=trains)
    torch.testing.assert_close(found, seeded(function, x, trains=trains))
    assert not tw.torch_report().on("torch")


def drawn() -> list[int]:
    return [graph.drawn for graph in tw.torch_report().graphs]


def test_a_dropout_draws_as_its_argument_lies_in_memory() -> None:
    x = IMAGE.to(memory_format=torch.channels_last)
    agrees(lambda x: F.dropout2d(F.dropout(x, 0.3), 0.5) + F.dropout(x, 1.0), x, trains=True)
    assert drawn() == [2, 0]
    assert not any(graph.copies for graph in tw.torch_report().graphs)


def test_attention_with_dropout() -> None:
    agrees(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.2), IMAGE, trains=True)
    assert drawn() == [1, 0]


def test_equal_draws_are_not_one() -> None:
    def function(x: Any) -> Any:
        noise = torch.randn_like(x) - torch.randn_like(x)
        choices = [F.gumbel_softmax(x, hard=hard) for hard in (True, False)]
        return noise * x + choices[0] - choices[1] * F.alpha_dropout(x, 0.2, True)

    agrees(function, ROWS, trains=True)
    assert drawn() == [5, 0]


def test_recurrent_layers_train_with_the_dropout_between_them() -> None:
    """By data that need no gradient: PyTorch decomposes such an LSTM into kernels of inference."""
    layers = torch.nn.LSTM(5, 3, 2, dropout=0.4)

    def found(call: Any) -> list[Any]:
        torch.manual_seed(7)
        layers.zero_grad()
        y, _ = call(IMAGE[0, :2])
        y.square().sum().backward()
        return [y.detach(), *(p.grad for p in layers.parameters()), torch.get_rng_state()]

    with torch._dynamo.config.patch(allow_rnn=True):
        torch.testing.assert_close(found(compiled(layers)), found(layers))
    assert drawn() == [1, 0]


def test_paths_that_are_dropped() -> None:
    ops = pytest.importorskip("torchvision.ops")
    agrees(lambda x: ops.stochastic_depth(ops.drop_block2d(x, 0.3, 3), 0.3, "row"), IMAGE)
    assert drawn() == [2]


def test_draws_of_shapes_and_numbers() -> None:
    def function(x: Any) -> Any:
        form = torch.empty(3)
        return [
            torch.rand(3), torch.rand_like(x), torch.randn(3, dtype=torch.float64),
            torch.randint(2, 5, (3,)), torch.randint_like(x, 4), torch.randint_like(x, 1, 4),
            torch.randperm(5), torch.normal(1.0, 2.0, (3,)), form.normal_(1, 2),
            form.clone().uniform_(1, 2), form.clone().exponential_(2), form.clone().cauchy_(),
            form.clone().log_normal_(), form.clone().geometric_(0.3), x + 1,
        ]  # fmt: skip

    agrees(function, ROWS)
    assert drawn() == [14]


def test_parts_of_a_tensor_draw_as_they_lie_in_memory() -> None:
    def function(x: Any) -> Any:
        y = x.repeat(5, 4)
        y[:, ::2].normal_(1, 2)
        y[2:7, 1:].t().bernoulli_(0.3)
        y[:, 3].uniform_()
        return y

    agrees(function, ROWS)
    assert drawn() == [3]


def test_bernoulli_of_each_order_and_precision() -> None:
    def function(x: Any) -> Any:
        wide, turned = x.double(), x.t()
        return [
            torch.bernoulli(wide), torch.bernoulli(turned), torch.bernoulli(turned, 0.4),
            turned.clone().bernoulli_(0.4), turned.clone().bernoulli_(wide.t()),
            wide.bernoulli(p=0.6), torch.bernoulli(input=turned, p=0.4),
            torch.empty_like(x, dtype=torch.int64).bernoulli_(x[:, :1]),
        ]  # fmt: skip

    agrees(function, ROWS)
    agrees(lambda x: torch.vmap(F.dropout, randomness="different")(x * 1), ROWS)


def test_gradients_draw_nothing_again() -> None:
    agrees(lambda x: torch.normal(x, 2.0), ROWS, trains=True)
    assert drawn() == [1, 0]


@pytest.mark.parametrize("p", [-0.5, 1.5, torch.nan])
def test_a_probability_is_from_0_to_1(p: float) -> None:
    with pytest.raises(tw.GuardError):
        compiled(torch.bernoulli)(torch.tensor([0.5, p]))


def test_draws_whose_parameters_are_computed() -> None:
    def function(x: Any) -> Any:
        rates = x.exp()
        return [
            torch.normal(x, 2.0), torch.normal(1.0, x), torch.normal(x, rates[0]),
            torch.bernoulli(x), torch.multinomial(rates, 3), torch.multinomial(rates[0], 1, True),
        ]  # fmt: skip

    agrees(function, ROWS)
    with pytest.raises(tw.GuardError):
        compiled(lambda x: torch.multinomial(x - 1, 1))(ROWS)


def test_a_checkpoint_draws_the_same_again() -> None:
    def function(x: Any) -> Any:
        def block(x: Any) -> Any:
            return F.dropout(x.tanh(), 0.5)

        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) * F.dropout(x)

    agrees(function, ROWS, trains=True)
    assert drawn() == [2, 1]


def test_draws_of_open_sizes() -> None:
    fast = torch.compile(F.dropout, backend="tilewright", dynamic=True, options={"threads": 1})
    for rows in (2, 3):
        x = torch.ones(rows, 5)
        assert torch.equal(*(seeded(f, x, trains=False)[0][1] for f in (fast, F.dropout)))
    (graph,) = tw.torch_report().graphs
    assert (graph.programs, graph.drawn) == (2, 1)


def test_draws_that_nothing_reads_count() -> None:
    agrees(lambda x: (F.dropout(x), x + torch.rand(6))[1], ROWS)
    assert drawn() == [2]


def test_what_is_drawn_and_returned_shares_memory_with_its_views() -> None:
    def function(_x: Any) -> Any:
        whole = torch.rand(4)
        return whole.view(2, 2), whole, whole + 1

    view, whole, _ = compiled(function)(ROWS)
    whole.zero_()
    assert not view.any()


def test_a_model_trains_as_by_pytorch() -> None:
    def losses(module: Any, function: Callable[..., Any]) -> Any:
        torch.manual_seed(7)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        found = []
        for _ in range(100):
            optimizer.zero_grad()
            loss = F.mse_loss(function(ROWS), torch.ones(4, 2))
            loss.backward()
            optimizer.step()
            found.append(loss.detach())
        return torch.stack(found)

    nn = torch.nn
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 2))
    other = copy.deepcopy(module)
    torch.testing.assert_close(losses(module, compiled(module)), losses(other, other))
    assert [g.calls for g in tw.torch_report().on("tilewright")] == [100, 100]
    assert "1 random arrays by PyTorch" in str(tw.torch_report())


def test_threads_share_the_generator() -> None:
    fast = compiled(F.dropout)

    def zeros(_: int) -> list[Any]:
        with torch.no_grad():
            return [fast(ROWS) for _ in range(5)]

    zeros(0)  # which compiles
    torch.manual_seed(7)
    with ThreadPoolExecutor(4) as pool:
        found = [y for ys in pool.map(zeros, range(4)) for y in ys]
    state = torch.get_rng_state()
    torch.manual_seed(7)
    wanted = [F.dropout(ROWS) for _ in range(20)]
    assert torch.equal(torch.get_rng_state(), state)
    assert sorted(y.tolist() for y in found) == sorted(y.tolist() for y in wanted)


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (torch.poisson, "aten.poisson.default"),
        (lambda x: torch.multinomial(x, 6, True), "aten.multinomial.default"),
        (lambda x: F.rrelu(x, training=True), "aten.rrelu_with_noise_functional.default"),
        (
            lambda x: torch.cond(x.sum() > 0, lambda x: x + torch.rand(6), torch.sin, (x,)),
            "aten.rand.default",
        ),
    ],
)
def test_draws_that_depend_on_elements_are_refused_by_name(
    function: Callable[..., Any], operator: str
) -> None:
    before = torch.get_rng_state()
    with pytest.raises(tw.UnsupportedError) as caught:
        compiled(lambda x: function(x) * torch.rand(6))(ROWS)
    assert [r[1] for r in caught.value.data["reasons"]] == [operator]
    assert torch.equal(torch.get_rng_state(), before)


def test_what_pytorch_runs_draws_once() -> None:
    found = seeded(compiled(_poisson, unsupported="eager"), ROWS, trains=False)
    torch.testing.assert_close(found, seeded(_poisson, ROWS, trains=False))
    assert [graph.drawn for graph in tw.torch_report().on("torch")] == [1]


def _poisson(x: Any) -> Any:
    return torch.poisson(x) + torch.rand(6)
