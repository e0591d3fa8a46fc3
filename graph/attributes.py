"""Attributes of nodes: numbers, strings and tuples of them, as the functions of operators annotate.

Those named `axis` and `axes` are dimensions of the first operand, which nodes count from the front,
and `dtype` is one of `dtypes.SCALARS`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from ..base import dtypes
from ..base.errors import ModelError

_BITS = 1023
"""Of an integer that is a float."""


def annotated(source: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's keywords; without an annotation they are numbers."""
    parameters = inspect.signature(source).parameters.values()
    own = {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY}
    told = {name: type for name, type in own.items() if type is not inspect.Parameter.empty}
    # Of the keywords alone: what operands are annotated with may be there for type checkers only.
    found = get_type_hints(SimpleNamespace(__annotations__=told), source.__globals__)
    return {name: found.get(name, float) for name in own}


def frozen(value: Any) -> Any:
    """Lists as tuples, numbers of numpy as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return frozen(value.tolist())
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def is_of(value: Any, type: Any) -> bool:
    """Whether a frozen value is of a type: tuples are sequences, integers floats, bools neither."""
    origin, parts = get_origin(type), get_args(type)
    if origin in (Union, UnionType):
        return any(is_of(value, part) for part in parts)
    if origin is tuple and parts[-1:] != (...,):
        fits = isinstance(value, tuple) and len(value) == len(parts)
        return fits and all(map(is_of, value, parts))
    if origin in (Sequence, list, tuple):
        return isinstance(value, tuple) and all(is_of(item, parts[0]) for item in value)
    if type is float and isinstance(value, int) and value.bit_length() > _BITS:
        return False
    if type in (int, float):
        return isinstance(value, type | int) and not isinstance(value, bool)
    if type in (bool, str, NoneType):
        return isinstance(value, type)
    if isinstance(value, tuple):
        return all(is_of(item, type) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def in_form(operator: str, name: str, value: Any, rank: int) -> Any:
    """The value of an attribute, with the dimensions of `axis` and `axes` counted from the front.

    Raises `ModelError` for those out of range, for some that are there twice, and for a `dtype` of
    another name.
    """
    if name == "dtype" and value is not None and value not in dtypes.SCALARS:
        raise ModelError("{0}: there is no dtype {1!r:.60}", operator, value)
    if name not in ("axis", "axes") or value is None:
        return value
    given = value if isinstance(value, tuple) else (value,)
    if not all(-rank <= axis < rank for axis in given):
        raise ModelError("{0}: {1} is {2} of {3} dimensions", operator, name, value, rank)
    places = tuple(axis % rank for axis in given)
    if len(set(places)) < len(places):
        raise ModelError("{0}: {1} is {2}, one of them twice", operator, name, value)
    return places if isinstance(value, tuple) else places[0]
