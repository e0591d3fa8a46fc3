"""The table of processors by name: extensions, caches, and the design of their cores.

A row stands for one product, which its comment names; other products of the name differ in the
third cache and the clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from . import rates
from .rates import Rates

_KIB_PER_MIB = 1024


class Feature(NamedTuple):
    """An instruction set extension of an architecture: its flag in /proc/cpuinfo, and what it is an
    extension of.

    Of WebAssembly there are no flags: an engine refuses a module that it does not run.
    """

    flag: str
    requires: tuple[str, ...] = ()
    arch: str = "x86_64"


# Extensions that code generation may use, by LLVM's name.
FEATURES: dict[str, Feature] = {
    "cx16": Feature("cx16"),
    "popcnt": Feature("popcnt"),
    "sse3": Feature("pni"),
    "ssse3": Feature("ssse3", ("sse3",)),
    "sse4.1": Feature("sse4_1", ("ssse3",)),
    "sse4.2": Feature("sse4_2", ("sse4.1",)),
    "sse4a": Feature("sse4a", ("sse3",)),
    "lzcnt": Feature("abm"),
    "movbe": Feature("movbe"),
    "bmi": Feature("bmi1"),
    "bmi2": Feature("bmi2"),
    "adx": Feature("adx"),
    "prfchw": Feature("3dnowprefetch"),
    "aes": Feature("aes"),
    "pclmul": Feature("pclmulqdq"),
    "sha": Feature("sha_ni"),
    "gfni": Feature("gfni"),
    "avx": Feature("avx", ("sse4.2",)),
    "f16c": Feature("f16c", ("avx",)),
    "fma": Feature("fma", ("avx",)),
    "avx2": Feature("avx2", ("avx",)),
    "vaes": Feature("vaes", ("avx2", "aes")),
    "vpclmulqdq": Feature("vpclmulqdq", ("avx", "pclmul")),
    "avxvnni": Feature("avx_vnni", ("avx2",)),
    "avx512f": Feature("avx512f", ("avx2", "f16c", "fma")),
    "avx512cd": Feature("avx512cd", ("avx512f",)),
    "avx512bw": Feature("avx512bw", ("avx512f",)),
    "avx512dq": Feature("avx512dq", ("avx512f",)),
    "avx512vl": Feature("avx512vl", ("avx512f",)),
    "avx512vnni": Feature("avx512_vnni", ("avx512f",)),
    "avx512bf16": Feature("avx512_bf16", ("avx512bw",)),
    "avx512fp16": Feature("avx512_fp16", ("avx512bw", "avx512dq", "avx512vl")),
    "avx512ifma": Feature("avx512ifma", ("avx512f",)),
    "avx512vbmi": Feature("avx512vbmi", ("avx512bw",)),
    "avx512vbmi2": Feature("avx512_vbmi2", ("avx512bw",)),
    "avx512bitalg": Feature("avx512_bitalg", ("avx512bw",)),
    "avx512vpopcntdq": Feature("avx512_vpopcntdq", ("avx512f",)),
    "amx-tile": Feature("amx_tile"),
    "amx-int8": Feature("amx_int8", ("amx-tile",)),
    "amx-bf16": Feature("amx_bf16", ("amx-tile",)),
    "amx-fp16": Feature("amx_fp16", ("amx-tile",)),
    "neon": Feature("asimd", (), "aarch64"),
    "dotprod": Feature("asimddp", ("neon",), "aarch64"),
    "fullfp16": Feature("asimdhp", ("neon",), "aarch64"),
    "i8mm": Feature("i8mm", ("neon",), "aarch64"),
    "bf16": Feature("bf16", ("neon",), "aarch64"),
    "sve": Feature("sve", ("fullfp16",), "aarch64"),
    "m": Feature("m", (), "riscv64"),
    "a": Feature("a", (), "riscv64"),
    "f": Feature("f", (), "riscv64"),
    "d": Feature("d", ("f",), "riscv64"),
    "c": Feature("c", (), "riscv64"),
    "v": Feature("v", ("d",), "riscv64"),
    "sign-ext": Feature("", (), "wasm32"),
    "nontrapping-fptoint": Feature("", (), "wasm32"),
    "bulk-memory": Feature("", (), "wasm32"),
    "simd128": Feature("", (), "wasm32"),
}


def close(names: Iterable[str]) -> frozenset[str]:
    """The features with all that they require."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(FEATURES[name].requires)
    return frozenset(found)


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """The features in the order of `FEATURES`."""
    chosen = set(names)
    return tuple(name for name in FEATURES if name in chosen)


