"""The memory in which kernels of one kind of target find arrays.

`HostMemory` (`host_memory.py`) is that of processors. Everything that allocates, checks, fills or
reads arguments asks the memory of the target's kind, and need not know what its arrays are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..base import dtypes
from ..base.errors import OutOfMemoryError
from .signature import Argument, compact_strides

OneBinder = Callable[[Any, list[Any]], Any]
"""Converts one argument to the value for the kernel; adds the owner of its memory to the list."""
AllBinder = Callable[[Sequence[Any], list[Any]], list[Any]]
"""Converts all arguments, as many as there are."""


class View(NamedTuple):
    """An array in memory: `strides` in bytes, or `None` for compact row-major.

    The memory is valid as long as `owner` is held. `dtype` is the name of a dtype, or a description
    of one that is not supported. With `copied` it is not the memory of the array that was passed.
    """

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    read_only: bool
    owner: object
    copied: bool = False

    @property
    def unwritable(self) -> str | None:
        """Why results must not be written to it, for `expected memory to write to, found ...`."""
        if self.copied:
            return "a copy that was made to export the array: what is written to it is lost"
        return "a read-only array" if self.read_only else None

    @property
    def byte_strides(self) -> tuple[int, ...]:
        """The strides in bytes, compact ones spelled out."""
        if self.strides is not None:
            return self.strides
        itemsize = dtypes.nbytes(self.dtype)
        return tuple([itemsize * n for n in compact_strides(self.shape)])

    @property
    def is_compact(self) -> bool:
        """Whether its elements follow each other in row-major order."""
        if self.strides is None or 0 in self.shape:
            return True
        compact = self._replace(strides=None).byte_strides
        steps = zip(self.shape, self.strides, compact, strict=True)
        return all(n == 1 or step == wanted for n, step, wanted in steps)


@contextmanager
def memory_for(text: str, *arguments: Any, hint: str = "free some memory") -> Iterator[None]:
    """Raise `OutOfMemoryError` with this text where memory is missing inside."""
    try:
        yield
    except OutOfMemoryError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(text, *arguments, hint=hint) from error


class Memory(ABC):
    """The arrays that kernels of a kind of target take, and their elements on the host.

    `library` is the one whose functions errors name, unless `library_of` says another: numpy, or
    one with functions of these names.
    """

    library: ClassVar[str]
    usual_offset: ClassVar[int] = 16
    """Bytes from a multiple of 4096 to where an array of a caller begins, typically: numpy's are
    aligned to 16 bytes, not to a line of the cache."""

    def library_of(self, value: object) -> ArrayLibrary:
        """The library whose functions errors name for an array."""
        del value
        return ArrayLibrary(self.library)

    @property
    def ordinal(self) -> int | None:
        """The number of the device that has it; `None` for the host."""
        return None

    @abstractmethod
    def view(self, value: Any, name: str) -> View:
        """The memory of an array that kernels can use.

        Raises `ArgumentError`, of the argument `name`, for any other object, such as an array in
        other memory.
        """

    def lent(self, value: Any, name: str, owners: list[Any]) -> View:
        """The `view` of an argument of a call, whose arguments so far have these owners."""
        del owners
        return self.view(value, name)

    @abstractmethod
    def array(self, view: View) -> Any:
        """The array of a view, which a call takes. It holds the owner."""

    @abstractmethod
    def allocate(self, size: int) -> Any:
        """A new array of `size` bytes (uint8), uninitialised, with the alignment of workspaces.

        Its `len` is `size`. Raises `MemoryError`.
        """

    @abstractmethod
    def read(self, view: View) -> np.ndarray[Any, Any]:
        """The elements on the host, once earlier calls are done: the memory itself, or a copy.

        Raises `MemoryError`.
        """

    @abstractmethod
    def write(self, view: View, values: Any) -> None:
        """Write numbers of the host, an array or one number, broadcast to the shape of the view."""

    # Of compact arrays, for who has waited by `synchronize` for all calls that use them.

    def copy_in(self, destination: View, source: np.ndarray[Any, Any]) -> None:
        """Copy an array of the host to one of its type here; done when it returns."""
        self.write(destination, source)

    def copy_out(self, destination: np.ndarray[Any, Any], source: View) -> None:
        """Copy to an array of its type on the host; done when it returns."""
        destination[...] = self.read(source)

    def copy(self, destination: View, source: View) -> None:
        """Copy between two arrays here, after all calls that have returned, before later ones."""
        self.write(destination, self.read(source))

    @abstractmethod
    def synchronize(self, seconds: float | None = None) -> None:
        """Wait until the calls that have returned are done.

        Raises `DeviceError` where that takes more than `seconds`.
        """

    def free_bytes(self) -> int | None:
        """The bytes that are free on a device; `None` for the host, where processes are limited."""
        return None

    def empty(self, argument: Argument) -> Any:
        """A new compact array for an argument, uninitialised. Raises `OutOfMemoryError`."""
        size = argument.size * argument.itemsize
        with memory_for("argument {0}: no memory for an array of {1} bytes", argument.name, size):
            whole = self.view(self.allocate(size), argument.name)
        return self.array(whole._replace(dtype=argument.dtype, shape=argument.shape, strides=None))

    def binder(self, argument: Argument, checked: OneBinder) -> OneBinder:
        """The binder of a tensor.

        `checked` takes any object, by its `view`. A kind may put a faster way before it, for the
        usual ones.
        """
        del argument
        return checked

    def all_binder(self, arguments: Sequence[Argument], binders: Sequence[OneBinder]) -> AllBinder:
        """The binder of all arguments, each of which has one of these."""
        del arguments
        return lambda values, owners: [
            bind(value, owners) for bind, value in zip(binders, values, strict=True)
        ]

    def alignment(self, argument: Argument) -> int:
        """The power of two, in bytes, that the address of a tensor has to be a multiple of."""
        return argument.itemsize

    def address_reader(self) -> Callable[[Any], int]:
        """Returns a function from an array of `allocate` to its address."""
        return lambda array: self.view(array, "workspace").pointer


# Libraries of arrays, as errors name what to call in them.


@dataclass(frozen=True)
class ArrayLibrary:
    """numpy, or a library with functions of its names. All methods return text."""

    name: str

    def dtype(self, dtype: str) -> str:
        if dtype == "bool":
            return "bool"
        return f"{'ml_dtypes' if dtype in dtypes.ML_DTYPES else self.name}.{dtype}"

    def empty(self, argument: Argument) -> str:
        """A new array for an argument."""
        return f"{self.name}.empty({argument.shape}, {self.dtype(argument.dtype)})"

    def converted(self, array: str, dtype: str) -> str:
        return f"{array}.astype({self.dtype(dtype)})"

    def compact(self, array: str) -> str:
        return f"{self.name}.ascontiguousarray({array})"

    def transposed(self, array: str) -> str:
        return f"{self.name}.ascontiguousarray({array}.T)"

    def copied(self, array: str) -> str:
        return f"{array}.copy()"


class Torch(ArrayLibrary):
    """torch, for arrays on CUDA devices."""

    def dtype(self, dtype: str) -> str:
        return f"torch.{dtype}"

    def empty(self, argument: Argument) -> str:
        dtype = self.dtype(argument.dtype)
        return f"torch.empty({argument.shape}, dtype={dtype}, device='cuda')"

    def converted(self, array: str, dtype: str) -> str:
        return f"{array}.to({self.dtype(dtype)})"

    def compact(self, array: str) -> str:
        return f"{array}.contiguous()"

    def transposed(self, array: str) -> str:
        return f"{array}.T.contiguous()"

    def copied(self, array: str) -> str:
        return f"{array}.clone()"


class OnDevice(ArrayLibrary):
    """Arrays of numpy, copied to a device as `DeviceArray`."""

    def empty(self, argument: Argument) -> str:
        return f"DeviceArray.of({super().empty(argument)})"

    def converted(self, array: str, dtype: str) -> str:
        return f"DeviceArray.of({super().converted(f'{array}.numpy()', dtype)})"

    def compact(self, array: str) -> str:
        return f"DeviceArray.of({array}.numpy())"

    def transposed(self, array: str) -> str:
        return f"DeviceArray.of({array}.numpy().T)"

    def copied(self, array: str) -> str:
        return f"DeviceArray.of({array}.numpy())"


TORCH, ON_DEVICE = Torch("torch"), OnDevice("numpy")
