"""Exported programs of PyTorch as graphs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import GuardError, ModelError, UnsupportedError
from tilewright.building.build_model import build_graph
from tilewright.codegen.detect import resolve
from tilewright.graph.builder import Builder
from tilewright.graph.ir import Constant, Graph, TensorType

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Module(torch.nn.Module):  # type: ignore[misc]
    """A module of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def exported(module: Any, *args: Any) -> Graph:
    own = module if isinstance(module, torch.nn.Module) else Module(module)
    return tw.import_torch(torch.export.export(own.eval(), args))


def arrays(result: Any) -> list[Any]:
    return [pairs(r) for r in ((result,) if isinstance(result, torch.Tensor) else result)]


def pairs(x: Any) -> Any:
    """An array as graphs have it: the parts of complex numbers are the last dimension."""
    return torch.view_as_real(x.resolve_conj()).numpy() if x.is_complex() else x.numpy()


def check(module: Any, *args: Any, tolerance: float = 1e-6, compiled: bool = True) -> Graph:
    """Compare the graph's reference, and its kernels if `compiled`, with PyTorch."""
    graph = exported(module, *args)
    given = [pairs(a) for a in args]
    with torch.no_grad():
        wanted = arrays(module(*args))
    runs: list[Callable[..., Any]] = [graph.reference]
    if compiled:
        runs.append(build_graph(graph, resolve("cpu -threads=1"), jobs=1))
    for run in runs:
        found = run(*given)
        found = found if isinstance(found, tuple) else (found,)
        for own, other in zip(found, wanted, strict=True):
            assert own.dtype == other.dtype
            assert own.shape == other.shape
            np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance)
    return graph


def mlp() -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )


def test_a_built_module_is_called_with_tensors() -> None:
    module, x = mlp(), torch.randn(3, 8)
    graph = exported(module, x)
    model = tw.build(graph, "cpu -threads=1")
    with torch.no_grad():
        wanted = module(x).numpy()
        exact = module.double()(x.double()).numpy()
    limit = 4 * np.abs(wanted - exact).max() + 1e-7
    for given in (x, x.numpy()):
        assert np.abs(np.asarray(model(given)) - exact).max() <= limit


