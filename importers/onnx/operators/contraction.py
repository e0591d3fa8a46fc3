"""Convolutions that are transposed or causal, and what products of all kinds share."""

from __future__ import annotations

from collections.abc import Sequence

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op


def product(b: Builder, x: Value, y: Value, dtype: str | None = None) -> Value:
    """The product of matrices or, with one dimension, vectors."""
    first, last = x.type.rank == 1, y.type.rank == 1
    x = b.add("reshape", x, shape=(1, *x.shape)) if first else x
    y = b.add("reshape", y, shape=(*y.shape, 1)) if last else y
    z: Value = b.add("matmul", x, y, dtype=dtype)
    if first or last:
        shape = list(z.shape)
        if last:
            del shape[-1]
        if first:
            del shape[-1 if last else -2]
        z = b.add("reshape", z, shape=tuple(shape))
    return z


MAX_STEP = 2**31 - 1


def edges(
    node: OnnxNode,
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after each spatial dimension, by `pads` or `auto_pad`.

    Raises `ModelError` for windows of another rank, and for steps that none takes.
    """
    rank = len(extents)
    for name, steps in (("kernel", kernel), ("strides", strides), ("dilations", dilations)):
        if len(steps) != rank or not all(0 < step <= MAX_STEP for step in steps):
            raise ModelError(
                "expected {0} {1} from 1 to {2}, found {3}", rank, name, MAX_STEP, steps
            )
    auto = node.attribute("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = node.attribute("pads") or (0,) * (2 * rank)
        return tuple(pads[:rank]), tuple(pads[rank:])
    if auto == "VALID":
        return (0,) * rank, (0,) * rank
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(Reason.ATTRIBUTE, f"auto_pad={auto!r}")
    before, after = list[int](), list[int]()
    for e, k, s, d in zip(extents, kernel, strides, dilations, strict=True):
        total = max((-(-e // s) - 1) * s + (k - 1) * d + 1 - e, 0)
        small, large = total // 2, total - total // 2
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return tuple(before), tuple(after)


def along_channels(b: Builder, values: Value, y: Value) -> Value:
    """A value for each channel of (n, c, *extents), or one for all, to broadcast."""
    shape = (values.type.size, *(1,) * (y.type.rank - 2)) if values.type.size > 1 else ()
    value: Value = b.add("reshape", values, shape=shape)
    return value


def convolution(
    b: Builder,
    node: OnnxNode,
    x: Value,
    w: Value,
    dtype: str | None = None,
) -> Value:
    """The convolution with the attributes of `node`."""
    rank = x.type.rank - 2
    strides = node.attribute("strides") or (1,) * rank
    dilations = node.attribute("dilations") or (1,) * rank
    before, after = edges(node, x.shape[2:], w.shape[2:], strides, dilations)
    value: Value = b.add(
        "conv",
        x,
        w,
        strides=strides,
        before=before,
        after=after,
        dilations=dilations,
        groups=node.attribute("group", 1),
        dtype=dtype,
    )
    return value


@onnx_op("ConvTranspose")
def conv_transpose(b: Builder, node: OnnxNode) -> Value:
    x, w, bias = node[0], node[1], node.get(2)
    rank = x.type.rank - 2
    strides = tuple(node.attribute("strides") or (1,) * rank)
    dilations = tuple(node.attribute("dilations") or (1,) * rank)
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    before, sizes = _transposed_edges(node, x.shape[2:], spans, strides)
    groups = node.attribute("group", 1)
    return biased(b, interleaved_conv(b, x, w, strides, dilations, groups, before, sizes), bias)


def interleaved_conv(
    b: Builder,
    x: Value,
    w: Value,
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    before: Sequence[int],
    sizes: Sequence[int],
) -> Value:
    """A transposed convolution: one with stride 1 for each phase of the outputs, interleaved.

    Output y is the sum over taps k of `x[i] * w[k]` where `y + before = i * stride + k`. Those
    of one phase `(y + before) % stride` read each `stride`-th tap: phases are channels.
    """
    rank = x.type.rank - 2
    if any(d > 1 for d in dilations):
        w = _spread(b, w, dilations)
    taps = tuple(-(-k // s) for k, s in zip(w.shape[2:], strides, strict=True))
    # The first input that the first output of a phase reads, and the last one.
    first = [min(p // s, t - 1) for p, s, t in zip(before, strides, taps, strict=True)]
    last = [(p + n - 1) // s for p, n, s in zip(before, sizes, strides, strict=True)]
    y: Value = b.add(
        "conv",
        x,
        _phases(b, w, strides, taps, groups),
        strides=(1,) * rank,
        before=tuple(t - 1 - f for t, f in zip(taps, first, strict=True)),
        after=tuple(max(p - e + 1, 0) for p, e in zip(last, x.shape[2:], strict=True)),
        dilations=(1,) * rank,
        groups=groups,
    )
    starts = tuple(p - f * s for p, f, s in zip(before, first, strides, strict=True))
    if any(s > 1 for s in strides) or (*starts, *sizes) != (*(0,) * rank, *y.shape[2:]):
        y = b.add("interleave", y, factors=strides, starts=starts, shape=sizes)
    return y


@onnx_op("CausalConvWithState")
def causal_conv_with_state(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """A depthwise convolution of what came before and the input; the state is its last elements."""
    x, w, past = node[0], node[1], node.get(3)
    rest = w.shape[2] - 1
    if past is None:
        past = b.add("broadcast_to", b.constant(0, x.dtype), shape=(*x.shape[:2], rest))
    whole = b.add("concatenate", past, x, axis=2) if rest else x
    one: dict[str, Sequence[int]] = dict.fromkeys(("strides", "dilations"), (1,))
    y = b.add("conv", whole, w, before=(0,), after=(0,), groups=x.shape[1], **one)
    y = biased(b, y, node.get(2))
    activation = node.attribute("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise Unsupported(Reason.ATTRIBUTE, f"activation={activation!r}")
    if activation != "none":
        y = b.add("multiply", y, b.add("sigmoid", y))
    shape = (*x.shape[:2], rest)
    start = (0, 0, whole.shape[2] - rest)
    return y, b.add("slice", whole, starts=start, steps=(1, 1, 1), shape=shape)


def _transposed_edges(
    node: OnnxNode, extents: Sequence[int], spans: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many outputs are cut off before each dimension, and how many are left."""
    rank = len(extents)
    extra = node.attribute("output_padding") or (0,) * rank
    whole = [(e - 1) * s + k + o for e, s, k, o in zip(extents, strides, spans, extra, strict=True)]
    auto, wanted = node.attribute("auto_pad", "NOTSET"), node.attribute("output_shape")
    if wanted is None and auto.startswith("SAME"):
        wanted = [e * s for e, s in zip(extents, strides, strict=True)]
    if wanted is None:
        pads = (node.attribute("pads") if auto == "NOTSET" else None) or (0,) * (2 * rank)
        sizes = tuple(n - p - q for n, p, q in zip(whole, pads[:rank], pads[rank:], strict=True))
        return tuple(pads[:rank]), sizes
    sizes = tuple(wanted[-rank:])
    total = [max(n - size, 0) for n, size in zip(whole, sizes, strict=True)]
    return tuple(t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total), sizes


def _spread(b: Builder, w: Value, dilations: Sequence[int]) -> Value:
    """Weights with zeros between them."""
    rank, kernel = len(dilations), w.shape[2:]
    split = [n for k in kernel for n in (k, 1)]
    value = b.add("reshape", w, shape=(*w.shape[:2], *split))
    after = [0, 0, *(n for d in dilations for n in (0, d - 1))]
    value = b.add("pad", value, before=(0,) * len(after), after=tuple(after))
    wide = tuple(k * d for k, d in zip(kernel, dilations, strict=True))
    value = b.add("reshape", value, shape=(*w.shape[:2], *wide))
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    whole = (2 + rank) * (0,), (2 + rank) * (1,)
    result: Value = b.add(
        "slice", value, starts=whole[0], steps=whole[1], shape=(*w.shape[:2], *spans)
    )
    return result


def _phases(
    b: Builder, w: Value, strides: Sequence[int], taps: Sequence[int], groups: int
) -> Value:
    """Weights (c, o / groups, *kernel) as those (o * prod(strides), c / groups, *taps)."""
    rank, (channels, outputs) = len(strides), w.shape[:2]
    after = [t * s - k for t, s, k in zip(taps, strides, w.shape[2:], strict=True)]
    if any(after):
        w = b.add("pad", w, before=(0,) * w.type.rank, after=(0, 0, *after))
    split = [n for t, s in zip(taps, strides, strict=True) for n in (t, s)]
    shape = (groups, channels // groups, outputs, *split)
    w = b.add("reshape", w, shape=shape)
    turned = [t - 1 if n % 2 == 0 else 0 for n, t in enumerate(split)]
    steps = [-1 if n % 2 == 0 else 1 for n in range(2 * rank)]
    w = b.add("slice", w, starts=(0, 0, 0, *turned), steps=(1, 1, 1, *steps), shape=shape)
    phases, places = range(4, 4 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
    w = b.add("transpose", w, axes=(0, 2, *phases, 1, *places))
    count = groups * outputs
    for s in strides:
        count *= s
    value: Value = b.add("reshape", w, shape=(count, channels // groups, *taps))
    return value


def biased(b: Builder, y: Value, bias: Value | None) -> Value:
    if bias is None:
        return y
    value: Value = b.add("add", y, along_channels(b, bias, y))
    return value
