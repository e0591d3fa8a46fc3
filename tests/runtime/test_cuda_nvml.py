"""The state of a CUDA device, from a library of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.autotune.records import environment_record
from tilewright.codegen.detect import resolve
from tilewright.runtime.cuda_driver import use_driver
from tilewright.runtime.cuda_nvml import LIBRARY, device_state, power_limit

from .cuda_double import H200, DoubleDriver

KNOWN: dict[str, dict[int | None, int]] = {
    "nvmlDeviceGetClockInfo": {1: 1980, 2: 3201},
    "nvmlDeviceGetMaxClockInfo": {1: 1981},
    "nvmlDeviceGetPowerUsage": {None: 123_456},
    "nvmlDeviceGetEnforcedPowerLimit": {None: 700_000},
    "nvmlDeviceGetTemperature": {0: 41},
    "nvmlDeviceGetCurrentClocksEventReasons": {None: 0x45},
}
STATE = {
    "sm_mhz": 1980,
    "sm_max_mhz": 1981,
    "memory_mhz": 3201,
    "power_watts": 123,
    "power_limit_watts": 700,
    "temperature_c": 41,
    "throttled": ["power cap", "hardware thermal"],
}


class Library:
    """`opened` counts calls of init without one of shutdown. Functions without values fail."""

    def __init__(self, known: dict[str, dict[int | None, int]], starts: bool = True) -> None:
        self.opened = 0

        def init() -> int:
            self.opened += starts
            return 0 if starts else 9

        def shutdown() -> int:
            self.opened -= 1
            return 0

        def handle_of(bus: Any, handle: Any) -> int:
            handle._obj.value = 0x77
            return 0 if bus.value == H200.pci_bus_id.encode() else 6

        self.__dict__ |= {
            "nvmlInit_v2": init,
            "nvmlShutdown": shutdown,
            "nvmlDeviceGetHandleByPciBusId_v2": handle_of,
            **{name: self._function(values) for name, values in known.items()},
        }

    def _function(self, values: dict[int | None, int]) -> Callable[..., int]:
        def function(device: Any, *numbers: Any) -> int:
            assert self.opened == 1
            assert device.value == 0x77
            *selected, result = numbers
            if not values:
                return 3
            result._obj.value = values[selected[0].value if selected else None]
            return 0

        return function


def test_the_state_of_a_device() -> None:
    library, asked = Library(KNOWN), []

    def load(name: str) -> Library:
        asked.append(name)
        return library

    assert device_state(H200.pci_bus_id, load) == STATE
    assert power_limit(H200.pci_bus_id, load) == 700
    assert asked == [LIBRARY] * 2
    assert library.opened == 0


def test_the_former_name_of_a_function_is_asked_for_too() -> None:
    known = dict(KNOWN)
    known["nvmlDeviceGetCurrentClocksThrottleReasons"] = known.pop(
        "nvmlDeviceGetCurrentClocksEventReasons"
    )
    assert device_state(H200.pci_bus_id, lambda _: Library(known)) == STATE


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("fails", [False, True])
def test_what_is_not_known_is_left_out(name: str, fails: bool) -> None:
    known = {other: values for other, values in KNOWN.items() if other != name}
    if fails:
        known[name] = {}
    state = device_state(H200.pci_bus_id, lambda _: Library(known))
    assert state.items() < STATE.items()
    assert len(state) in (5, 6)


def no_library(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


@pytest.mark.parametrize(
    ("bus", "load"),
    [
        (H200.pci_bus_id, no_library),
        (H200.pci_bus_id, lambda _: Library(KNOWN, starts=False)),
        (H200.pci_bus_id, lambda _: object()),
        ("0000:00:00.0", lambda _: Library(KNOWN)),
    ],
)
def test_where_nothing_is_known(bus: str, load: Callable[[str], Any]) -> None:
    assert device_state(bus, load) == {}
    assert power_limit(bus, load) == 0


def test_it_is_part_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tilewright.runtime.cuda_runtime.device_state",
        lambda bus: device_state(bus, lambda _: Library(KNOWN)),
    )
    with use_driver(DoubleDriver()):
        facts = environment_record(resolve("cuda")).facts
    assert facts["model"] == "NVIDIA H200"
    assert facts["driver"] == "13.0"
    assert facts.items() >= STATE.items()
    assert "sm_mhz" not in environment_record(resolve("cpu")).facts