def test_names_and_places_are_kept() -> None:
    class Layers(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(4, 4)

        def forward(self, left: Any, right: Any) -> Any:
            return {"sum": torch.relu(self.first(left)) + right, "pair": (left, right)}

    graph = exported(Layers(), torch.randn(2, 4), torch.randn(2, 4))
    assert list(graph.inputs) == ["left", "right"]
    assert list(graph.outputs) == ["sum", "pair_0", "pair_1"]
    linear, relu, _ = graph.sources
    line = f"test_torch.py:{Layers.forward.__code__.co_firstlineno + 1}"
    assert (linear.name, linear.operator) == (f"first {line}", "aten.linear.default")
    assert relu.name == line


def test_weights_are_not_copied() -> None:
    linear = torch.nn.Linear(512, 512)
    graph = exported(linear, torch.randn(1, 512))
    (weight, _) = graph.constants
    assert np.shares_memory(weight.data, linear.weight.detach().numpy())
    with torch.no_grad():
        linear.weight.add_(1)
    with pytest.raises(ModelError):
        tw.build(graph, "cpu -threads=1")


@pytest.mark.parametrize(
    "function",
    [lambda x: x * 0.1, lambda x: x / 0.31, lambda x: x * 1e5, lambda x: x // 0.31],
    ids=["factor", "divisor", "large", "floor"],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_that_narrow_floats_do_not_hold(function: Any, dtype: Any) -> None:
    x = torch.linspace(-8, 9, 64).to(dtype)
    graph = exported(function, x)
    (given,) = graph.inputs.values()
    (found,) = graph.reference(x.float().numpy().astype(tw.base.dtypes.to_numpy(given.dtype)))
    np.testing.assert_array_equal(found.astype(np.float32), function(x).float().numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes_of_weights(dtype: str) -> None:
    linear = torch.nn.Linear(4, 3).to(getattr(torch, dtype))
    x = torch.randn(2, 4).to(getattr(torch, dtype))
    graph = exported(linear, x)
    (y,) = graph.outputs.values()
    assert y.dtype == dtype
    own = x.float().numpy().astype(graph.inputs["input"].dtype)
    (found,) = graph.reference(own.astype(tw.base.dtypes.to_numpy(dtype)))
    with torch.no_grad():
        wanted = linear(x).double().numpy()
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0.02, atol=0.02)


def vision() -> Any:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.SiLU(),
        torch.nn.Conv2d(8, 8, 3, padding=1, groups=8),
        torch.nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        torch.nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1),
        torch.nn.GroupNorm(2, 4),
        torch.nn.AdaptiveAvgPool2d((3, 2)),
        torch.nn.InstanceNorm2d(4),
        torch.nn.Upsample(scale_factor=2, mode="bilinear"),
        torch.nn.Flatten(),
    )


def test_a_convolutional_network() -> None:
    module = vision()
    for name, buffer in module.named_buffers():
        if buffer.dtype == torch.float32:
            buffer.uniform_(0.5, 1.5)
            assert "running" in name
    check(module.eval(), torch.randn(2, 3, 20, 18), tolerance=1e-5)


def test_an_encoder() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    graph = check(layer, torch.randn(2, 5, 16), tolerance=1e-5)
    assert sum(node.operator == "softmax" for node in graph.nodes) == 1


def test_attention_with_a_mask_and_a_causal_one() -> None:
    q, k, v = (torch.randn(2, 3, n, 8) for n in (5, 7, 7))
    mask = torch.rand(5, 7) > 0.3
    attend = torch.nn.functional.scaled_dot_product_attention
    check(attend, q, k, v, mask)
    check(lambda *x: attend(*x, is_causal=True), q, k, v)
    check(lambda *x: attend(*x, scale=0.2), q[0], k[0], v[0], torch.randn(3, 1, 7))


def test_an_embedding_and_indices() -> None:
    table, at = torch.randn(10, 6), torch.tensor([[1, 9, 3], [0, 0, 2]])
    check(lambda w, i: torch.nn.functional.embedding(i, w).sum(1), table, at)
    x = torch.randn(4, 5, 6)
    i, j = torch.tensor([[0], [2]]), torch.tensor([1, 4, -1])
    check(lambda x, i, j: (x[i, j], x[:, i, j], x[i, :, j], x[:, j]), x, i, j)
    check(lambda x, i: x.gather(1, i), torch.randn(2, 4), torch.tensor([[3, 0], [1, 1]]))
    check(lambda x, i: x.index_put((i,), torch.ones(6)), torch.randn(3, 6), torch.tensor([2, 0]))


def test_one_place_of_the_flat_elements() -> None:
    check(Module(torch.take), torch.randn(3, 4), torch.tensor(-2), compiled=False)


@pytest.mark.parametrize(("times", "error"), [(1, True), (2, False), (3, True)])
@pytest.mark.parametrize("scatter", [False, True])
def test_a_mask_that_takes_more_or_fewer_values(scatter: bool, times: int, error: bool) -> None:
    """`masked_scatter` leaves what it does not need; nothing writes what is not there."""

    def put(x: Any, mask: Any) -> Any:
        values = torch.tensor([5.0, 6.0])
        return x.masked_scatter(mask, values) if scatter else x.index_put((mask,), values)

    x, two = torch.zeros(4), torch.tensor([False, True, True, False])
    model = tw.build(exported(put, x, two), "cpu -threads=1")
    mask = torch.arange(4) % 4 < times
    if error and not (scatter and times < 2):
        with pytest.raises(GuardError):
            model(x, mask)
    else:
        np.testing.assert_array_equal(model(x, mask), put(x, mask))


@pytest.mark.parametrize("width", [16, 32, 64])
def test_bits_of_elements(width: int) -> None:
    """Of a NaN, too, and as narrower and wider elements."""
    floats, integers = getattr(torch, f"float{width}"), getattr(torch, f"int{width}")
    x = torch.tensor([[0.0, -0.0, 1.5, -2.25], [torch.inf, -torch.inf, torch.nan, 1e-4]])

    def function(x: Any) -> Any:
        bits = x.view(integers)
        narrow = x.view(torch.uint8)
        magnitudes = (bits & torch.iinfo(integers).max).view(floats)
        return bits, magnitudes, narrow, (narrow ^ 1).view(integers), narrow.view(floats)[:, 1:]

    check(function, x.to(floats))
    if width == 16:
        half = torch.bfloat16
        check(lambda x: (x.to(half).view(torch.int16) ^ 3).view(half).float(), x)
    with pytest.raises(UnsupportedError):
        exported(lambda x: x.view(torch.bool), x.view(torch.uint8))


X = torch.tensor([[-2.5, -1.0, -0.0, 0.4], [1.5, 7.0, 30.0, -9.0]])
N = torch.tensor([[-7, 7, 5, -5], [1, 2, -3, 8]])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x + n,
        lambda x, n: torch.sub(n, 3, alpha=2),
        lambda x, n: n / 2,
        lambda x, n: n // 3,
        lambda x, n: torch.div(n, -3, rounding_mode="trunc"),
        lambda x, n: torch.div(x, 0.3, rounding_mode="floor"),
        lambda x, n: n % 4,
        lambda x, n: (x > 0) & (n < 2.5),
        lambda x, n: x**3 + n**2,
        lambda x, n: 2**x,
        lambda x, n: torch.where(x > n, x, 0.5),
        lambda x, n: torch.expm1(x * 1e-3),
        lambda x, n: torch.nn.functional.softplus(x, 2, 10),
        lambda x, n: torch.nn.functional.elu(x, 0.7),
        lambda x, n: torch.nn.functional.celu(x, 0.7),
        lambda x, n: torch.nn.functional.hardswish(x) + torch.nn.functional.relu6(x),
        lambda x, n: torch.nn.functional.hardtanh(x),
        lambda x, n: x.clamp(max=2) + n.clamp(-2, 3),
        lambda x, n: (n.sum(), x.mean(0), n.amax(1, keepdim=True), (n > 0).sum(1), n.prod()),
        lambda x, n: (x.var(1), x.std(), *torch.var_mean(x, 0, correction=0)),
        lambda x, n: (*x.max(1), x.argmin(), x.argmax(0, keepdim=True), *x.topk(2)),
        lambda x, n: (*x.sort(1, descending=True), n.cumsum(0), *x[0, 0].topk(1)),
        lambda x, n: (x.softmax(0), x.log_softmax(-1), x.logsumexp(1)),
        lambda x, n: (x.norm(dim=1), x.norm(1), (x > 0).any(0), (x > 0).all()),
        lambda x, n: torch.cat([x, n], 1)[:, 1:-1:2].flip(0).repeat(2, 1, 1),
        lambda x, n: (x.tril(1), x.triu(), x.T.reshape(2, 4), n.split(3, 1)[1]),
        lambda x, n: torch.nn.functional.pad(x, (1, -1, 0, 2), value=3.0).roll(1, 0),
        lambda x, n: torch.nn.functional.pad(x, (2, 1), mode="reflect"),
        lambda x, n: torch.einsum("ij,kj->ik", x, x),
        lambda x, n: torch.addmm(x[:, :2], x, x.T, beta=0.5, alpha=2),
        lambda x, n: torch.arange(4) + torch.zeros_like(x) + torch.full((2, 1), 2.5),
        lambda x, n: x.masked_fill(n > 2, float("-inf")).softmax(1),
        lambda x, n: x.scatter(1, n.abs() % 4, 9.0),
        lambda x, n: x.to(torch.int64) + n,
    ],
)
def test_operators(function: Callable[..., Any]) -> None:
    check(function, X, N)


