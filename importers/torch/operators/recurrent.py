"""Recurrent layers, whose steps are one operator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ....graph.builder import Builder
from ....graph.compose.basics import parts, row, stacked
from ....graph.compose.recurrent import Cell, recurrent
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import aten

_GATES = {"rnn": (0,), "gru": (1, 0, 2), "lstm": (0, 3, 1, 2)}
"""Where PyTorch's weights have the gates of a cell, in its order."""
_LSTM_GATES = "sigmoid", "tanh", "tanh"
_LSTM = 2
"""The number of LSTM among the modes of oneDNN's layers."""


def _layers(
    b: Builder,
    kind: str,
    activations: Sequence[str],
    x: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Sequence[Value]:
    """The outputs of the last layer, and the last states of all, of each direction."""
    each, ways = 4 if has_biases else 2, 2 if bidirectional else 1
    if len(params) != layers * ways * each:
        raise Unsupported(Reason.ATTRIBUTE, "states are projected")
    if train and dropout:
        raise Unsupported(Reason.ATTRIBUTE, "train=True: call `eval` of the module first")
    value = b.add("transpose", x, axes=(1, 0, 2)) if batch_first else x
    last: list[Sequence[Value]] = []
    for layer in range(layers):
        seen = []
        for way in range(ways):
            at = layer * ways + way
            weights = params[at * each : (at + 1) * each]
            own = [row(b, state, 0, at) for state in states]
            outputs, *ends = _layer(b, kind, activations, value, weights, own, bool(way))
            seen.append(outputs)
            last.append(ends)
        value = b.add("concatenate", *seen, axis=2) if bidirectional else seen[0]
    value = b.add("transpose", value, axes=(1, 0, 2)) if batch_first else value
    return value, *(stacked(b, ends, 0) for ends in zip(*last, strict=True))


def _layer(
    b: Builder,
    kind: str,
    activations: Sequence[str],
    x: Value,
    weights: Sequence[Value],
    states: Sequence[Value],
    reverse: bool,
) -> Sequence[Value]:
    """The outputs of one layer in one direction, and its last states."""
    own = [_ordered(b, kind, w) for w in weights]
    cell = Cell(kind, tuple((a, 0.0, 0.0) for a in activations), reverse, linear=True)
    first, *held = states
    return recurrent(
        b, cell, x, own[0], own[1],
        bias=b.add("concatenate", *own[2:], axis=0) if own[2:] else None,
        states=(first, held[0] if held else None),
    )  # fmt: skip


def _ordered(b: Builder, kind: str, weights: Value) -> Value:
    order = _GATES[kind]
    gates = parts(b, weights, 0, [weights.shape[0] // len(order)] * len(order))
    return b.add("concatenate", *(gates[g] for g in order), axis=0) if len(order) > 1 else weights


@aten("lstm.input")
def lstm(
    b: Builder,
    _out: TensorType,
    x: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    *options: Any,
) -> Sequence[Value]:
    return _layers(b, "lstm", _LSTM_GATES, x, states, params, *options)


@aten("mkldnn_rnn_layer")
def layer_of_inference(
    b: Builder,
    _out: TensorType,
    x: Value,
    weight_x: Value,
    weight_h: Value,
    bias_x: Value,
    bias_h: Value,
    hidden: Value,
    state: Value,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    _size: int,
    _layers: int,
    has_biases: bool,
    *_options: bool,
) -> Sequence[Value]:
    """One layer of an LSTM in one direction; its biases mean nothing if it has none."""
    if mode != _LSTM or batch_sizes:
        raise Unsupported(Reason.ATTRIBUTE, f"mode={mode}, batch_sizes={list(batch_sizes)}")
    weights = (weight_x, weight_h, bias_x, bias_h)[: 4 if has_biases else 2]
    states = [row(b, value, 0, 0) for value in (hidden, state)]
    outputs, *ends = _layer(b, "lstm", _LSTM_GATES, x, weights, states, reverse)
    return outputs, *(stacked(b, [end], 0) for end in ends)


def _of_one_state(
    kind: str,
    activations: Sequence[str],
    b: Builder,
    _out: TensorType,
    x: Value,
    state: Value,
    params: Sequence[Value],
    *options: Any,
) -> Sequence[Value]:
    return _layers(b, kind, activations, x, (state,), params, *options)


aten("gru.input")(partial(_of_one_state, "gru", ("sigmoid", "tanh")))
aten("rnn_tanh.input")(partial(_of_one_state, "rnn", ("tanh",)))
aten("rnn_relu.input")(partial(_of_one_state, "rnn", ("relu",)))
