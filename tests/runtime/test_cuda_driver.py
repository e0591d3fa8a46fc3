"""Errors of the driver's numbers, and which driver is used."""

from __future__ import annotations

import pytest

from tilewright.base.errors import DeviceError, OutOfMemoryError
from tilewright.runtime.cuda_driver import driver, driver_error, use_driver

from .cuda_double import DoubleDriver


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (1, "refuses to launch f: NAME\n  hint: a launch has wrong extents"),
        (3, "refuses to launch f: NAME\n  hint: a forked process .* by spawn"),
        (46, "hint: another process may use it exclusively"),
        (500, "refuses to launch f: NAME$"),
        (701, "hint: build the kernel with fewer threads in a block, or with fewer registers"),
        (803, "hint: the driver was updated: restart the machine"),
        (804, "hint: update the driver"),
    ],
)
def test_what_is_refused(code: int, says: str) -> None:
    error = driver_error(code, "NAME", "to launch {0}", "f")
    with pytest.raises(DeviceError, match=says) as caught:
        raise error
    assert (caught.value.code, caught.value.sticky) == (code, False)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (214, "an uncorrectable error of its memory"),
        (700, "an access to an illegal address, asked to launch f: NAME\n.*compute-sanitizer"),
        (702, "a kernel that ran longer than the system allows.*\n.*another one. Compute smaller"),
        (710, "a failed assertion"),
        (715, "an illegal instruction"),
        (716, "an access to an address that is not aligned"),
        (719, "a kernel that failed"),
    ],
)
def test_what_loses_the_device(code: int, says: str) -> None:
    with pytest.raises(DeviceError, match=f"the device reports {says}") as caught:
        raise driver_error(code, "NAME", "to launch {0}", "f")
    assert (caught.value.code, caught.value.sticky) == (code, True)


def test_memory_that_is_missing() -> None:
    with pytest.raises(OutOfMemoryError, match="no memory left to allocate 8 bytes\n.*torch.cuda"):
        raise driver_error(2, "NAME", "to allocate {0} bytes", 8)


def test_an_error_that_no_driver_reported_has_no_number() -> None:
    assert DeviceError("no").code is None
    assert not DeviceError("no").sticky


def test_drivers_are_used_one_inside_of_another() -> None:
    outer, inner = DoubleDriver(), DoubleDriver()
    with use_driver(outer):
        with use_driver(inner):
            assert driver() is inner
        assert driver() is outer