def reduced_scatters(x: Any, n: Any) -> Any:
    at = n.abs() % 4
    kinds = ("sum", "prod", "amax", "amin", "mean")
    floats = [
        x.scatter_reduce(1, at, x.flip(1), k, include_self=s) for k in kinds for s in (False, True)
    ]
    return (*floats, n.scatter_reduce(1, at, n.flip(1), "mean", include_self=False))


def scatters_of_bool(x: Any, n: Any) -> Any:
    at, source, kinds = n.abs() % 4, n.flip(1) > 0, ("sum", "prod", "amax", "amin")
    return [
        (x > 0).scatter_reduce(1, at, source, kind, include_self=own)
        for kind in kinds
        for own in (False, True)
    ]


def masked_puts(x: Any, n: Any) -> Any:
    many, rows = torch.arange(5.0), n[:, 1] > 0  # so many are positive
    return (
        x.index_put((n > 0,), many),
        x.index_put((n > 0,), many, accumulate=True),
        x.index_put((rows,), x[:1] + 1),
        x.index_put((rows,), x[0] + 1, accumulate=True),
        x.index_put((n > -9,), torch.ones(1)),
    )


@pytest.mark.parametrize(
    ("rows", "ends"), [(4, [1, 1, 4]), (40, [0, 17, 33]), (300, [13, 300, 300])]
)
def test_rows_of_groups_by_their_matrices(rows: int, ends: list[int]) -> None:
    def product(x: Any, weight: Any, offs: Any) -> Any:
        found = torch._grouped_mm(x.bfloat16(), weight.bfloat16(), offs).float()
        return found.where(torch.arange(rows)[:, None] < ends[-1], 0)  # others are undefined

    x, weight = (torch.randn(shape).sign() for shape in ((rows, 16), (3, 16, 8)))
    offs = torch.tensor(ends, dtype=torch.int32)
    check(product, x, weight, offs, compiled=rows == 40)


