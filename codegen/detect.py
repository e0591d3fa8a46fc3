"""Resolve targets on this machine, and detect how much of it this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar, overload

from ..target import Target
from ..target.target import no_text
from .generator import generator_for

ROOT = Path("/")
_UNLIMITED = 1 << 60
T = TypeVar("T", bound=Target)


@overload
def resolve(target: str) -> Target: ...
@overload
def resolve(target: T) -> T: ...
def resolve(target: Target | str) -> Target:
    """The target with everything that it leaves to this machine filled in.

    Raises `TargetError` for a text that is no target, and for what is neither a text nor a
    `Target`.
    """
    wanted = Target.parse(target) if isinstance(target, str) else target
    if not isinstance(wanted, Target):
        raise no_text(target)
    resolved: Target = generator_for(wanted).resolve(wanted)
    return resolved


def check_runnable(target: Target) -> None:
    """Raise `TargetError` unless this machine executes code for `target`."""
    generator_for(target).check_runnable(target)


def usable_processors(root: Path = ROOT) -> int:
    """How many processors this process may keep busy: affinity, and quotas of its cgroups."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(affinity or 1, int(processor_quota(root))))


def usable_memory(root: Path = ROOT) -> int:
    """Bytes of memory that this process may use: what is installed, or the limit of its cgroups."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [
        read_integer(directory / name, _UNLIMITED)
        for directory in _cgroups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min([installed, *(limit for limit in limits if limit > 0)])


def processor_quota(root: Path = ROOT) -> float:
    """Processors' worth of time that the tightest of the cgroups allows; very many if all is."""
    quota = float(_UNLIMITED)
    for directory in _cgroups(root, "cpu"):
        words = read_file(directory / "cpu.max").split()  # version 2: "150000 100000" or "max .."
        if len(words) == 2 and words[0].isdecimal():
            quota = min(quota, int(words[0]) / int(words[1]))
        runtime = read_integer(directory / "cpu.cfs_quota_us", -1)  # version 1
        period = read_integer(directory / "cpu.cfs_period_us")
        if runtime > 0 and period > 0:
            quota = min(quota, runtime / period)
    return quota


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Directories of the control groups that limit this process, inner ones first."""
    for line in read_file(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not number or not colon:
            continue
        if not controllers:
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif controller in controllers.split(","):
            mounts = [root / "sys/fs/cgroup" / controllers, root / "sys/fs/cgroup" / controller]
        else:
            continue
        inner = Path(path.lstrip("/"))
        for mount in mounts:
            yield from (mount / part for part in (inner, *inner.parents))


def read_file(path: Path) -> str:
    """The text of a file of the system, empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def read_integer(path: Path, otherwise: int = 0) -> int:
    """The number that is all of a file."""
    text = read_file(path)
    return int(text) if text.removeprefix("-").isdecimal() else otherwise
