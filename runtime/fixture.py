"""Fixtures: what the programs of an artifact computed where it was built, to be compared elsewhere.

Inputs are drawn from a seed by a generator of this file, which no version of a library changes. Of
each output there is a digest, and sums of its pieces: other processors and libraries may round
otherwise, so that sums within a tolerance will do for floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import dtypes
from ..base.errors import ArtifactError, OutOfMemoryError
from .evidence import Natural
from .guards import Guard
from .host_memory import HOST_MEMORY
from .memory import Memory
from .module import Module
from .signature import Argument, Signature
from .target_runtime import runtime_for
from .weights_file import Array, digest_of_bytes

if TYPE_CHECKING:
    from .inputs import Arguments
    from .library import Loaded

SEED = 0
MAX_BYTES = 1 << 30
"""Of the arguments of a call: programs with more have no fixture."""
_PIECES = 64
"""Of an output; one of fewer elements has a piece for each."""
_TOLERANCES = {"float64": 1e-8, "float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
_LARGEST = 1e290
"""What is larger counts as infinite: sums of it may be."""
_COARSE = 0.25
"""The tolerance of floats of 8 bits."""


@dataclass(frozen=True)
class FixtureOutput:
    """An output: the SHA-256 of its elements, hex, and of floats what may replace it.

    `sums` and `magnitudes` are of equal pieces of the elements: their sums, and those of absolute
    values. So many elements are `finite`, and others count as 0. Sums may differ by the share
    `tolerance` of the magnitude.
    """

    name: str
    sha256: str
    tolerance: float
    finite: Natural
    sums: tuple[float, ...]
    magnitudes: tuple[float, ...]

    def mismatch(self, array: Array) -> str | None:
        """How an array differs from the output, in words; `None` if it does not."""
        found = _output(self.name, array)
        if found.sha256 == self.sha256:
            return None
        if not self.sums:
            return f"{self.name}: expected sha256 {self.sha256}, found {found.sha256}"
        if (found.finite, len(found.sums)) != (self.finite, len(self.sums)):
            return f"{self.name}: expected {self.finite} finite elements, found {found.finite}"
        errors = [
            abs(a - b) / (size or 1.0)
            for a, b, size in zip(found.sums, self.sums, self.magnitudes, strict=True)
        ]
        worst = max(errors)
        if worst <= self.tolerance:
            return None
        return f"{self.name}: expected an error of at most {self.tolerance:g}, found {worst:.3g}"


@dataclass(frozen=True)
class Fixture:
    """Inputs of a program by their `seed`, floats all `positive` where others give no numbers, and
    the outputs of a call with them."""

    seed: Natural
    positive: bool
    outputs: tuple[FixtureOutput, ...]


def recorded(loaded: Loaded, guards: Sequence[Guard] = ()) -> Fixture:
    """The fixture of a program that runs here.

    Raises what a call raises, and `OutOfMemoryError` for arguments of more than `MAX_BYTES`.
    """
    if isinstance(loaded, Module):
        arguments: Sequence[Argument] = loaded.signature.arguments
    else:
        arguments = (*loaded.inputs.values(), *loaded.outputs.values())
    size = sum(argument.span_bytes for argument in arguments)
    if size > MAX_BYTES:
        raise OutOfMemoryError("its arguments have {0} bytes, more than {1}", size, MAX_BYTES)
    found = Fixture(SEED, False, ())
    for positive in (False, True):
        results = results_of(loaded, guards, SEED, positive=positive)
        outputs = tuple(_output(name, array) for name, array in results.items())
        found = Fixture(SEED, positive, outputs)
        sizes = [array.size for array in results.values()]
        if all(o.finite == n or not o.sums for o, n in zip(outputs, sizes, strict=True)):
            break
    return found


def mismatches(loaded: Loaded, guards: Sequence[Guard], fixture: Fixture) -> list[str]:
    """How a program computes something else than its fixture, in words.

    Raises what a call raises.
    """
    results = results_of(loaded, guards, fixture.seed, positive=fixture.positive)
    if [*results] != [output.name for output in fixture.outputs]:
        return [f"expected outputs of {[o.name for o in fixture.outputs]}, found {[*results]}"]
    found = (output.mismatch(results[output.name]) for output in fixture.outputs)
    return [text for text in found if text is not None]


def try_out(loaded: Loaded) -> None:
    """Compare what a program computes with its fixture, or without one from call to call.

    Raises `ArtifactError` where it is something else, and what a call raises.
    """
    fixture = loaded.fixture or recorded(loaded, loaded.guards)
    wrong = mismatches(loaded, loaded.guards, fixture)
    if wrong:
        raise ArtifactError(
            "{0} computes other values than before: {1}", loaded.report().program,
            "; ".join(wrong), hint="build the artifact anew, on a machine of this kind",
        )  # fmt: skip


def results_of(
    loaded: Loaded, guards: Sequence[Guard], seed: int, *, positive: bool
) -> Mapping[str, Array]:
    """The outputs of a call with the inputs of a seed, by name. Raises what a call raises."""
    if isinstance(loaded, Module):
        return _of_kernel(loaded, seed, positive=positive)
    inputs = tuple(_in_range(n, a, guards) for n, a in enumerate(loaded.inputs.values()))
    given = _arguments(Signature("inputs", inputs), seed, HOST_MEMORY, positive=positive)
    made = loaded(*given.values)
    arrays = (made,) if len(loaded.outputs) == 1 else made
    return dict(zip(loaded.outputs, arrays, strict=True))


def _of_kernel(module: Module, seed: int, *, positive: bool) -> dict[str, Array]:
    """Constants are packed as the kernel takes them. Raises `ArtifactError` for stray writes."""
    signature, memory = module.signature, runtime_for(module.target).memory
    given = _arguments(signature, seed, memory, positive=positive)
    values = [*given.values]
    for n, argument in enumerate(signature.arguments):
        if (packer := argument.packer) is not None:
            plain = replace(packer, arguments=packer.arguments[:1])
            operand = _arguments(plain, seed, memory, positive=positive)
            values[n] = module.pack(argument.name, operand.values[0])
    module(*values)
    module.synchronize()
    if (name := given.stray_write()) is not None:
        raise ArtifactError("{0} writes outside of its argument {1}", signature.name, name)
    written = [argument.name for argument in signature.arguments if argument.written]
    return dict(zip(written, given.outputs, strict=True))


def _arguments(signature: Signature, seed: int, memory: Memory, *, positive: bool) -> Arguments:
    from .inputs import Arguments  # who only loads a module needs none

    return Arguments(signature, seed, memory, positive=positive, draw=SteadyRandom)


def _in_range(number: int, argument: Argument, guards: Sequence[Guard]) -> Argument:
    """An input of a model whose integers are within what all of its guards allow, else 0 or 1.

    As masks, lengths and indices those are valid.
    """
    own = [guard for guard in guards if guard.argument == number and guard.column is None]
    if not own and argument.dtype in ("int8", "uint8"):
        return argument
    if dtypes.is_float(argument.dtype) or argument.dtype == "bool":
        return argument
    low = max(0, *(guard.least for guard in own)) if own else 0
    high = min((guard.greatest for guard in own), default=1)
    return replace(argument, value_range=(low, max(low, min(high, low + (1 << 30))) + 1))


def _output(name: str, array: Array) -> FixtureOutput:
    dtype = dtypes.from_numpy(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    digest = digest_of_bytes(flat.view(np.uint8).data)
    if not dtypes.is_float(dtype):
        return FixtureOutput(name, digest, 0.0, flat.size, (), ())
    values = flat.astype(np.float64)
    finite = np.abs(values) < _LARGEST
    values[~finite] = 0.0
    pieces = np.array_split(values, max(1, min(_PIECES, flat.size)))
    return FixtureOutput(
        name, digest, _TOLERANCES.get(dtype, _COARSE), int(finite.sum()),
        tuple(float(piece.sum()) for piece in pieces),
        tuple(float(np.abs(piece).sum()) for piece in pieces),
    )  # fmt: skip


class SteadyRandom:
    """Random numbers of numpy's names, the same in all versions: SplitMix64 of a counter.

    Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014.
    """

    def __init__(self, seed: Sequence[int]) -> None:
        self._key = np.uint64(0)
        for number in seed:
            (self._key,) = _mixed(np.array([self._key ^ np.uint64(number)], np.uint64))
        self._drawn = 0

    def random(self, count: int, dtype: Any = np.float64) -> Array:
        """Floats from 0 on, below 1, of 24 bits."""
        return ((self._bits(count) >> np.uint64(40)) / np.float64(1 << 24)).astype(dtype)

    def integers(self, low: int, high: int, count: int, dtype: Any = np.int64) -> Array:
        """Integers from `low` on, below `high`."""
        found = self._bits(count) % np.uint64(high - low)
        return (found.view(np.int64) + np.int64(low)).astype(dtype)

    def _bits(self, count: int) -> Array:
        first, self._drawn = self._drawn, self._drawn + count
        return _mixed(np.arange(first, first + count, dtype=np.uint64) + self._key)


def _mixed(numbers: Array) -> Array:
    """The numbers, each with all of its bits mixed; uint64, modulo 2**64."""
    z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = z ^ (z >> np.uint64(31))
    return mixed