@pytest.mark.parametrize(
    ("rows", "ends"), [(2, [1, 1, 2]), (40, [0, 17, 40]), (300, [13, 300, 300])]
)
def test_products_of_groups_of_rows(rows: int, ends: list[int]) -> None:
    def gradients(x: Any, y: Any, weight: Any, offs: Any) -> Any:
        x, y, weight = x.bfloat16(), y.bfloat16(), weight.bfloat16()
        sums = torch._grouped_mm(x.mT, y, offs)
        columns = torch._grouped_mm(weight, x.mT, offs)
        return sums.float(), columns.float(), torch._grouped_mm(weight.mT, weight).float()

    x, y, weight = (torch.randn(s).sign() for s in ((rows, 16), (rows, 8), (3, 8, 16)))
    offs = torch.tensor(ends, dtype=torch.int32)
    check(gradients, x, y, weight, offs, compiled=rows == 40)


def test_gradients_of_groups_as_transformers_calls_them() -> None:
    def gradients(x: Any, weight: Any, offs: Any, gradient: Any) -> Any:
        of_x, of_weight = torch.zeros_like(x), torch.zeros_like(weight)
        bounds = [0, *offs.tolist()]
        for group, (start, end) in enumerate(pairwise(bounds)):
            of_x[start:end] = gradient[start:end] @ weight[group].mT
            of_weight[group] = x[start:end].mT @ gradient[start:end]
        return of_x, of_weight

    name = "grouped_mm_fallback_backward"
    tensors = "Tensor input, Tensor weight, Tensor offs, Tensor grad_output"
    library = torch.library.Library("transformers", "FRAGMENT")
    try:
        library.define(f"{name}({tensors}) -> (Tensor, Tensor)")
        library.impl(name, gradients, "CPU")
        library.impl(name, lambda x, w, *_: (torch.empty_like(x), torch.empty_like(w)), "Meta")
        x, weight, gradient = (torch.randn(s) for s in ((12, 8), (3, 8, 16), (12, 16)))
        offs = torch.tensor([5, 5, 9], dtype=torch.int32)
        operator = getattr(torch.ops.transformers, name)
        check(operator, x, weight, offs, gradient, tolerance=1e-5, compiled=False)
    finally:
        library._destroy()


def test_products_of_groups_see_no_rows_of_others() -> None:
    x, y = torch.ones(6, 16), torch.ones(6, 8)
    x[4:] = y[:2] = torch.inf
    model = build_graph(
        exported(
            lambda x, y, offs: torch._grouped_mm(x.bfloat16().mT, y.bfloat16(), offs).float(),
            x, y, torch.tensor([2, 4, 6], dtype=torch.int32),
        ),
        resolve("cpu -threads=1"), jobs=1,
    )  # fmt: skip
    found = np.asarray(model(x.numpy(), y.numpy(), np.array([2, 4, 6], np.int32)))
    assert (found[1] == 2).all()
    assert np.isinf(found[[0, 2]]).all()


