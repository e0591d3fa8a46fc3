"""Whether the record of an operator agrees with itself: types, reference, lowering and kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..base import dtypes
from ..base.errors import ModelError
from ..codegen.detect import resolve
from ..graph.builder import Builder
from ..graph.ir import TensorType, Value
from ..graph.operator import Array, find
from ..runtime.measure.comparison import check_outputs
from ..target import Target
from .build_model import build_graph


def check_graph_op(
    operator: str | Callable[..., Any],
    *arrays: Any,
    tolerance: float = 1e-5,
    target: Target | str = "cpu",
    **attributes: Any,
) -> float:
    """The largest error of an operator's kernel on these operands, against its reference.

    `operator` is a name, or the function that `graph_op` has registered. The kernel runs alone, and
    fused with operators of elements before and after it, which its kind has to allow. Errors are
    relative to an element and the typical size of its output. Raises `ModelError` where one is
    above `tolerance`, any integer differs, or types are not those of the lowering or the reference.
    """
    from ..autotune.measure.numeric_check import require_tolerance

    require_tolerance(tolerance, ModelError)
    record = find(str(getattr(operator, "__name__", operator)))
    given = [np.asarray(array) for array in arrays]
    types = [TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in given]
    complete = record.checked(types, dict(attributes))
    declared = record.types(types, complete)
    lowered = declared
    if record.lower is not None:
        lowered = replace(record, infer=None).types(types, complete)
    expected = record.evaluate(given, complete)
    for what, found, wanted in (
        ("lowering is", lowered, declared),
        ("reference has shapes", [a.shape for a in expected], [t.shape for t in declared]),
    ):
        if list(found) != list(wanted):
            raise ModelError(
                "{0}: its {1} {2}, its type {3}",
                record.name, what, ", ".join(map(str, found)), ", ".join(map(str, wanted)),
            )  # fmt: skip
    pairs = zip(expected, declared, strict=True)
    expected = tuple(array.astype(dtypes.to_numpy(type.dtype)) for array, type in pairs)
    b = Builder(record.name)
    inputs = [b.input(f"x{k}", type) for k, type in enumerate(types)]
    alone = b.add_all(record.name, *inputs, **attributes)
    turned = b.add_all(record.name, *(_negative(b, x) for x in inputs), **attributes)
    errors = []
    for how, values, sign in (
        ("alone", alone, 1),
        ("fused with its neighbours", [_negative(b, v) for v in turned], -1),
    ):
        graph = b.graph({f"y{k}": value for k, value in enumerate(values)})
        made: Any = build_graph(graph, resolve(target), jobs=1)(*(_signed(a, sign) for a in given))
        results = [_signed(a, sign) for a in (made if isinstance(made, tuple) else (made,))]
        check = check_outputs(results, expected, list(graph.outputs), tolerance)
        if not check.passed:
            raise ModelError("{0}, {1}: {2}", record.name, how, check.error)
        errors.append(check.max_error)
    return max(errors)


def _negative(b: Builder, value: Value) -> Value:
    """Floats with the other sign; all else as it is."""
    return b.add("negative", value) if dtypes.is_float(value.dtype) else value


def _signed(array: Array, sign: int) -> Array:
    is_float = dtypes.is_float(dtypes.from_numpy(array.dtype))
    return -array if is_float and sign < 0 else array
