"""Facts of this processor by the system, permissions, and the processor that it is taken for."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from pathlib import Path

from ..base.errors import TargetError
from ..target import NATIVE, CpuTarget

HOST = "TILEWRIGHT_HOST"
CPUINFO = Path("/proc/cpuinfo")
_ARCH_PRCTL = 158
_REQUEST = 0x1023
_TILE_DATA = 18
"""Linux, Documentation/arch/x86/xstate.rst: ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA."""


def host_limit() -> CpuTarget | None:
    """The lesser processor that `TILEWRIGHT_HOST` names, or `None` if it is unset.

    The variable holds the options of a target, `-mcpu=x86-64-v3` for instance; child processes
    inherit it. Raises `TargetError` if it names no processor.
    """
    text = os.environ.get(HOST, "").strip()
    if not text:
        return None
    if "-mtriple" in text:
        raise TargetError(
            "{0}={1!r}: the machine's own system and architecture stay; leave out -mtriple",
            HOST,
            text,
        )
    try:
        limit = CpuTarget.parse(f"cpu {text}")
    except TargetError as error:
        raise TargetError("{0}={1!r}: {2}", HOST, text, error) from error
    if limit.mcpu == NATIVE:
        raise TargetError(
            "{0}={1!r} names no processor; expected -mcpu=NAME, and at most -mattr and -threads",
            HOST,
            text,
            hint=f'{HOST}="-mcpu=x86-64-v3", for instance; threads alone are an option of the '
            'target: "cpu -threads=1"',
        )
    return limit


def cpu_flags(cpuinfo: Path = CPUINFO) -> frozenset[str] | None:
    """The processor's feature flags as the system reports them, or `None`.

    Those of RISC-V are in one word, letters before names: `rv64imafdcv_zba_zbb`.
    """
    flags = cpu_fact(cpuinfo, "flags", "Features")
    if flags is None and (isa := cpu_fact(cpuinfo, "isa")) is not None:
        letters, *names = isa.strip().removeprefix("rv64").split("_")
        return frozenset([*letters, *names])
    return None if flags is None else frozenset(flags.split())


def cpu_fact(cpuinfo: Path, *names: str) -> str | None:
    """The first processor's entry under one of these names in `cpuinfo`, or `None`.

    The system writes the file as it is read, which takes long where there are many processors.
    """
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() in names:
                    return value
    except OSError:
        pass
    return None


def model_name(cpuinfo: Path = CPUINFO) -> str:
    """The processor's name for people, empty if it is not known."""
    return " ".join((cpu_fact(cpuinfo, "model name") or "").split())


@cache
def request_tiles() -> bool:
    """Ask for tile registers for all threads of this process; returns whether they are granted.

    Without permission, the first instruction that uses one ends the process.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