_V2 = close(["cx16", "popcnt", "sse4.2"])
_V3 = _V2 | close(["avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"])
_V4 = _V3 | close(["avx512bw", "avx512cd", "avx512dq", "avx512vl"])
_HASWELL = _V3 | {"aes", "pclmul"}
_BROADWELL = _HASWELL | {"adx", "prfchw"}
_SKYLAKE_X = _V4 | _BROADWELL
_CASCADE = _SKYLAKE_X | {"avx512vnni"}
_BITS = {"avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq"}
_CRYPTO = {"gfni", "vaes", "vpclmulqdq", "sha"}
_ICELAKE = _CASCADE | _BITS | _CRYPTO
_SAPPHIRE = _ICELAKE | {"avx512bf16", "avx512fp16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16"}
_ALDER = _BROADWELL | _CRYPTO | {"avxvnni"}
_ZEN = _BROADWELL | {"sha", "sse4a"}
_ZEN3 = _ZEN | {"vaes", "vpclmulqdq"}
_ZEN4 = _ZEN3 | _CASCADE | _BITS | {"avx512bf16", "gfni"}
_NEON = close(["neon"])
_NEOVERSE = _NEON | {"dotprod", "fullfp16"}
_RV64GC = close(["m", "a", "d", "c"])
_WASM = close(["sign-ext", "nontrapping-fptoint", "bulk-memory", "simd128"])
_ASSUMED = ("assumed", "assumed", "assumed")


class Cpu(NamedTuple):
    """A processor: features, bytes of the caches that one core reaches, and rates.

    `ways` are the lines in each set of L1, L2 and L3. `sources` are those of the bytes of caches,
    of their ways and of the clock: keys of `CACHE_SOURCES`, divided by commas. `llvm` is LLVM's
    name of it where that is another one than the table's.
    """

    features: frozenset[str]
    l1: int
    l2: int
    l3: int
    arch: str = "x86_64"
    ways: tuple[int, int, int] = (8, 16, 16)
    rates: Rates = Rates()
    sources: tuple[str, str, str] = _ASSUMED
    llvm: str = ""


def _row(
    features: frozenset[str],
    kib: tuple[float, float, float],
    ways: tuple[int, int, int],
    speeds: Rates = Rates(),  # noqa: B008 (immutable)
    sources: tuple[str, str, str] = _ASSUMED,
    arch: str = "x86_64",
) -> Cpu:
    l1, l2, l3 = (int(size * 1024) for size in kib)
    return Cpu(features, l1, l2, l3, arch, ways, speeds, sources)


CACHE_SOURCES: dict[str, str] = {
    "kerncraft": "kerncraft 0.8.18, examples/machine-files (`memory hierarchy`, `clock`)",
    "anandtech": "AnandTech, Ice Lake (Sunny Cove, Skylake, Zen 2: "
    "https://www.anandtech.com/show/14664/testing-intel-ice-lake-10nm/2) and Skylake-X "
    "(Skylake-SP, and 2.5 MB of 20 ways a core before it: https://www.anandtech.com/show/11550/"
    "the-intel-skylakex-review-core-i9-7900x-i7-7820x-and-i7-7800x-tested/4)",
    "benchleaks": "Hardware Times, Golden Cove and Willow Cove: https://www.hardwaretimes.com/"
    "intel-sapphire-rapids-sp-cache-hierarchy-revealed-by-leaked-benchmark/",
    "wikichip": "WikiChip, https://en.wikichip.org/wiki/arm_holdings/microarchitectures/"
    "neoverse_n1 and https://en.wikichip.org/wiki/AWS_Graviton3",
    "arm": rates.SOURCES["arm"],
    "name": "the clock in the name that the processor reports, or half its BogoMIPS",
    "lscpu": "published outputs of lscpu",
    "measured": "seen by this project on such a machine",
    "assumed": "no source",
}
"""Where the facts of `Cpu.sources` are from."""

