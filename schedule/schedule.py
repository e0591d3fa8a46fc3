"""`Schedule`: programs, the steps applied to them, and the decisions of those steps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial, wraps
from typing import Any, Concatenate, NoReturn, ParamSpec, SupportsIndex, TypeVar, cast

import numpy as np

from ..base.display import html
from ..base.errors import STAGES_HINT, IRError, ScheduleError, VerifyError
from ..base.hints import instead, raise_missing
from ..base.text import count, excerpt
from ..tir.expr_printer import summary
from ..tir.initialised import wraps_around
from ..tir.ir import Buffer, Dim, For, Func, If, Label, Let, Load, Stmt, Var
from ..tir.printer import func_text
from ..tir.program import program_hint, shown
from ..tir.reductions import blocks_that_order_visits
from ..tir.verify import verify
from ..tir.visit import walk
from . import primitives as p
from .buffer_choice import argument_for
from .choose import Decide, Declare, as_decision
from .find import MAKE_BLOCKS, blocks_in, find_named, find_path, loop_path
from .outputs import Outputs
from .primitive import PRIMITIVES, Primitive, find_primitive, misspelt, reserve
from .primitives.query import block_named
from .primitives.statements import loose_statements
from .render import explain
from .require import Space, collecting
from .step_arguments import Argument, SampledLoop
from .trace import Step, Trace, is_note

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Callable[..., Any])
Decision = Sequence[SupportsIndex | None]


def method(
    function: Callable[Concatenate[Func, P], tuple[Func, R]],
) -> Callable[Concatenate[Schedule, P], R]:
    """The method of `Schedule` for a primitive: same parameters, returns the result alone."""
    primitive = PRIMITIVES[function.__name__]

    def call(self: Schedule, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._call(primitive, args, kwargs)  # type: ignore[no-any-return]

    call.__name__ = primitive.name
    call.__qualname__ = f"Schedule.{primitive.name}"
    call.__doc__ = function.__doc__
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = primitive.call_signature.parameters.values()
    call.__signature__ = inspect.Signature([own, *parameters])  # type: ignore[attr-defined]
    return call


def documented(call: C) -> C:
    """`call`, a method of `Schedule`, with the documentation of the primitive of its name.

    Arguments that it does not take are refused as they are by other primitives.
    """
    primitive = PRIMITIVES[call.__name__]

    @wraps(call)
    def checked(self: Schedule, *args: Any, **kwargs: Any) -> Any:
        decision = {"decision"} if primitive.samples else set()
        bound = primitive.bind(args, {k: v for k, v in kwargs.items() if k not in decision})
        return call(self, **bound, **{k: v for k, v in kwargs.items() if k in decision})

    checked.__doc__ = primitive.function.__doc__
    return cast(C, checked)


class Schedule:
    """Applies primitives to a program one after the other, and records them.

    Given several programs by name, it works on the first until `work_on` selects another.

    Handles are the `Var` of a loop and the `Label` of a block; a step that consumes a loop returns
    the new ones. Where a step takes a block, its name stands for `get_block` of it. A step either
    preserves the meaning of the program, or raises `ScheduleError` and leaves the schedule
    unchanged.

    `seed` is for sampling; a `decision` of a step has the integers to take instead, and `None` for
    those to draw. With `symbolic=True` sampled integers are variables of `space`, which
    collects the conditions on them; a search tries the integers of a `decision` first.
    """

    def __init__(
        self, func: Func | Mapping[str, Func], *, seed: int = 0, symbolic: bool = False
    ) -> None:
        funcs = _named(func)
        self.space: Space | None = Space() if symbolic else None
        self._seed = seed
        self._generator: np.random.Generator | None = None
        self._names = tuple(funcs)
        self._history = [tuple(funcs.values())]
        self._steps: list[Step] = []
        self._outputs = Outputs(self._names, self.space)
        self._came_loose = tuple(any(loose_statements(f.body)) for f in funcs.values())

    @property
    def func(self) -> Func:
        """The current program; of several, the one that steps are applied to."""
        return self._history[-1][self._outputs.at]

    @property
    def funcs(self) -> dict[str, Func]:
        """All current programs by name; a single program has its own name."""
        return dict(zip(self._names, self._history[-1], strict=True))

    @property
    def original(self) -> Func:
        """The program at the start of the schedule."""
        return self._history[0][self._outputs.at]

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return Trace(tuple(self._steps))

    @property
    def history(self) -> tuple[tuple[Func, ...], ...]:
        """The programs before each step, and after the last, in the order of `funcs`."""
        return tuple(self._history)

    _repr_html_ = html

    def __str__(self) -> str:
        """The programs, and the steps as runnable Python."""
        programs = "\n\n".join(func_text(func) for func in self._history[-1])
        at = f", working on {self._names[self._outputs.at]!r}" if len(self._names) > 1 else ""
        return f"{programs}\n\n# {count(len(self._steps), 'step')}{at}\n{self.trace}"

    def __repr__(self) -> str:
        """A line or two; `str` has the programs and the steps."""
        facts = [count(len(self._steps), "step")]
        if len(self._names) > 1:
            facts += [f"{len(self._names)} programs", f"at {self._names[self._outputs.at]!r}"]
        if self.space is not None:
            facts.append(count(len(self.space.bounds), "open decision"))
        return summary("Schedule of", self.func, facts)

    def copy(self) -> Schedule:
        """An independent schedule in the same state; handles are valid in both.

        The copy of a symbolic schedule has a space of its own, with the same variables.
        """
        new = Schedule(dict(zip(self._names, self._history[0], strict=True)), seed=self._seed)
        new.space = None if self.space is None else self.space.copy()
        new._history, new._steps = list(self._history), list(self._steps)
        new._outputs = self._outputs.copy(new.space)
        if self._generator is not None:
            new._generator = np.random.default_rng(self._seed)
            new._generator.bit_generator.state = self._generator.bit_generator.state
        return new

    # The primitives; each one that is registered by this package has its line.

    @documented
    def work_on(self, function: str | int) -> None:
        place = self._outputs.encode(function, "work_on")
        if place in self._names:
            place = self._names.index(place)
        step = (("function", place),)
        PRIMITIVES["work_on"].check_types(dict(step))
        self._guard("work_on", step, p.work_on, self.funcs, place)
        self._outputs.at = place
        self._record(Step("work_on", step, note=excerpt(self._names[place])), self.func, [])

    @documented
    def get_block(self, block: str | int | Label) -> Label:
        label = block if isinstance(block, Label) else None
        place = block.name if isinstance(block, Label) else self._outputs.encode(block, "get_block")
        if label is None and isinstance(place, str):
            label = self._block_named("get_block", "block", place)
        if label is not None:
            blocks = [b.label for b in blocks_in(self.original.body)]
            if label not in blocks:
                if label in self._outputs:
                    return label
                raise ScheduleError(
                    "block {0} was made by a step that did not return it; it cannot be referred to",
                    place,
                )
            place = blocks.index(label)
        step = (("block", place),)
        PRIMITIVES["get_block"].check_types(dict(step))
        _, found = self._guard("get_block", step, p.get_block, self.original, place)
        if find_path(self.func.body, found) is None:
            self._guard("get_block", step, p.get_loops, self.func, found)
        self._record(Step("get_block", step, "b", (), excerpt(found.name)), self.func, [found])
        return found

    def get_loop(self, name: str, block: str | Label | None = None) -> Var:
        """Returns the loop of that name, around `block` if that is given.

        The trace has it from `get_block` and `get_loops`, unless a step returned it before. Raises
        `ScheduleError` if there is none, or several.
        """
        around = self.get_block(block) if isinstance(block, str) else block
        step = (("name", name), *((("block", around.name),) if isinstance(around, Label) else ()))
        _, loop = self._guard("get_loop", step, find_named, self.func, name, around)
        if loop.var not in self._outputs and not any(blocks_in(loop)):
            self._guard("get_loop", step, _refuse_bare, self.func, loop.var)
        self.refer(loop.var)
        return loop.var

    def refer(self, handle: Var | Label) -> None:
        """Let steps name a loop or block of the current program, which no step may have returned.

        The trace then has it from `get_block` and `get_loops`. Raises `ScheduleError` for what no
        step returned and these do not find.
        """
        if handle in self._outputs:
            return
        if isinstance(handle, Label):
            self.get_block(handle)
            return
        _, (_, loop) = self._guard("get_loops", (), _with_loop, self.func, handle)
        labels = [b.label for b in blocks_in(loop)]
        if not labels:
            self._guard("get_loops", (), _refuse_bare, self.func, handle)
        known = next((label for label in labels if label in self._outputs), None)
        self.get_loops(self.get_block(labels[0]) if known is None else known)

    get_loops = method(p.get_loops)
    get_producers = method(p.get_producers)
    get_consumers = method(p.get_consumers)

    split = method(p.split)
    fuse = method(p.fuse)
    reorder = method(p.reorder)
    tile = method(p.tile)
    loop_partition = method(p.loop_partition)
    merge = method(p.merge)
    fission = method(p.fission)
    add_unit_loop = method(p.add_unit_loop)
    make_blocks = method(p.make_blocks)
    reorder_block_iter_var = method(p.reorder_block_iter_var)
    transform_block_layout = method(p.transform_block_layout)

    parallel = method(p.parallel)
    vectorize = method(p.vectorize)
    unroll = method(p.unroll)
    serial = method(p.serial)
    bind = method(p.bind)
    annotate = method(p.annotate)
    unannotate = method(p.unannotate)
    set_scope = method(p.set_scope)
    storage_align = method(p.storage_align)
    stream = method(p.stream)
    swizzle = method(p.swizzle)

    cache_read = method(p.cache_read)
    cache_write = method(p.cache_write)
    cache_inplace = method(p.cache_inplace)
    cache_index = method(p.cache_index)
    compute_ahead = method(p.compute_ahead)
    distinguish_reads = method(p.distinguish_reads)
    distinguish_updates = method(p.distinguish_updates)
    read_at = method(p.read_at)
    write_at = method(p.write_at)
    reindex = method(p.reindex)
    reindex_cache_read = method(p.reindex_cache_read)
    reindex_cache_write = method(p.reindex_cache_write)
    pack = method(p.pack)
    transform_layout = method(p.transform_layout)
    prefetch = method(p.prefetch)
    rolling_buffer = method(p.rolling_buffer)
    winograd = method(p.winograd)
    pad_einsum = method(p.pad_einsum)
    decompose_padding = method(p.decompose_padding)

    compute_at = method(p.compute_at)
    reverse_compute_at = method(p.reverse_compute_at)
    pipeline = method(p.pipeline)
    double_buffer = method(p.double_buffer)
    compute_inline = method(p.compute_inline)
    reverse_compute_inline = method(p.reverse_compute_inline)

    decompose_reduction = method(p.decompose_reduction)
    merge_reduction = method(p.merge_reduction)
    select_terms = method(p.select_terms)
    rfactor = method(p.rfactor)
    split_reduction = method(p.split_reduction)
    online_softmax = method(p.online_softmax)
    online_variance = method(p.online_variance)
    locate_extremum = method(p.locate_extremum)
    fuse_reduction_epilogue = method(p.fuse_reduction_epilogue)
    hoist_factor = method(p.hoist_factor)
    expand_reduction = method(p.expand_reduction)

    blockize = method(p.blockize)
    tensorize = method(p.tensorize)

    @documented
    def sample_perfect_tile(
        self,
        loop: Var,
        n: int,
        max_innermost_factor: int = 16,
        *,
        decision: Decision = (),
    ) -> tuple[Dim, ...]:
        args = (loop, n, max_innermost_factor)
        return self._sample("sample_perfect_tile", args, decision)  # type: ignore[no-any-return]

    @documented
    def sample_partitioned_tile(
        self,
        loop: Var,
        n: int,
        partition_pos: int = 0,
        innerpart_factor: int = 1,
        *,
        decision: Decision = (),
    ) -> tuple[Dim, ...]:
        args = (loop, n, partition_pos, innerpart_factor)
        return self._sample("sample_partitioned_tile", args, decision)  # type: ignore[no-any-return]

    @documented
    def sample_tile(
        self, loop: Var, n: int, max_factor: int = 64, *, decision: Decision = ()
    ) -> tuple[Dim, ...]:
        args = (loop, n, max_factor)
        return self._sample("sample_tile", args, decision)  # type: ignore[no-any-return]

    @documented
    def sample_categorical(
        self,
        candidates: Sequence[int],
        probs: Sequence[float] | None = None,
        *,
        decision: Decision = (),
    ) -> Dim:
        args = (candidates,) if probs is None else (candidates, probs)
        return self._sample("sample_categorical", args, decision)  # type: ignore[no-any-return]

    @documented
    def sample_compute_location(self, block: Label, *, decision: Decision = ()) -> Var:
        return self._sample("sample_compute_location", (block,), decision)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        """Primitives that were registered from outside."""
        primitive = PRIMITIVES.get(name)
        if primitive is None:

            def hint(name: str) -> str:
                return instead("Schedule", name) or misspelt(name)

            raise_missing(self, name, hint, "there is no primitive")

        def call(*args: Any, decision: Decision = (), **kwargs: Any) -> Any:
            return self._call(primitive, args, kwargs, decision)

        call.__name__ = name
        call.__doc__ = primitive.function.__doc__
        call.__signature__ = primitive.call_signature  # type: ignore[attr-defined]
        return call

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *PRIMITIVES})

    def replay(self, step: Step) -> Any:
        """Apply a recorded step, its references meaning the outputs of this schedule's steps."""
        result: Any = None
        if step.op == "get_block":
            result = self.get_block(dict(step.arguments)["block"])
        elif step.op == "work_on":
            self.work_on(dict(step.arguments)["function"])
        else:
            result = self._run(find_primitive(step.op), step.arguments, step.decision, step.note)
        found = self._steps[-1].outputs
        if found != step.outputs:
            raise ScheduleError(
                "{0} gives {1} outputs, the trace says {2}",
                step.op,
                len(found),
                len(step.outputs),
            )
        return result

    def _sample(self, name: str, args: tuple[Any, ...], decision: Decision) -> Any:
        return self._call(PRIMITIVES[name], args, {}, decision)

    def _call(
        self,
        primitive: Primitive,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        decision: Decision = (),
    ) -> Any:
        bound = primitive.bind(args, kwargs)
        named = [n for n in primitive.of_blocks if n in bound and _has_text(bound[n])]
        buffers = [n for n in primitive.of_buffers if isinstance(bound.get(n), (str, Buffer))]
        if not named and not buffers:
            return self._apply(primitive, bound, decision)
        steps, outputs = len(self._steps), self._outputs.copy(self.space)
        try:
            for n in named:
                bound[n] = self._blocks_of(primitive.name, n, bound[n])
            for n in buffers if isinstance(bound.get("block"), Label) else ():
                bound[n] = self._argument_for(primitive, n, bound)
            return self._apply(primitive, bound, decision)
        except BaseException:
            del self._steps[steps:], self._history[steps + 1 :]
            self._outputs = outputs
            raise

    def _blocks_of(self, name: str, parameter: str, value: Any) -> Any:
        """An argument in which blocks of the current program stand in place of their names."""
        if isinstance(value, (list, tuple)):
            return [self._blocks_of(name, parameter, v) for v in value]
        if not isinstance(value, str):
            return value
        block = self._block_named(name, parameter, value)
        self.refer(block)
        return block

    def _argument_for(self, primitive: Primitive, parameter: str, bound: dict[str, Any]) -> Any:
        """The argument that stands for a buffer, or the name of one, of the step's block."""
        block, buffer = bound["block"], bound[parameter]
        known = ((parameter, buffer if isinstance(buffer, str) else buffer.name),)
        numbered = primitive.of_buffers[parameter]
        return self._guard(primitive.name, known, argument_for, self.func, block, numbered, buffer)[
            1
        ]

    def _block_named(self, step: str, parameter: str, name: str) -> Label:
        """The block of the current program that a step takes by its name."""
        arguments = ((parameter, name),)
        _, block = self._guard(step, arguments, block_named, self.func, name)
        return block

    def _apply(self, primitive: Primitive, bound: dict[str, Any], decision: Decision) -> Any:
        encoded = tuple([(n, self._outputs.encode(v, primitive.name)) for n, v in bound.items()])
        return self._run(primitive, encoded, as_decision(decision), None)

    def _run(
        self,
        primitive: Primitive,
        encoded: tuple[tuple[str, Argument], ...],
        decision: tuple[int | None, ...],
        note: str | None,
    ) -> Any:
        choose: Decide | Declare | None = None
        if primitive.samples:
            space = self.space
            choose = Decide(decision, self._rng) if space is None else Declare(space, decision)
        func, result = self._guard(
            primitive.name, encoded, self._invoke, primitive, choose, encoded
        )
        if choose is None:
            outputs, kinds = _flatten(result)
        else:
            decision = choose.decision
            outputs = self._outputs.sampled(result if type(result) is tuple else (result,))
            kinds = "".join("l" if type(v) is SampledLoop else "t" for v in outputs)
            result = tuple(outputs) if type(result) is tuple else outputs[0]
        self._record(Step(primitive.name, encoded, kinds, decision, note), func, outputs)
        return result

    def _invoke(
        self,
        primitive: Primitive,
        choose: Decide | Declare | None,
        encoded: tuple[tuple[str, Argument], ...],
    ) -> tuple[Func, Any]:
        primitive.check_types(dict(encoded))
        decoded = {name: self._outputs.decode(value) for name, value in encoded}
        func, result = primitive.call(self.func, choose, decoded)
        if func is not self.func and self._came_loose[self._outputs.at]:
            _require_blocks(func)
        decided = self.space is None or not self.space.bounds
        if func is not self.func and decided and _is_watched(self.original):
            _require_verified(func, primitive.name)
        if choose is not None:
            _ = choose.decision
        return func, result

    def _guard(
        self,
        name: str,
        encoded: tuple[tuple[str, Argument], ...],
        function: Callable[..., tuple[Func, R]],
        *args: Any,
    ) -> tuple[Func, R]:
        """Call `function`; a refusal is explained and leaves no constraint behind."""
        space = self.space
        mark = None if space is None else space.mark()
        try:
            with collecting(space):
                return function(*args)
        except (ScheduleError, IRError, RecursionError) as error:
            if space is not None and mark is not None:
                space.rollback(mark)
            refusal = error
            if isinstance(error, RecursionError):
                refusal = ScheduleError(
                    "{0}: the program {1} is nested too deeply", name, self.func.name,
                    hint=STAGES_HINT,
                )  # fmt: skip
            elif not isinstance(refusal, ScheduleError):
                refusal = ScheduleError("{0}: {1}", name, error)
            explain(
                refusal,
                Step(name, encoded),
                tuple(self._history),
                self._outputs.at,
                tuple(self._steps),
                tuple(self._outputs.values),
            )
            try:
                if refusal is error:
                    raise
                raise refusal from error
            finally:
                del refusal  # else it keeps this frame, and the frame keeps it

    def _record(self, step: Step, func: Func, outputs: list[Any]) -> None:
        at, funcs = self._outputs.at, self._history[-1]
        self._outputs.add(outputs, step.outputs)
        self._steps.append(step)
        self._history.append((*funcs[:at], func, *funcs[at + 1 :]))

    def _rng(self) -> np.random.Generator:
        if self._generator is None:
            self._generator = np.random.default_rng(self._seed)
        return self._generator


