"""The state of a CUDA device, from NVIDIA's management library.

The library comes with the driver, but not into every container: where it is not there, or does not
know something, that is left out. Source: NVML API Reference, nvml.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _MEMORY_CLOCK, _OF_GPU = 1, 2, 0
_WATT = 1000
"""NVML counts in milliwatts."""
# Reasons for a lower clock, but for that of an idle device.
_REASONS = {
    0x02: "applications clocks",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
}
_READINGS: dict[str, tuple[str, tuple[int, ...], int]] = {
    "sm_mhz": ("nvmlDeviceGetClockInfo", (_SM_CLOCK,), 1),
    "sm_max_mhz": ("nvmlDeviceGetMaxClockInfo", (_SM_CLOCK,), 1),
    "memory_mhz": ("nvmlDeviceGetClockInfo", (_MEMORY_CLOCK,), 1),
    "power_watts": ("nvmlDeviceGetPowerUsage", (), _WATT),
    "power_limit_watts": ("nvmlDeviceGetEnforcedPowerLimit", (), _WATT),
    "temperature_c": ("nvmlDeviceGetTemperature", (_OF_GPU,), 1),
}
"""The functions that say it, with their numbers between the device and the result, and the unit."""
_THROTTLING = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)


def device_state(
    pci_bus_id: str, load: Callable[[str], Any] = ctypes.CDLL
) -> dict[str, int | list[str]]:
    """Clocks in MHz, power in W, the temperature, and why the clock is `throttled`, by name."""
    found: dict[str, int | list[str]] = {}
    with _device(pci_bus_id, load) as (library, device):
        if device is None:
            return found
        for name, (function, numbers, unit) in _READINGS.items():
            value = c_uint()
            if _call(library, function, device, *map(c_uint, numbers), byref(value)):
                found[name] = round(value.value / unit)
        reasons = c_ulonglong()
        if any(_call(library, function, device, byref(reasons)) for function in _THROTTLING):
            found["throttled"] = [why for bit, why in _REASONS.items() if reasons.value & bit]
    return found


def power_limit(pci_bus_id: str, load: Callable[[str], Any] = ctypes.CDLL) -> int:
    """The most watts that a device takes; 0 where that is not known."""
    found = device_state(pci_bus_id, load).get("power_limit_watts", 0)
    assert isinstance(found, int)
    return found


@contextmanager
def _device(pci_bus_id: str, load: Callable[[str], Any]) -> Iterator[tuple[Any, c_void_p | None]]:
    """The library and its handle of a device; `None` where there is none."""
    try:
        library = load(LIBRARY)
    except OSError:
        yield None, None
        return
    if not _call(library, "nvmlInit_v2"):
        yield library, None
        return
    try:
        device, name = c_void_p(), c_char_p(pci_bus_id.encode())
        known = _call(library, "nvmlDeviceGetHandleByPciBusId_v2", name, byref(device))
        yield library, device if known else None
    finally:
        _call(library, "nvmlShutdown")


def _call(library: Any, name: str, *arguments: Any) -> bool:
    """Whether a function is there and succeeds."""
    try:
        function = getattr(library, name)
    except AttributeError:
        return False
    function.restype = c_int
    return bool(function(*arguments) == 0)
