"""Libraries of arrays, as errors name what to call in them."""

from __future__ import annotations

from dataclasses import dataclass

from ..base import dtypes
from .signature import Argument


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
