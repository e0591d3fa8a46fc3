"""Detect this machine: its processor, caches and memory, and the share this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from ..errors import TargetError
from ..runtime.host import HOST, cpu_flags, host_limit
from ..runtime.tiles import request_tiles
from ..target import CPUS, FEATURES, NATIVE, Target, baseline, missing_features
from ..target import check_runnable as check_runnable_on

ROOT = Path("/")
_UNLIMITED = 1 << 60


@cache
def host_target() -> Target:
    """This machine, with the processors that this process may use, as a resolved target.

    If `TILEWRIGHT_HOST` names a lesser processor, features, vectors and registers are those of that
    processor; caches, model and processors are the real ones. Raises `TargetError` if the text is
    no target, or names features that this machine lacks.
    """
    limit = host_limit()
    machine = _machine(tiles=limit is None or "amx-tile" in limit.features)
    if limit is None:
        return machine
    missing = missing_features(limit, machine)
    if limit.arch != machine.arch or missing:
        raise TargetError(
            "{0}={1} asks for {2}, which this machine ({3}) does not have",
            HOST,
            str(limit).removeprefix("cpu "),
            ", ".join(missing) or limit.arch,
            machine.mcpu,
            hint="it takes a machine for a lesser one: name a processor whose features are all "
            "here, -mcpu=x86-64-v2 for instance, or unset it",
        )
    threads = limit.threads or machine.threads
    return replace(
        machine, mcpu=limit.mcpu, features=limit.features, threads=threads, cores=threads
    )


def _machine(*, tiles: bool) -> Target:
    """This machine as it is.

    Its extensions are those that the system also reports, by which artifacts are checked. `tiles`
    requests the AMX tile registers for the process.
    """
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    arch = triple.partition("-")[0]
    present = frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)
    flags = cpu_flags()
    known = [name for name, f in FEATURES.items() if flags is None or f.flag in flags]
    features = tuple(name for name in known if name in present)
    if "amx-tile" in features and not (tiles and request_tiles()):
        features = tuple(name for name in features if not name.startswith("amx-"))
    name = llvm.get_host_cpu_name()
    if name not in CPUS or CPUS[name].arch != arch:
        name = baseline(arch, features)
    table = Target.cpu(name)
    l1, l2, l3, line = caches()
    return replace(
        table,
        triple=triple,
        features=features,
        threads=usable_processors(),
        l1_bytes=l1 or table.l1_bytes,
        l2_bytes=l2 or table.l2_bytes,
        l3_bytes=l3 or table.l3_bytes,
        line_bytes=line or table.line_bytes,
        cores=usable_processors(),
        model=model_name(),
    )


def resolve(target: Target | str) -> Target:
    """The target with everything that it leaves to this machine filled in.

    Threads default to the processors that this process may use. For this machine's processor,
    caches, cores and model are the detected ones, otherwise those of the table. Raises
    `TargetError` for a text that is no target, and for what is neither a text nor a `Target`.
    """
    wanted = Target.parse(target) if isinstance(target, str) else target
    if not isinstance(wanted, Target):
        raise TargetError(
            "target: expected a text or a tw.Target, found {0!r}",
            target,
            hint='"cpu" is this machine',
        )
    if wanted.kind != "cpu":
        raise TargetError("no machine of kind {0!r} can be detected", wanted.kind)
    host = host_target()
    threads = wanted.threads or host.threads
    if wanted.mcpu == NATIVE:
        return replace(host, threads=threads)
    if (wanted.mcpu, wanted.triple) == (host.mcpu, host.triple):
        return replace(host, threads=threads, features=wanted.features)
    return replace(wanted, threads=threads, cores=threads)


def check_runnable(target: Target) -> None:
    """Raise `TargetError` unless this machine executes code for `target`."""
    check_runnable_on(target, host_target())


def caches(root: Path = ROOT) -> tuple[int, int, int, int]:
    """Bytes of the L1 data, L2 and L3 cache of the first processor, and of a line; 0 if unknown."""
    sizes, line = [0, 0, 0], 0
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level = _read_integer(index / "level")
        if _read(index / "type") in ("Data", "Unified") and 1 <= level <= 3:
            sizes[level - 1] = _size(_read(index / "size"))
            line = line or _read_integer(index / "coherency_line_size")
    return sizes[0], sizes[1], sizes[2], line


def usable_processors(root: Path = ROOT) -> int:
    """How many processors this process may keep busy: affinity, and quotas of its cgroups."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(affinity or 1, int(_cpu_quota(root))))


def usable_memory(root: Path = ROOT) -> int:
    """Bytes of memory that this process may use: what is installed, or the limit of its cgroups."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [
        _read_integer(directory / name, _UNLIMITED)
        for directory in _cgroups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min([installed, *(limit for limit in limits if limit > 0)])


def model_name(root: Path = ROOT) -> str:
    """The processor's name for people, empty if it is not known."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return " ".join(value.split())
    return ""


def _cpu_quota(root: Path) -> float:
    """Processors' worth of time that the tightest of the cgroups allows."""
    quota = float(_UNLIMITED)
    for directory in _cgroups(root, "cpu"):
        words = _read(directory / "cpu.max").split()  # version 2: "150000 100000" or "max 100000"
        if len(words) == 2 and words[0].isdecimal():
            quota = min(quota, int(words[0]) / int(words[1]))
        runtime = _read_integer(directory / "cpu.cfs_quota_us", -1)  # version 1
        period = _read_integer(directory / "cpu.cfs_period_us")
        if runtime > 0 and period > 0:
            quota = min(quota, runtime / period)
    return quota


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Directories of the control groups that limit this process, inner ones first."""
    for line in _read(root / "proc/self/cgroup").splitlines():
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


def _size(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * scale if digits.isdecimal() else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _read_integer(path: Path, otherwise: int = 0) -> int:
    text = _read(path)
    return int(text) if text.removeprefix("-").isdecimal() else otherwise