# Of no product: what is common among those of a level, and safe for the others.
_LEVEL = (8, 16, 16)
CPUS: dict[str, Cpu] = {
    "x86-64": _row(frozenset(), (32, 256, 8 * _KIB_PER_MIB), _LEVEL),
    "x86-64-v2": _row(_V2, (32, 256, 8 * _KIB_PER_MIB), _LEVEL),
    "x86-64-v3": _row(_V3, (32, 256, 8 * _KIB_PER_MIB), _LEVEL),
    "x86-64-v4": _row(_V4, (32, 1 * _KIB_PER_MIB, 16 * _KIB_PER_MIB), _LEVEL),
    # Xeon E5-2695 v3.
    "haswell": _row(
        _HASWELL, (32, 256, 35 * _KIB_PER_MIB), (8, 8, 20), rates.HASWELL.at(2.3),
        ("kerncraft", "anandtech", "name"),
    ),
    # Xeon E5-2697 v4: 18 cores.
    "broadwell": _row(
        _BROADWELL, (32, 256, 45 * _KIB_PER_MIB), (8, 8, 20), rates.BROADWELL.at(2.3),
        ("anandtech", "anandtech", "name"),
    ),
    # Core i7-6700K: 4 cores.
    "skylake": _row(
        _BROADWELL, (32, 256, 8 * _KIB_PER_MIB), (8, 4, 16), rates.SKYLAKE.at(4.0),
        ("anandtech", "anandtech", "name"),
    ),
    # Xeon Gold 6148.
    "skylake-avx512": _row(
        _SKYLAKE_X, (32, 1 * _KIB_PER_MIB, 27.5 * _KIB_PER_MIB), (8, 16, 11),
        rates.SKYLAKE_SERVER.at(2.4), ("kerncraft", "kerncraft, anandtech", "name"),
    ),
    # Xeon Platinum of 26 slices.
    "cascadelake": _row(
        _CASCADE, (32, 1 * _KIB_PER_MIB, 35.75 * _KIB_PER_MIB), (8, 16, 11),
        rates.SKYLAKE_SERVER.at(2.6), ("measured", "anandtech", "measured"),
    ),
    # Xeon Platinum 8380H: 28 cores.
    "cooperlake": _row(
        _CASCADE | {"avx512bf16"}, (32, 1 * _KIB_PER_MIB, 38.5 * _KIB_PER_MIB), (8, 16, 11),
        rates.SKYLAKE_SERVER.at(2.9), ("anandtech", "anandtech", "name"),
    ),
    # Core i7-1068NG7: 4 cores.
    "icelake-client": _row(
        _ICELAKE, (48, 512, 8 * _KIB_PER_MIB), (12, 8, 16), rates.ICELAKE_CLIENT.at(2.3),
        ("anandtech", "anandtech", "name"),
    ),
    # Xeon Platinum 8358: 1.5 MB a core; ways as those of Willow Cove.
    "icelake-server": _row(
        _ICELAKE, (48, 1280, 48 * _KIB_PER_MIB), (12, 20, 12), rates.ICELAKE_SERVER.at(2.6),
        ("assumed", "benchleaks", "name"),
    ),
    # Core i7-1185G7.
    "tigerlake": _row(
        _ICELAKE, (48, 1280, 12 * _KIB_PER_MIB), (12, 20, 12), rates.ICELAKE_CLIENT.at(3.0),
        ("benchleaks", "benchleaks", "name"),
    ),
    # Core i9-11900K: 8 cores of Ice Lake.
    "rocketlake": _row(
        _ICELAKE, (48, 512, 16 * _KIB_PER_MIB), (12, 8, 16), rates.ICELAKE_CLIENT.at(3.5),
        ("anandtech", "anandtech", "name"),
    ),
    # Xeon Platinum 8462Y+.
    "sapphirerapids": _row(
        _SAPPHIRE, (48, 2 * _KIB_PER_MIB, 60 * _KIB_PER_MIB), (12, 16, 15),
        rates.SAPPHIRE_RAPIDS.at(2.8), ("lscpu", "assumed", "name"),
    ),
    # Xeon Gold 6530.
    "emeraldrapids": _row(
        _SAPPHIRE, (48, 2 * _KIB_PER_MIB, 160 * _KIB_PER_MIB), (12, 16, 20),
        rates.SAPPHIRE_RAPIDS.at(2.1), ("lscpu", "assumed", "name"),
    ),
    # A Xeon of 96 cores.
    "graniterapids": _row(
        _SAPPHIRE | {"amx-fp16"}, (48, 2 * _KIB_PER_MIB, 480 * _KIB_PER_MIB), (12, 16, 16),
        rates.SAPPHIRE_RAPIDS.at(3.0), ("measured", "assumed", "assumed"),
    ),
    # Core i9-12900K: 10 slices of 3 MB.
    "alderlake": _row(
        _ALDER, (48, 1280, 30 * _KIB_PER_MIB), (12, 10, 12), rates.GOLDEN_COVE.at(3.2),
        ("benchleaks", "benchleaks", "assumed"),
    ),
    # Core i9-13900K.
    "raptorlake": _row(
        _ALDER, (48, 2 * _KIB_PER_MIB, 36 * _KIB_PER_MIB), (12, 16, 12), rates.GOLDEN_COVE.at(3.0)
    ),
    # Core Ultra 9 185H.
    "meteorlake": _row(
        _ALDER, (48, 2 * _KIB_PER_MIB, 24 * _KIB_PER_MIB), (12, 16, 12), rates.GOLDEN_COVE.at(2.3)
    ),
    # EPYC 7451, third cache of 4 cores.
    "znver1": _row(
        _ZEN, (32, 512, 8 * _KIB_PER_MIB), (8, 8, 16), rates.ZEN.at(2.3),
        ("kerncraft", "kerncraft", "kerncraft"),
    ),
    # EPYC 7452, third cache of 4 cores.
    "znver2": _row(
        _ZEN, (32, 512, 16 * _KIB_PER_MIB), (8, 8, 16), rates.ZEN2.at(2.35),
        ("kerncraft", "kerncraft, anandtech", "kerncraft"),
    ),
    # EPYC 7763, third cache of 8 cores; ways as those of Zen 2.
    "znver3": _row(
        _ZEN3, (32, 512, 32 * _KIB_PER_MIB), (8, 8, 16), rates.ZEN3.at(2.45),
        ("measured", "assumed", "name"),
    ),
    # EPYC 9654, third cache of 8 cores.
    "znver4": _row(
        _ZEN4, (32, 1 * _KIB_PER_MIB, 32 * _KIB_PER_MIB), (8, 8, 16), rates.ZEN4.at(2.4),
        ("assumed", "assumed", "name"),
    ),
    # EPYC 9005, third cache of 8 cores.
    "znver5": _row(
        _ZEN4 | {"avxvnni"}, (48, 1 * _KIB_PER_MIB, 32 * _KIB_PER_MIB), (12, 16, 16),
        rates.ZEN5.at(3.9), ("measured", "measured", "measured"),
    ),
    "generic": _row(_NEON, (32, 512, 4 * _KIB_PER_MIB), _LEVEL, arch="aarch64"),
    # BCM2712 (Raspberry Pi 5); ways as those of Neoverse N1.
    "cortex-a76": _row(
        _NEOVERSE, (64, 512, 2 * _KIB_PER_MIB), (4, 8, 16), rates.NEOVERSE_N1.at(2.4),
        ("assumed", "wikichip", "name"), "aarch64",
    ),
    # AWS Graviton2.
    "neoverse-n1": _row(
        _NEOVERSE, (64, 1 * _KIB_PER_MIB, 32 * _KIB_PER_MIB), (4, 8, 16),
        rates.NEOVERSE_N1.at(2.5), ("wikichip, arm", "wikichip", "name"), "aarch64",
    ),
    # AWS Graviton3; ways as those of Neoverse N1.
    "neoverse-v1": _row(
        _NEOVERSE | {"bf16", "i8mm", "sve"}, (64, 1 * _KIB_PER_MIB, 32 * _KIB_PER_MIB), (4, 8, 16),
        rates.NEOVERSE_V1.at(2.6), ("wikichip", "assumed", "wikichip"), "aarch64",
    ),
    # RV64GC: what Linux distributions are compiled for.
    "riscv64": _row(_RV64GC, (32, 512, 2 * _KIB_PER_MIB), _LEVEL, arch="riscv64")._replace(
        llvm="generic-rv64"
    ),
    # What the engines of browsers, of Node.js 16.4 and of Wasmtime 15 run.
    "wasm32": _row(_WASM, (32, 512, 4 * _KIB_PER_MIB), _LEVEL, arch="wasm32")._replace(llvm="mvp"),
}  # fmt: skip
