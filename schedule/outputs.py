"""Outputs of a schedule's steps, and the references by which the steps of its trace name them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.errors import ScheduleError
from ..tir.ir import Buffer, Const, Expr, Label, Var
from .index_map import IndexMap, parse_index_map, with_captured
from .require import Space
from .step_arguments import (
    KINDS,
    Argument,
    Derived,
    Lambda,
    Record,
    Ref,
    Sampled,
    SampledLoop,
    all_traced,
    evaluate,
    expr_parts,
)


class Outputs:
    """The loops, blocks and sampled integers that steps returned, in their order.

    `names` are those of the schedule's functions, of which `at` is the one that is worked on. An
    output belongs to the function that its step worked on; sampled integers are of all. The
    decisions of a symbolic schedule are the variables of `space`.
    """

    def __init__(self, names: tuple[str, ...], space: Space | None) -> None:
        self.values: list[Any] = []
        self.at = 0
        self._names, self._space = names, space
        self._homes: list[int] = []  # the position of the function that an output is of
        self._refs: tuple[dict[Any, Ref], ...] = tuple({} for _ in names)

    def copy(self, space: Space | None) -> Outputs:
        """An independent copy for a schedule with that space."""
        new = Outputs(self._names, space)
        new.values, new.at = list(self.values), self.at
        new._homes, new._refs = list(self._homes), tuple(dict(refs) for refs in self._refs)
        return new

    def __contains__(self, handle: Label | Var) -> bool:
        """Whether a step on the current function returned that block or loop."""
        return handle in self._refs[self.at]

    def add(self, values: list[Any], kinds: str) -> None:
        """Add the outputs of a step, of which `kinds` has a letter each."""
        start, refs = len(self.values), self._refs[self.at]
        for k, (value, kind) in enumerate(zip(values, kinds, strict=True)):
            if type(value) is not Sampled and type(value) is not SampledLoop:
                if kind == "l":
                    value.mark_handle()
                refs.setdefault(value, Ref(kind, start + k))
        self.values.extend(values)
        self._homes.extend([self.at] * len(values))

    def sampled(self, values: tuple[Any, ...]) -> list[Any]:
        """The outputs of a sampling step for numbers, loops, or open decisions."""
        start = len(self.values)
        return [self._sampled(value, start + k) for k, value in enumerate(values)]

    def encode(self, value: Any, name: str) -> Argument:
        """An argument of the primitive `name` as a trace holds it.

        Raises `ScheduleError` for handles of another schedule, and values that no trace can hold.
        """
        kind = type(value)
        if kind is int or kind is str or kind is bool or value is None or kind is float:
            return value
        if kind is Sampled:
            if int(self._value(value.source)) != int(value):
                raise ScheduleError(
                    "{0}: the sampled integer {1} is of another schedule", name, int(value)
                )
            return value.source
        if kind is SampledLoop:
            if value.source.index >= len(self.values) or (
                self._value(value.source) is not value.loop
            ):
                raise ScheduleError(
                    "{0}: the sampled loop {1} is of another schedule", name, value.name
                )
            return value.source
        if isinstance(value, (Expr, Label)):
            return self._encode_handle(value, name)
        if kind is list or kind is tuple:
            return tuple([self.encode(v, name) for v in value])
        if kind is dict:
            return Record(tuple((str(k), self.encode(v, name)) for k, v in value.items()))
        if isinstance(value, Buffer):  # a tensor is callable, to refuse it
            raise ScheduleError(
                "{0}: found {1}; expected a block, a loop or a number", name, value.name,
                hint=f"sch.get_block({value.name!r}) is the block that computes {value.name}",
            )  # fmt: skip
        if kind is IndexMap or callable(value):
            return Lambda(self._map_text(value, name))
        if isinstance(value, np.generic):
            return value.item()
        raise ScheduleError(
            "{0}: an argument {1!r} of type {2} cannot be recorded", name, value, kind.__name__
        )

    def _map_text(self, value: Any, name: str) -> str:
        """An index map as text, in which sampled integers go by their references."""
        sampled: dict[Var, Argument] = {}

        def as_variable(captured: Any) -> Any:
            if type(captured) is not Sampled:
                return captured
            var = Var(f"t{len(sampled)}")
            sampled[var] = self.encode(captured, name)
            return var

        if type(value) is IndexMap:
            mapping = value
        else:
            function = with_captured(value, as_variable)
            with all_traced():
                mapping = IndexMap.of(function)
        return mapping.text(
            lambda v: repr(sampled[v] if v in sampled else self._encode_handle(v, name))
        )

    def _encode_handle(self, value: Expr | Label, name: str) -> Argument:
        for refs in (self._refs[self.at], *self._refs):
            ref = refs.get(value)
            if ref is not None:
                return ref
        if type(value) is Const:
            return int(value.value)
        parts = None if isinstance(value, Label) else expr_parts(value)
        if parts is not None:
            symbol, a, b = parts
            return Derived(symbol, (self._encode_handle(a, name), self._encode_handle(b, name)))
        raise ScheduleError(
            "{0}: the handle {1} is not of this schedule",
            name,
            getattr(value, "name", value),
            hint="handles come from steps of the same schedule, such as get_block and get_loops",
        )

    def decode(self, value: Argument) -> Any:
        """The value of an argument in a trace.

        Raises `ScheduleError` for a reference to no output, or to one of another function.
        """
        kind = type(value)
        if kind is Ref or kind is Derived:
            return self._value(value)
        if kind is tuple:
            return tuple([self.decode(v) for v in value])
        if kind is Record:
            return {k: self.decode(v) for k, v in value.items}
        if kind is Lambda:
            sizes = {
                f"t{k}": int(v) if isinstance(v, int) else v
                for k, v in enumerate(self.values)
                if (isinstance(v, (int, Expr)) and not isinstance(v, Var)) or self._is_decision(v)
            }
            return parse_index_map(value.text, sizes)
        return value

    def _is_decision(self, value: Any) -> bool:
        return self._space is not None and type(value) is Var and value in self._space.bounds

    def _value(self, source: Ref | Derived) -> Any:
        """The handle, integer or expression that a reference stands for in this schedule."""
        if isinstance(source, Derived):
            return evaluate(source, self._value)
        if source.index >= len(self.values):
            raise ScheduleError("there is no output {0} of an earlier step", source)
        value = self.values[source.index]
        home = self._homes[source.index]
        if home != self.at and source.kind != "t":
            raise ScheduleError(
                "{0} {1} is of function {2!r}; work_on({2!r}) first",
                KINDS[source.kind],
                value.name,
                self._names[home],
                found=self._names[home],
                expected=self._names[self.at],
            )
        if type(value) is SampledLoop:
            return value.loop
        return int(value) if type(value) is Sampled else value

    def _sampled(self, value: Any, index: int) -> Any:
        if isinstance(value, int):
            return Sampled(value, Ref("t", index))
        if type(value) is Var and not self._is_decision(value):
            return SampledLoop.of(value, Ref("l", index))
        return value
