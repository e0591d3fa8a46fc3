"""Loading, calling and timing compiled code. Needs only numpy: this is what deployment ships."""

from .module import Module, Origin
from .signature import Argument, Signature
from .timer import Timing, time_calls, time_interleaved

__all__ = [
    "Argument",
    "Module",
    "Origin",
    "Signature",
    "Timing",
    "time_calls",
    "time_interleaved",
]