def windows(x: Any, _: Any) -> Any:
    image = x.repeat(5, 2)[None].sin()
    pool = torch.nn.functional
    return (
        *pool.max_pool2d(image, 3, 2, 1, ceil_mode=True, return_indices=True),
        *pool.max_pool1d(image[0], 2, dilation=2, return_indices=True),
        *pool.adaptive_max_pool2d(image, (3, 5), return_indices=True),
        pool.avg_pool2d(image, 3, 2, 1, divisor_override=5),
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: (x.diagonal(), n.diagonal(-1), x.repeat(2, 1, 1).diagonal(1, 2, 0)),
        lambda x, n: (x.diagonal_scatter(torch.ones(2)), n.diagonal_scatter(n[0, :1], -1)),
        lambda x, n: (x.unfold(1, 3, 1), n.unfold(0, 2, 2), x.as_strided((2, 2), (3, 2), 1)),
        lambda x, n: (
            x.T.exp().as_strided((2, 2), (3, 2), 1),
            n[None].mT.neg().as_strided((2,), (3,)),
        ),
        lambda x, n: (torch.remainder(7, n.abs() + 1), torch.bitwise_xor(6, n)),
        lambda x, n: x.slice_scatter(x[:, :2] + 1, 1, 0, 4, 2),
        reduced_scatters,
        scatters_of_bool,
        masked_puts,
        lambda x, n: (
            torch.nn.functional.bilinear(x, x[:, :3], torch.linspace(-1, 1, 60).reshape(5, 4, 3)),
            torch.nn.functional.bilinear(n, n, n.expand(3, 2, 4).repeat(1, 2, 1)),
        ),
        windows,
        lambda x, n: (*x.cummax(1), *n.cummin(0), x.logcumsumexp(1)),
        lambda x, n: (torch.lgamma(x * 0.73), torch.digamma(x * 0.73), torch.erfc(x / 8)),
        lambda x, n: (x.masked_scatter(n > 0, x.flip(0)), *x.median(1), n.median(), x.nanmedian()),
        lambda x, n: (torch.cdist(x, x + 1), torch.cdist(x, x, p=1.0), x.kthvalue(3, 1)[0]),
        lambda x, n: (
            torch.copysign(x, n),
            torch.signbit(x),
            torch.angle(x),
            torch.hypot(x, x + n),
        ),
        lambda x, n: (n << 3, n >> 1, n << n.abs(), torch.fmax(x, x.log()), torch.fmin(x, x.log())),
        lambda x, n: (torch.histc(x, 5, 1, 7), torch.histc(x.log(), 3, -1, 2)),
        lambda x, n: (torch.searchsorted(x.sort(1)[0], x), torch.bucketize(n, n[1].sort()[0])),
        lambda x, n: (torch.addbmm(x[:, :2], x[None], x.T[None]), torch.addmv(x[:, 0], x, x[0])),
        lambda x, n: (*(x > 0).min(1), *(x > 0).max(0), (n > 0).long().argmin(1)),
        lambda x, n: (x[0, 0].gather(0, n[0, 0] * 0), n[0, 0].index_select(0, n[0, :1] * 0)),
        lambda x, n: torch.nn.functional.pad(x[None], (-1, 2, 1, -1), mode="replicate"),
        lambda x, n: (x.round(decimals=1), (x * 99).round(decimals=-2), x.put(n[0] % 8, x[1])),
        lambda x, n: (x.norm(3), x.norm(0, 1), x.norm(float("-inf")), x[:, :1].var(1)),
    ],
)
@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")  # PyTorch's, of one element
def test_operators_that_are_compositions(function: Callable[..., Any]) -> None:
    check(function, X, N, tolerance=2e-6)


def test_a_number_that_the_dtype_does_not_hold_is_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        exported(lambda x: x < 300, torch.tensor([0, 255], dtype=torch.uint8))
    assert [reason[2] for reason in caught.value.data["reasons"]] == ["DTYPE"]


def test_all_that_is_not_supported_is_one_list() -> None:
    def function(x: Any) -> Any:
        return torch.linalg.matrix_exp(x) + torch.rand(3, 3), torch.erfinv(x).relu()

    with pytest.raises(UnsupportedError) as caught:
        exported(function, torch.eye(3))
    reasons = caught.value.data["reasons"]
    assert {(op, reason) for _, op, reason, _ in reasons} == {
        ("aten.linalg_matrix_exp.default", "OPERATOR"),
        ("aten.rand.default", "OPERATOR"),
        ("aten.erfinv.default", "OPERATOR"),
    }


