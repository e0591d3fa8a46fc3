"""The outputs of a model beside those of others: the float64 reference decides who is nearer.

The references are computed from the imported graph. Whether that is what the file means, only
onnxruntime can tell: it has to agree with one of them, up to what its own accuracy explains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..base import dtypes
from ..base.errors import ModelError, ProviderError
from ..target import Target

if TYPE_CHECKING:
    from ..graph.ir import Graph

FACTOR = 2.0
"""How many times the largest error of the others an error may be."""
ROUNDINGS = 64
"""Units in the last place that rounding explains, whatever the others are."""
APPROXIMATION, PEER_FACTOR = 1e-4, 16.0
"""What onnxruntime may differ from a reference, as it approximates functions; and how many times
what numpy differs from the float64 reference, in models that magnify errors."""
UNITS = 4
"""Units of the last place of 1 that it may differ, however small a result is: a sigmoid by
`1 - x` has errors of that size."""


@dataclass(frozen=True)
class Comparison:
    """The largest error of each output, by the names of who computed it.

    Errors of floats are relative to an element and to the typical size of its output; those of
    integers are the share of elements that differ. `wrong` are outputs with too large ones, and
    `differs` those of which onnxruntime computes something else than the references.
    """

    errors: Mapping[str, Mapping[str, float]]
    wrong: Sequence[str]
    differs: Sequence[str]
    times: tuple[float, float] | None
    """Seconds of a call, and of one of onnxruntime, interleaved."""

    def to_json(self) -> dict[str, Any]:
        seconds = (
            None if self.times is None else dict(zip(("own", "peer"), self.times, strict=True))
        )
        errors = {
            who: {n: e if math.isfinite(e) else str(e) for n, e in found.items()}
            for who, found in self.errors.items()
        }
        return {
            "errors": errors,
            "wrong": list(self.wrong),
            "differs": list(self.differs),
            "interleaved_seconds": seconds,
        }

    def table(self) -> tuple[Sequence[str], list[list[str]]]:
        """Columns and rows for `print_table`."""
        names = list(self.errors["tilewright"])
        rows = [[n, *(f"{found[n]:.2g}" for found in self.errors.values())] for n in names]
        return ("~output", *(f">{who}" for who in self.errors)), rows


def compare(
    graph: Graph,
    given: Mapping[str, Any],
    outputs: Sequence[Any],
    peer: Callable[[], Sequence[Any]] | None,
    call: Callable[[], object],
) -> Comparison:
    """Compare outputs with the float64 reference, beside numpy in the model's dtypes and a peer.

    With a peer, both calls are timed, interleaved.
    """
    exact = graph.reference(*given.values(), dtype="float64")
    plain = graph.reference(*given.values())
    results = {"tilewright": outputs, "numpy": plain}
    if peer is not None:
        results["onnxruntime"] = peer()
    errors = {
        who: {n: _error(a, e) for n, a, e in zip(graph.outputs, found, exact, strict=True)}
        for who, found in results.items()
    }
    wrong, differs = list[str](), list[str]()
    narrow = _narrow_rounding(graph)
    for n, (name, value) in enumerate(graph.outputs.items()):
        own, others = errors["tilewright"][name], [errors["numpy"][name]]
        if peer is not None:
            theirs = results["onnxruntime"][n]
            apart = min(_apart(theirs, ours[n], value.dtype) for ours in (exact, plain))
            magnified = _apart(plain[n], exact[n], value.dtype)
            if apart <= max(PEER_FACTOR * magnified, narrow, APPROXIMATION):
                others.append(errors["onnxruntime"][name])
            else:
                differs.append(name)
        if not own <= max(FACTOR * max(others), _rounding(value.dtype)):
            wrong.append(name)
    return Comparison(errors, wrong, differs, None if peer is None else _times(call, peer))


def _error(found: Any, exact: Any) -> float:
    import numpy as np

    from ..runtime.measure.comparison import deviation

    if found.shape != exact.shape:
        return float("inf")
    if not dtypes.is_float(dtypes.from_numpy(exact.dtype)):
        return float((found != exact).mean()) if exact.size else 0.0
    return deviation(found.astype(np.float64), exact, exact).largest


def _apart(found: Any, wanted: Any, dtype: str) -> float:
    """How much an output differs from one of a reference, as `_error` has it.

    Of integers it is the size of the differences, if that is less: they may be rounded values.
    """
    import numpy as np

    error = _error(found, wanted)
    if found.shape != wanted.shape or not wanted.size:
        return error
    a, b = (array.astype(np.float64) for array in (found, wanted))
    if dtypes.is_float(dtype):
        with np.errstate(invalid="ignore"):
            a = np.where(np.abs(a - b) <= UNITS * 2.0 ** -dtypes.info(dtype).mantissa, b, a)
        return _error(a, b)
    return min(error, _error(a, b))


def _narrow_rounding(graph: Graph) -> float:
    """What rounding to values of less than 32 bits explains: to floats, or to quantised ones."""
    bits = list[int]()
    for node in graph.nodes:
        widest = max((dtypes.info(v.dtype).bits for v in node.inputs), default=0)
        for facts in (dtypes.info(v.dtype) for v in node.outputs):
            if facts.kind == "float" and facts.bits <= 16:
                bits.append(facts.mantissa)
            elif facts.kind in ("int", "uint") and facts.bits == 8 < widest:
                bits.append(facts.bits)
    return ROUNDINGS * 2.0 ** -min(bits) if bits else 0.0


def _rounding(dtype: str) -> float:
    return float(ROUNDINGS * 2.0 ** -dtypes.info(dtype).mantissa) if dtypes.is_float(dtype) else 0.0


def session_of(
    model: str | bytes, feeds: Mapping[str, Any], target: Target, outputs: Sequence[str]
) -> Callable[[], Sequence[Any]]:
    """A call of onnxruntime on a model, or its file, with as many threads as the target has.

    Raises `ModelError` where onnxruntime does not take the model or its inputs, and `ProviderError`
    where it is not installed.
    """
    import numpy as np

    from ..runtime.onnx_parts import OnnxruntimeParts

    try:
        session = OnnxruntimeParts().session(model, target)
        inputs = {i.name: _numpy_of(i.type) for i in session.get_inputs()}
        given = {n: np.asarray(a, inputs[n]) for n, a in feeds.items() if n in inputs}
        session.run(list(outputs), given)
    except ProviderError:
        raise
    except Exception as error:  # it has no public base of its errors
        raise ModelError("onnxruntime does not run the model: {0}", error) from error
    return lambda: list(session.run(list(outputs), given))


def _numpy_of(type: str) -> Any:
    """The dtype of `tensor(float)`, as onnxruntime writes types; `None` for what numpy has not."""
    import numpy as np

    name = type.removeprefix("tensor(").removesuffix(")")
    try:
        return np.dtype({"float": "float32", "double": "float64"}.get(name, name))
    except TypeError:
        return None


def _times(call: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float]:
    from ..runtime.timer import time_interleaved, wait_for_threads

    own, other = time_interleaved([call, peer], before_turn=wait_for_threads)
    return own.median, other.median
