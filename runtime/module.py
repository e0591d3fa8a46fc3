"""`Module`, the callable that a build returns: `mod(a, b, c)`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NoReturn, TypedDict, Unpack

import numpy as np

from ..base.display import html
from ..base.errors import ArgumentError, ArtifactError, checked_call
from ..base.hints import Hinted
from ..base.process import InProcess
from ..base.text import in_lines, short_id
from ..target import Target
from .argument_checks import compact, keyword_error
from .kernel import Kernel, NativeKernel
from .memory import Memory
from .ranges import trusting
from .service import CallCounts, Serviced
from .signature import Signature
from .target_runtime import runtime_for
from .timer import Clock, Timing
from .workspace import Pool, new_workspace, shared_pool

_PLAIN = (np.ndarray, bool, int, float)
OriginKind = Literal["record", "transfer", "model", "default", "schedule"]
GlueFactory = Callable[
    [int, Signature, Callable[..., None], Callable[[int], None], Pool | None],
    Callable[..., None] | None,
]
"""Returns a fast entry, or `None`, for: the kernel's address, its signature, the checked entry for
arguments that do not match exactly, the function to call with a status other than 0, and the
workspaces that the kernel may take if it needs one."""


@dataclass(frozen=True)
class Origin:
    """Where the schedule of a module comes from.

    `record`: a measurement of this program in the database, `record_id`, or a pinned schedule.
    `transfer`: one of other sizes. `model`: the cost model's prediction. `default`: the analytic
    estimate's. `schedule`: the caller's own. `schedule_id` is that of the record's schedule, which
    texts name. `detail` is a sentence for people. `loss` is the expected share of speed lost
    relative to what `detail` compares with, if known.
    """

    kind: OriginKind
    record_id: str | None = None
    detail: str = ""
    loss: float | None = None
    schedule_id: str | None = None

    def __str__(self) -> str:
        schedule = f" of schedule {short_id(self.schedule_id)}" if self.schedule_id else ""
        return f"{self.kind}{schedule}" + (f": {self.detail}" if self.detail else "")

    def __repr__(self) -> str:
        return f"<Origin {self}>"


class CallOptions(TypedDict, total=False):
    """The keywords of a call; arguments are passed by position.

    `stream` is for GPUs alone.
    """

    workspace: Any
    stream: Any


_INSTEAD = (
    'write it once, tw.build_library(func, "kernel.so"), and in each process take '
    'tw.load("kernel.so"); or build it there: programs, schedules and traces can be pickled'
)


class Module(Serviced, InProcess, Hinted, error=ArtifactError, instead=_INSTEAD):
    """A compiled kernel.

    Call it with the arguments of its `signature`, outputs included: arrays in memory of the target
    (for processors numpy arrays, or CPU objects with `__dlpack__`; ml_dtypes arrays for bfloat16
    and float8), numbers for scalars. Nothing is copied: an argument that does not match raises
    `ArgumentError`. Each call checks integer inputs that have a `value_range`, in one pass over
    their memory; no other thread may write them meanwhile. Calls release the GIL and may run
    concurrently in several threads.

    Code for GPUs that was built where there is no device is loaded when a call, or anything else,
    needs one: that raises `TargetError` where there still is none.

    A kernel with large internal buffers computes in a workspace: memory that the process keeps from
    call to call (`runtime.workspace`), or the caller's, which one call at a time may use.

    Copies, deep ones too, are the module itself. It cannot be pickled: `ArtifactError` says what to
    do.

    `entry` is called by a call without options.
    """

    def __init__(
        self,
        signature: Signature,
        functions: Sequence[int | Kernel],
        target: Target,
        *,
        origin: Origin,
        sources: Mapping[str, Callable[[], str]] | None = None,
        glue: GlueFactory | None = None,
        owner: object = None,
        trust_indices: bool = False,
    ) -> None:
        """A module of the functions `signature.symbols`, each a kernel or the address of C code.

        `sources` are texts created on demand. The timer is that of the kind of `target`. Of
        functions at addresses, the memory is that of the kind too, and the code lives as long
        as `owner` is held. `trust_indices`: values of tensors with a `value_range` are not checked.
        """
        self.signature = signature
        runtime = runtime_for(target)
        self._timer = runtime.timer
        self.target = target
        self.origin = origin
        self._sources = dict(sources or {})
        self._packings = {a.name: p for a in signature.arguments if (p := a.packing) is not None}
        checked = trusting(signature) if trust_indices else signature
        native = [function for function in functions if isinstance(function, int)]
        pool = shared_pool(runtime.memory) if native and any(signature.workspaces) else None
        self._kernel, *packers = (
            NativeKernel(own, function, runtime.memory, owner, pool)
            if isinstance(function, int)
            else function
            for own, function in zip((checked, *checked.packers), functions, strict=True)
        )
        names = (packer.arguments[0].name for packer in checked.packers)
        self._packers = dict(zip(names, packers, strict=True))
        self._owner = owner
        self._fast: Callable[..., None] | None = None
        if glue is not None and isinstance(self._kernel, NativeKernel):
            self._fast = glue(self._kernel.address, checked, self._kernel, self._kernel.fail, pool)
        self.entry: Callable[..., None] = self._kernel if self._fast is None else self._fast
        self._counted: Callable[[tuple[Any, ...], dict[str, Any]], None] | None = None

    def __call__(self, *arguments: Any, **options: Unpack[CallOptions]) -> None:
        """Run the kernel; with `workspace=memory` in that memory, see `workspace_bytes`.

        Raises `ArgumentError`, `OutOfMemoryError` where there is no memory for a workspace, and
        `TargetError` where it waits for a device, and there is none.
        """
        # A dictionary of all keywords takes less time than a parameter beside it.
        if not options or not (given := self._given(options)):
            self.entry(*arguments)
        else:
            call = self._with_options if self._counted is None else self._counted
            call(arguments, given)

    def at(self, *addresses: int) -> None:
        """Run the kernel with the arguments at these addresses. Nothing is checked or counted.

        Each argument has to be of its type, and compact. Raises `ArtifactError` for GPUs, and what
        a kernel raises.
        """
        if not isinstance(self._kernel, NativeKernel):
            raise ArtifactError(
                "{0} is for {1}, and is not called with addresses", self.signature.name,
                str(self.target), hint="call it with arrays",
            )  # fmt: skip
        self._kernel.at(*addresses)

    @property
    def resources(self) -> dict[str, dict[str, int | float]]:
        """What kernels of GPUs take, by their symbols; nothing for processors.

        Of a thread: `registers`, `local_bytes` (stack and spilled registers), and if the compiler
        reported it `spill_store_bytes` and `spill_load_bytes`. Of a block: `threads` and
        `shared_bytes`. Of a launch: `blocks`, how many an SM runs at once (`blocks_per_sm`), and
        the share of the SM's warps that these are (`occupancy`). As long as the code is on no
        device, it is what the compiler reports.
        """
        return self._kernel.resources

    @property
    def _memory(self) -> Memory:
        return self._kernel.memory

    @property
    def device(self) -> int | None:
        """The number of the GPU that it runs on; `None` for processors.

        Raises `TargetError` where it waits for a device, and there is none.
        """
        return self._memory.ordinal

    @property
    def workspace_bytes(self) -> int:
        """Bytes of memory that a call computes in, beside its arguments; 0 if it needs none.

        A compact array of at least so many bytes (uint8), at an address that is a multiple of 64,
        may be given to a call: `module(a, b, c, workspace=memory)`. What it holds before and after
        has no meaning. It may overlap with no argument. `workspace` returns one.
        """
        return self.signature.workspace_bytes

    def workspace(self) -> Any:
        """New memory of `workspace_bytes`, uninitialised and aligned, for the calls of one thread.

        Raises `OutOfMemoryError`.
        """
        return new_workspace(self.signature, self._memory)

    def synchronize(self, seconds: float | None = None) -> None:
        """Wait until the calls that have returned are done; those of processors are.

        Raises `DeviceError` where a kernel has failed, and where one still runs after `seconds`.
        """
        self._memory.synchronize(seconds)

    @checked_call(ArgumentError, "mod.time(a, b, c, budget_seconds=0.5)")
    def time(
        self,
        *arguments: Any,
        min_samples: int = 3,
        max_samples: int = 20,
        budget_seconds: float = 0.5,
        min_sample_seconds: float = 1e-3,
        stop_above: float | None = None,
        flush_cache: bool = False,
        clock: Clock = time.perf_counter,
    ) -> Timing:
        """Time calls with these arguments, once no other thread computes; see `time_calls`.

        Outputs are overwritten, `inout` arguments again by every call. With `flush_cache` each
        sample is one call after the caches have been filled with other data.
        """
        run = self._bound(arguments, {})
        self._timer.settle()
        return self._timer.time_calls(
            run,
            min_samples=min_samples,
            max_samples=max_samples,
            budget_seconds=budget_seconds,
            min_sample_seconds=min_sample_seconds,
            stop_above=stop_above,
            before_sample=self._timer.flusher(self.target) if flush_cache else None,
            clock=clock,
        )

    def bind(self, *arguments: Any, **options: Unpack[CallOptions]) -> Callable[[], None]:
        """Check these arguments now; returns the call as a function without parameters.

        Values that have a `value_range` are checked by each call, since they may change. All calls
        compute in the same `workspace`, if that is given: one at a time.
        """
        run = self._bound(arguments, self._given(options))
        return run if self._counts is None else self._counts.counted(run)

    def _with_options(self, arguments: tuple[Any, ...], given: dict[str, Any]) -> None:
        self._kernel.call(arguments, **given)

    def _bound(self, arguments: tuple[Any, ...], given: dict[str, Any]) -> Callable[[], None]:
        checked = self._kernel.bind(arguments, **given)
        if given or self._fast is None or not all(type(a) in _PLAIN for a in arguments):
            return checked
        return partial(self._fast, *arguments)

    @property
    def sources(self) -> tuple[str, ...]:
        """The kinds of texts that `source` has; none of a module that was loaded."""
        return tuple(self._sources)

    @checked_call(ArgumentError, 'mod.source("tir"), or "llvm" or "asm", of GPUs "cuda" or "ptx"')
    def source(self, kind: str) -> str:
        """The text of the code: `kind` is `tir`, `llvm` or `asm`; of GPUs `cuda` or `ptx`."""
        if kind not in [*self._sources]:
            raise ArgumentError(
                "{0}: no source {1!r}; there is {2}",
                self.signature.name,
                kind,
                ", ".join(self._sources) or "none: the module was loaded from an artifact",
            )
        return self._sources[kind]()

    @property
    def layouts(self) -> dict[str, str]:
        """The expected form of packed constant operands, as texts; see `pack`.

        A copy in another layout is described as in `Schedule.pack`: `BAb, b = 48`.
        """
        return {name: packing.layout for name, packing in self._packings.items()}

    def pack(self, name: str, array: Any) -> Any:
        """Pack the constant operand `name` into the form `layouts[name]` that the kernel takes.

        Pack once and pass the result to every call. The array may have any strides unless the
        program declares them. Raises `ArgumentError` if the kernel does not pack that operand or
        the array is wrong, and `OutOfMemoryError`.
        """
        # Compared: what is no name may not have a hash.
        packer = next((p for own, p in self._packers.items() if own == name), None)
        if packer is None:
            raise ArgumentError(
                "{0}: argument {1!r} is not packed; {2}",
                self.signature.name,
                name,
                f"packed are {', '.join(self._packers)}" if self._packers else "no argument is",
                hint="pass the array itself",
            )
        operand, packed = packer.signature.arguments
        given = compact(array, operand, self._memory) if operand.strides is None else array
        result = self._memory.empty(packed)
        packer(given, result)
        return result

    def __getitem__(self, item: object) -> NoReturn:
        """The `mod["main"]` of TVM. Raises `ArgumentError`."""
        raise ArgumentError(
            "a module is one kernel, and has no items; found {0!r:.40}", item,
            hint="mod(*arrays) calls it",
        )  # fmt: skip

    @property
    def _program(self) -> str:
        return self.signature.name

    def _origins(self) -> tuple[OriginKind]:
        return (self.origin.kind,)

    def _count(self, counts: CallCounts) -> None:
        self.entry = counts.counted(self.entry)
        self._counted = counts.counted(self._with_options)

    def _given(self, options: CallOptions) -> dict[str, Any]:
        """The options of a call that are not `None`."""
        known = self._kernel.options
        for keyword in options:
            if keyword not in known:
                raise keyword_error(self.signature, keyword, known)
        return {keyword: value for keyword, value in options.items() if value is not None}

    _repr_html_ = html

    def __repr__(self) -> str:
        built = f"for {self.target}, from {self.origin}>"
        return in_lines(["<Module", *self.signature.text, *built.split()])