def test_what_a_call_would_write_is_refused() -> None:
    class Counter(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x + self.count

    with pytest.raises(UnsupportedError) as caught:
        exported(Counter(), torch.ones(2))
    assert [r[:3] for r in caught.value.data["reasons"]] == [("count", "output", "TYPE")]


def test_results_that_are_no_tensors_are_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        exported(lambda x: {"y": x + 1, "n": 3, "none": None}, torch.ones(2))
    assert [r[:3] for r in caught.value.data["reasons"]] == [("n", "output", "TYPE")]


def test_a_result_that_is_none_is_left_out() -> None:
    graph = exported(lambda x: (None, x + 1, {"z": None}, x * 2), torch.ones(2))
    assert list(graph.outputs) == ["output_1", "output_3"]


def test_two_results_of_one_name_are_refused() -> None:
    with pytest.raises(ModelError):
        exported(lambda x: {"y": (x + 1,), "y_0": x}, torch.ones(2))


def test_open_dims_are_refused() -> None:
    rows = torch.export.Dim("rows", min=2, max=9)
    program = torch.export.export(mlp(), (torch.randn(3, 8),), dynamic_shapes=({0: rows},))
    with pytest.raises(UnsupportedError) as caught:
        tw.import_torch(program)
    assert [r[:3] for r in caught.value.data["reasons"]] == [("input", "input", "DATA_DEPENDENT")]


def test_cubic_samples_at_a_border_are_refused() -> None:
    sample = torch.nn.functional.grid_sample
    x, grid = torch.randn(1, 2, 5, 5), torch.rand(1, 3, 3, 2) * 2.4 - 1.2
    options = {"padding_mode": "border", "align_corners": False}
    check(lambda *v: sample(*v, mode="bilinear", **options), x, grid)
    check(lambda *v: sample(*v, mode="bicubic", align_corners=True), x, grid, tolerance=1e-5)
    with pytest.raises(UnsupportedError):
        exported(lambda *v: sample(*v, mode="bicubic", **options), x, grid)


def test_what_a_mask_chooses_is_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        exported(lambda x: x[x > 0] + 1, torch.randn(4))
    reasons = {r[1]: r[2] for r in caught.value.data["reasons"]}
    assert reasons["aten.index.Tensor"] == "DATA_DEPENDENT"


def test_defaults_are_those_of_the_schemas() -> None:
    from tilewright.importers.torch import operators  # noqa: F401  # registers all
    from tilewright.importers.torch.table import TABLE

    def plain(default: Any) -> Any:
        """One value for all dimensions, and nothing at all, each in one form."""
        given = list(default) if isinstance(default, list | tuple) else [default]
        return given[0] if given and given == given[:1] * len(given) else None

    compared = 0
    for key, translate in TABLE.items():
        name, overload = key.rsplit(".", 1)
        if "." in name or name == "higher_order":  # of other libraries, and without a schema
            continue
        declared = getattr(getattr(torch.ops.aten, name), overload)._schema.arguments
        own = list(inspect.signature(translate).parameters.values())[2:]
        rest = any(p.kind is p.VAR_POSITIONAL for p in own)
        given = [p for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        wanted = [a for a in declared if not a.kwarg_only]
        assert rest or len(given) >= len(wanted), (key, "does not take all arguments")
        pairs = list(zip(wanted[: len(given)], given[: len(wanted)], strict=True))
        named = {p.name: p for p in own if p.kind is p.KEYWORD_ONLY}
        by_name = {a.name: a for a in declared if a.kwarg_only}
        for word, parameter in named.items():
            if word in by_name:
                pairs.append((by_name[word], parameter))
            else:  # of another overload
                assert parameter.default is not parameter.empty, (key, word)
        for argument, parameter in pairs:
            if argument.has_default_value() and parameter.default is not parameter.empty:
                assert plain(parameter.default) == plain(argument.default_value), (key, argument)
                compared += 1
    assert compared > 150


def test_a_module_is_no_program() -> None:
    with pytest.raises(ModelError):
        tw.import_torch(mlp())


def resized(x: Any, **options: Any) -> Any:
    return torch.nn.functional.interpolate(x, **options)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_nearest_element_is_that_of_pytorch(mode: str, dtype: str) -> None:
    """Of all extents up to 40. Of constants the builder computes the results at once."""
    from tilewright.importers.torch import operators  # noqa: F401  # registers all
    from tilewright.importers.torch.table import TABLE

    translate = TABLE[f"{'_' * (mode != 'nearest')}upsample_{mode.replace('-', '_')}1d.default"]
    for extent in range(1, 41):
        x = torch.arange(extent, dtype=getattr(torch, dtype)).reshape(1, 1, extent)
        for size in range(1, 41):
            builder = Builder("resize")
            own = builder.constant(x.numpy())
            found = translate(builder, TensorType(dtype, (1, 1, size)), own, [size], None)
            assert isinstance(found, Constant)
            np.testing.assert_array_equal(found.data, resized(x, size=size, mode=mode).numpy())


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_nearest_element_by_scales(mode: str) -> None:
    x = torch.arange(31.0).reshape(1, 1, 31)
    scales = [n / 7 for n in range(1, 20, 3)] + [0.1, 0.3, 0.7, 1.1, 1.9, 2.3]
    check(lambda x: tuple(resized(x, scale_factor=s, mode=mode) for s in scales), x, compiled=False)
    images = torch.randn(1, 2, 9, 13)
    check(lambda x: resized(x, scale_factor=(1.3, 0.7), mode=mode), images)
    check(lambda x: resized(x, size=(2, 3, 5), mode=mode), torch.randn(1, 1, 3, 4, 4))


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased_resizing(mode: str, align: bool) -> None:
    options = {"mode": mode, "antialias": True, "align_corners": align}
    for extent in (1, 5, 13, 30):
        x = torch.randn(1, 2, extent, 7)

        def function(x: Any) -> Any:
            sizes = [(size, 4) for size in (1, 2, 5, 13, 29)]
            return tuple(resized(x, size=size, **options) for size in sizes)

        check(function, x, tolerance=1e-5, compiled=extent == 13)
    x = torch.randn(1, 2, 11, 17)
    scales = [(0.37, 0.6), (1.7, 0.9), (2.0, 2.6)]
    check(lambda x: tuple(resized(x, scale_factor=s, **options) for s in scales), x, tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_division_of_all_integers(dtype: str) -> None:
    kind = getattr(torch, dtype)
    limits = torch.iinfo(kind)
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max, *range(-7, 8)]
    values = sorted({v for v in ends if limits.min <= v <= limits.max})
    pairs = [
        (a, b)
        for a in values
        for b in values
        if b and not (dtype in ("int32", "int64") and (a, b) == (limits.min, -1))  # PyTorch traps
    ]
    x, y = (torch.tensor(side, dtype=kind) for side in zip(*pairs, strict=True))

    def function(x: Any, y: Any) -> Any:
        return (
            torch.div(x, y, rounding_mode="floor"),
            torch.div(x, y, rounding_mode="trunc"),
            x // y,
            x // 3,
            torch.remainder(x, y),
            torch.fmod(x, y),
        )

    check(function, x, y, tolerance=0)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_divisors_and_multiples_of_all_integers(dtype: str) -> None:
    kind = getattr(torch, dtype)
    limits = torch.iinfo(kind)
    fibonacci = [1, 2]  # of which neighbours need the most steps
    while fibonacci[-1] + fibonacci[-2] <= limits.max:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    values = [v for v in (limits.min, -12, -1, 0, 1, 18, *fibonacci[-2:]) if v >= limits.min]
    x = torch.tensor(values, dtype=kind)
    y = torch.tensor([v for v in values if v != -1], dtype=kind)  # PyTorch traps at the smallest

    def function(x: Any, y: Any) -> Any:
        return torch.gcd(x[:, None], y), torch.lcm(x[:, None], y), torch.gcd(y, y.new_ones(1) * 6)

    check(function, x, y, tolerance=0, compiled=dtype in ("int64", "uint8"))


def test_logarithms_of_powers_are_exact() -> None:
    for dtype in (torch.float32, torch.float64):
        twos = 2.0 ** torch.arange(-60, 61, dtype=dtype)
        tens = torch.tensor([float(f"1e{n}") for n in range(-30, 31)], dtype=dtype)
        graph = exported(lambda x, y: (torch.log2(x), torch.log10(y)), twos, tens)
        for run in (graph.reference, tw.build(graph, "cpu -threads=1")):
            found = [np.asarray(a) for a in run(twos.numpy(), tens.numpy())]
            np.testing.assert_array_equal(found[0], np.arange(-60, 61))
            np.testing.assert_array_equal(found[1], np.arange(-30, 31))
    x = torch.cat([1 + torch.linspace(-1e-3, 1e-3, 99), torch.linspace(0, 9, 50), -torch.ones(1)])
    check(lambda x: (x.log2(), x.log10(), torch.log1p(x), torch.log1p(x * 1e-6)), x)


def test_angles() -> None:
    ends = [-np.inf, -2.0, -1.0, -0.0, 0.0, 1e-30, 1.0, 3.0, np.inf, np.nan]
    y, x = (torch.tensor(side).float() for side in np.meshgrid(ends, ends))
    check(torch.atan2, y, x)


def test_what_is_no_call_of_an_operator_is_refused() -> None:
    program = torch.export.export(Module(lambda x: torch.relu(x) + 1).eval(), (torch.ones(2),))
    graph = program.graph_module.graph
    relu = next(node for node in graph.nodes if "relu" in str(node.target))
    with graph.inserting_before(relu):
        call = graph.call_method("cos", (relu.args[0],))
    call.meta = dict(relu.meta)
    relu.args = (call,)
    from tilewright.importers.torch.program import translated

    with pytest.raises(UnsupportedError) as caught:
        translated(program, "")
    assert [r[2:] for r in caught.value.data["reasons"]] == [("OPERATOR", "call_method")]


@dataclass
class Pair:
    """What a module of the tests returns; one field may be none."""

    first: Any
    second: Any
    third: Any = None


class Ends(NamedTuple):
    """What a module of the tests returns."""

    low: Any
    high: Any


def test_results_are_named_by_their_fields() -> None:
    torch.export.register_dataclass(Pair)
    graph = exported(lambda x: (Pair(x + 1, x + 2), Ends(x, x + 3)), torch.ones(2))
    assert list(graph.outputs) == [
        *("output_0_first", "output_0_second", "output_1_low", "output_1_high")
    ]


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_exponential_units(alpha: float) -> None:
    elu = torch.ops.aten.elu.default
    check(lambda x: (elu(x, alpha), elu(x, alpha, 2.0), elu(x, alpha, 1.5, 0.3)), X)


def test_vectors_without_elements_are_joined() -> None:
    none, empty = torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)

    def function(none: Any, empty: Any, x: Any) -> Any:
        return torch.cat([none, x]), torch.cat([empty, x]), torch.cat([empty, none])

    check(function, none, empty, torch.ones(2, 3))


def test_elements_are_written_at_indices() -> None:
    x, i, j = torch.randn(4, 5, 6), torch.tensor([[0], [3]]), torch.tensor([1, 4, -1])

    def function(x: Any, i: Any, j: Any) -> Any:
        y, put = torch.zeros_like(x), torch.ops.aten.index_put.default
        return (
            put(y, [i, j], x[i, j]),
            put(y, [None, i, j], x[:, i, j]),
            put(y, [i, None, None], x[i]),
            put(y, [None, j], torch.ones(6), True),
            put(y, [i, None, j], x[i, :, j]),
        )

    check(function, x, i, j)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_resizing_by_scales_that_divide_nothing(mode: str) -> None:
    resize = torch.nn.functional.interpolate

    def function(x: Any) -> Any:
        plain = resize(x, scale_factor=1.7, mode=mode), resize(x, size=(3, 11), mode=mode)
        if mode == "nearest":
            return plain
        return *plain, resize(x, scale_factor=0.6, mode=mode, align_corners=True)

    check(function, torch.randn(1, 2, 5, 7), tolerance=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: torch.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True),
        lambda: torch.nn.LSTM(3, 5, bias=False),
        lambda: torch.nn.GRU(3, 4, 2, bidirectional=True),
        lambda: torch.nn.GRU(3, 4, bias=False, batch_first=True),
        lambda: torch.nn.RNN(3, 4, 2, nonlinearity="relu"),
    ],
)
@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
def test_recurrent_layers_are_operators(layer: Callable[[], Any]) -> None:
    module = layer().eval()

    class Flat(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            y, last = module(x)
            return (y, last) if isinstance(last, torch.Tensor) else (y, *last)

    graph = check(Flat(), torch.randn(5, 2, 3))
    count = sum(node.operator == "recurrence" for node in graph.nodes)
    assert count == module.num_layers * (2 if module.bidirectional else 1)


def test_modes_of_parts() -> None:
    def function(x: Any) -> Any:
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (y @ torch.ones(2, 2)).float()

    check(function, torch.ones(2, 2))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64"])
@pytest.mark.parametrize("exponents", ["int32", "int64"])
def test_powers_of_two_that_no_float_has(dtype: str, exponents: str) -> None:
    """The product has a value where the power alone is infinite, or 0."""
    n = torch.tensor([130, 200, -200, 140, -149, 20, -20], dtype=getattr(torch, exponents))
    x = torch.tensor([1e-40, 0, float("inf"), 2.0**-20, 1.5, 2.0**-10, -3])
    x = torch.arange(7) if dtype == "int64" else x.to(getattr(torch, dtype))
    wanted = torch.ldexp(x, n)
    found = torch.compile(torch.ldexp, backend="tilewright")(x, n)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
