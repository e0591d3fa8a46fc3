"""The processor of this machine, and targets with the options that they leave to it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...base.errors import TargetError
from ...runtime import host
from ...runtime.host import HOST, cpu_flags, host_limit, request_tiles
from ...target import CPUS, FEATURES, CpuTarget, baseline, missing_features
from ..detect import ROOT, read_file, read_integer, usable_processors


@cache
def host_target() -> CpuTarget:
    """This machine with the processors that this process may use, as a resolved target.

    Where `TILEWRIGHT_HOST` names a lesser processor, this machine is taken for that one: its
    features, vectors and registers, with the caches, model and processors that are there. Raises
    `TargetError` if the text is no target, or names what this machine lacks.
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


def _machine(*, tiles: bool) -> CpuTarget:
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
    table = CpuTarget.named(name)
    (l1, l2, l3), line, ways = caches()
    return replace(
        table,
        triple=triple,
        features=features,
        threads=usable_processors(),
        l1_bytes=l1 or table.l1_bytes,
        l2_bytes=l2 or table.l2_bytes,
        l3_bytes=l3 or table.l3_bytes,
        line_bytes=line or table.line_bytes,
        ways=(ways[0] or table.ways[0], ways[1] or table.ways[1], ways[2] or table.ways[2]),
        cores=usable_processors(),
        model=model_name(),
    )


class Caches(NamedTuple):
    """Bytes of L1 for data, L2 and L3, bytes of a line, and lines in a set of each; 0: unknown."""

    sizes: tuple[int, ...]
    line: int
    ways: tuple[int, ...]


def caches(root: Path = ROOT) -> Caches:
    """The caches of the first processor."""
    sizes, line, ways = [0, 0, 0], 0, [0, 0, 0]
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level = read_integer(index / "level")
        if read_file(index / "type") in ("Data", "Unified") and 1 <= level <= 3:
            sizes[level - 1] = _size(read_file(index / "size"))
            ways[level - 1] = read_integer(index / "ways_of_associativity")
            line = line or read_integer(index / "coherency_line_size")
    return Caches(tuple(sizes), line, tuple(ways))


def model_name(root: Path = ROOT) -> str:
    """The processor's name for people, empty if it is not known."""
    return host.model_name(root / "proc/cpuinfo")


def _size(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * scale if digits.isdecimal() else 0