reserve({"space", *dir(Schedule)}.difference(PRIMITIVES))


def _named(func: object) -> dict[str, Func]:
    """The programs of a schedule by name."""
    if isinstance(func, Func):
        return {func.name: func}
    found = dict(func) if isinstance(func, Mapping) else {}
    if not found or not all(isinstance(f, Func) and is_note(name) for name, f in found.items()):
        raise ScheduleError(
            "expected a program (Func) or programs by name to schedule, found {0}",
            partial(shown, func),
            hint=partial(program_hint, func, "tw.Schedule"),
        )
    return found


def _has_text(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, (list, tuple)) and any(isinstance(v, str) for v in value)
    )


def _flatten(result: Any) -> tuple[list[Any], str]:
    """The handles in the result of a primitive, and their kinds."""
    if result is None:
        return [], ""
    if type(result) is not tuple:
        return [result], "l" if type(result) is Var else "b"
    parts = [_flatten(part) for part in result]
    return [v for outputs, _ in parts for v in outputs], "".join(kinds for _, kinds in parts)


def _with_loop(func: Func, loop: Var) -> tuple[Func, tuple[object, For]]:
    return func, loop_path(func, loop)


def _refuse_bare(func: Func, loop: Var) -> NoReturn:
    raise ScheduleError(
        "loop {0} of {1} is around no block, and steps are about loops of blocks",
        loop.name,
        func.name,
        at=loop,
        hint=MAKE_BLOCKS,
    )


