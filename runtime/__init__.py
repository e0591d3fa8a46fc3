"""Load, call and time compiled code. Needs only numpy: deployments ship this."""

from .cuda_memory import DeviceArray
from .host_memory import keep_freed_memory
from .loader import load
from .module import Module, Origin
from .signature import Argument, Signature
from .timer import Timing, time_calls, time_interleaved

__all__ = [
    "Argument",
    "DeviceArray",
    "Module",
    "Origin",
    "Signature",
    "Timing",
    "keep_freed_memory",
    "load",
    "time_calls",
    "time_interleaved",
]