def _require_blocks(func: Func) -> None:
    """Refuse a step on a program with statements in no block, which steps do not look at."""
    for statement, _ in loose_statements(func.body):
        raise ScheduleError(
            "a statement of {0} is in no block: {1}",
            func.name,
            lambda statement=statement: str(statement).strip(),
            hint=MAKE_BLOCKS,
        )


@lru_cache(128)
def _is_watched(func: Func) -> bool:
    """Whether the verifier can tell of `func` what primitives do not ask.

    What indices that wrap around read, that reduce iterations run in order where it decides among
    equal values, or that elements which data decide about are stored before they are read.
    """
    if not (wraps_around(func) or blocks_that_order_visits(func) or _begins_by_data(func)):
        return False
    try:
        verify(func)
    except VerifyError:
        return False
    return True


def _begins_by_data(func: Func) -> bool:
    """Whether data decide which elements a block stores, or where a reduction begins."""
    first = [b.body if b.init is None else b.init for b in blocks_in(func.body)]
    return any(_has_condition_on_data(stmt) for stmt in first)


def _has_condition_on_data(body: Stmt) -> bool:
    named: set[Any] = set()
    for n in walk(body):  # what is bound comes before what uses it
        told = n.value if type(n) is Let else n.cond if type(n) is If else None
        if told is not None and any(type(e) is Load or e in named for e in walk(told)):
            if type(n) is If:
                return True
            named.add(n.var)
    return False


def _require_verified(func: Func, name: str) -> None:
    """Refuse a step after which the verifier cannot tell what it could of the program before."""
    try:
        verify(func)
    except VerifyError as error:
        if wraps_around(func):
            what = "a program with an index that wraps around int64"
            hint = "keep what the index divides within int64"
        elif blocks_that_order_visits(func):
            what = "the order of a reduction that decides among equal values"
            hint = "rfactor numbers the visits of a reduction, which may then be in any order"
        else:
            what = "that elements are stored before they are read, where data decide that,"
            hint = (
                "store all elements, and let only the value or the update depend on the condition"
            )
        raise ScheduleError(
            "after {0}, {1} is not verified: {2}", name, what, error, hint=hint
        ) from None
