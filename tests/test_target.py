"""Targets: text form, facts, and who runs whose code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import pytest

from tilewright.base.errors import TargetError
from tilewright.target import (
    CPUS,
    FEATURES,
    CpuTarget,
    Target,
    check_runnable,
    missing_features,
    rates,
    register_kind,
)
from tilewright.target.processors import CACHE_SOURCES
from tilewright.target.target import _KINDS

from .refusals import refused
from .toy_target import ToyTarget

TEXTS = [
    "cpu",
    "cpu -threads=3",
    "cpu -mcpu=cascadelake",
    "cpu -mcpu=cascadelake -threads=1",
    "cpu -mcpu=cascadelake -mattr=-avx512f -threads=2",
    "cpu -mcpu=haswell -mattr=+avx512fp16",
    "cpu -mcpu=znver4 -mattr=-avx512bf16,+avxvnni",
    "cpu -mcpu=neoverse-v1 -mattr=-i8mm",
    "cpu -mcpu=x86-64-v3 -mtriple=x86_64-unknown-linux-musl",
]


@pytest.mark.parametrize("text", TEXTS)
def test_canonical_text_prints_as_it_was(text: str) -> None:
    assert str(CpuTarget.parse(text)) == text


@pytest.mark.parametrize("mcpu", CPUS)
def test_every_processor_round_trips_and_is_closed(mcpu: str) -> None:
    threads = 1 if CpuTarget.named(mcpu).serial else 2
    target = CpuTarget.parse(f"cpu -threads={threads} -mcpu={mcpu}")
    assert CpuTarget.parse(str(target)) == target
    assert str(target) == f"cpu -mcpu={mcpu} -threads={threads}"
    for feature in target.features:
        assert set(FEATURES[feature].requires) <= set(target.features)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("cpu  -threads=1   -mcpu=haswell", "cpu -mcpu=haswell -threads=1"),
        ("cpu -mcpu=native", "cpu"),
        ("cpu -mcpu=haswell -mattr=+avx2", "cpu -mcpu=haswell"),
        (
            "cpu -mcpu=cascadelake -mattr=-avx512f,-avx512bw",
            "cpu -mcpu=cascadelake -mattr=-avx512f",
        ),
        ("cpu -mcpu=haswell -mattr=+avx512f,+avx512bw", "cpu -mcpu=haswell -mattr=+avx512bw"),
        ("cpu -mcpu=haswell -mattr=-avx2,+avx2", "cpu -mcpu=haswell"),
    ],
)
def test_other_spellings_are_the_same_target(text: str, canonical: str) -> None:
    assert CpuTarget.parse(text) == CpuTarget.parse(canonical)
    assert str(CpuTarget.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["expected a target", "`cpu`"]),
        ("gpu", ["'gpu'", "known: cpu, cuda"]),
        ("llvm", ["'llvm'", "the code of `cpu`"]),
        ("cpu -mcpu=cascadlake", ["cascadlake", "haswell", "did you mean cascadelake"]),
        ("cpu -mpcu=haswell", ["-mpcu=haswell", "-threads=", "did you mean -mcpu=?"]),
        ("cpu threads=2", ["'threads=2'", "did you mean -threads=?"]),
        ("cpu mcpu=haswell", ["'mcpu=haswell'", "-mcpu="]),
        ("cpu haswell", ["'haswell'", "did you mean -mcpu=haswell?"]),
        ("cpu -mcpu", ["-mcpu has no value"]),
        ("cpu -mcpu=", ["-mcpu has no value"]),
        ("cpu -threads=0", ["-threads=0", "from 1 to"]),
        ("cpu -threads=99999999999999999999", ["from 1 to"]),
        ("cpu -threads=0000000019999999", ["from 1 to"]),
        ("cpu -threads=000", ["from 1 to"]),
        ("cpu -threads=two", ["-threads=two", "from 1 to"]),
        ("cpu -threads=1 -threads=2", ["-threads", "twice"]),
        ("cpu -mattr=+avx2", ["names none", "-mcpu="]),
        ("cpu -mcpu=haswell -mattr=+avx512", ["'+avx512'", "did you mean avx512"]),
        ("cpu -mcpu=haswell -mattr=avx2", ["'avx2'", "+ or -"]),
        ("cpu -mcpu=haswell -mattr=+neon", ["'+neon'"]),
        ("cpu -mcpu=haswell -mtriple=aarch64-linux-gnu", ["not a triple of x86_64"]),
        ("cpu -mcpu=wasm32 -threads=2", ["-threads=2", "wasm32", "one thread"]),
        ("cpu -mcpu=riscv64 -mattr=+neon", ["'+neon'", "m, a, f, d, c, v"]),
        ("cpu -mcpu=rv64gc", ["rv64gc", "did you mean riscv64?"]),
        ("cpu " * 5000, ["20000 bytes"]),
    ],
)
def test_a_wrong_text_says_what_is_known(text: str, words: list[str]) -> None:
    with pytest.raises(TargetError) as error:
        CpuTarget.parse(text)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("text", "bits", "mask_bits", "registers", "fma"),
    [
        ("cpu -mcpu=x86-64", 128, None, 16, False),
        ("cpu -mcpu=haswell", 256, 32, 16, True),
        ("cpu -mcpu=skylake-avx512", 512, 8, 32, True),
        ("cpu -mcpu=skylake-avx512 -mattr=-avx512bw", 512, 32, 32, True),
        ("cpu -mcpu=cascadelake -mattr=-avx512f", 256, 32, 16, True),
        ("cpu -mcpu=neoverse-n1", 128, None, 32, True),
        ("cpu -mcpu=riscv64", 128, None, 8, True),
        ("cpu -mcpu=riscv64 -mattr=+v", 128, None, 32, True),
        ("cpu -mcpu=wasm32", 128, None, 16, False),
        ("cpu -mcpu=wasm32 -mattr=-simd128", 128, None, 8, False),
    ],
)
def test_facts_follow_from_features(
    text: str, bits: int, mask_bits: int | None, registers: int, fma: bool
) -> None:
    target = CpuTarget.parse(text)
    assert (target.vector_bits, target.mask_bits) == (bits, mask_bits)
    assert (target.vector_registers, target.fma) == (registers, fma)


def test_resolved_means_that_nothing_is_left_to_the_machine() -> None:
    assert not CpuTarget.parse("cpu").resolved
    assert not CpuTarget.parse("cpu -mcpu=haswell").resolved
    assert not CpuTarget.parse("cpu -threads=2").resolved
    assert CpuTarget.parse("cpu -mcpu=haswell -threads=2").resolved
    assert CpuTarget.named("haswell").with_threads(2).resolved
    with refused(TargetError, 2, "wasm32"):
        CpuTarget.named("wasm32").with_threads(2)


def test_llvm_features_say_every_extension_on_or_off() -> None:
    words = CpuTarget.parse("cpu -mcpu=haswell").llvm_features.split(",")
    assert "+avx2" in words
    assert "-avx512f" in words
    assert not any("neon" in word for word in words)
    assert "+neon" in CpuTarget.parse("cpu -mcpu=generic").llvm_features.split(",")


def test_compat_class_ignores_tuning_and_threads() -> None:
    sky, ice = CpuTarget.named("skylake"), CpuTarget.named("broadwell", threads=4)
    assert sky.compat_class == ice.compat_class
    assert sky.compat_class.startswith("cpu/x86-64-v3+")
    assert CpuTarget.parse("cpu -mcpu=x86-64-v4").compat_class == "cpu/x86-64-v4"
    assert CpuTarget.parse("cpu -mcpu=x86-64-v4").compat_class != sky.compat_class


def test_perf_class_tells_threads_and_processors_apart() -> None:
    texts = ["-mcpu=haswell -threads=1", "-mcpu=haswell -threads=2", "-mcpu=znver3 -threads=1"]
    assert len({CpuTarget.parse(f"cpu {text}").perf_class for text in texts}) == 3


def test_the_key_tells_equal_targets_of_other_facts_apart() -> None:
    target = CpuTarget.named("haswell", threads=2)
    others = [
        replace(target, l2_bytes=4096),
        replace(target, rates=target.rates._replace(l2=1.0)),
        replace(target, cores=8),
    ]
    assert {target, *others} == {target}
    assert len({t.key for t in (target, *others)}) == 4
    assert target.key == CpuTarget.named("haswell", threads=2).key


def test_running_needs_every_feature_and_the_same_architecture() -> None:
    host = CpuTarget.parse("cpu -mcpu=cascadelake -threads=2")
    check_runnable(CpuTarget.parse("cpu -mcpu=haswell"), host)
    assert missing_features(CpuTarget.parse("cpu -mcpu=cooperlake"), host) == ("avx512bf16",)
    with pytest.raises(TargetError):
        check_runnable(CpuTarget.parse("cpu -mcpu=cooperlake"), host)
    with refused(TargetError, "aarch64", "x86_64"):
        check_runnable(CpuTarget.parse("cpu -mcpu=generic"), host)


def test_json_has_what_the_text_does_not_spell() -> None:
    target = replace(CpuTarget.named("znver4", threads=3), l2_bytes=12345, model="a machine")
    again = Target.from_json(json.loads(json.dumps(target.to_json())))
    assert asdict(again) == asdict(target)
    assert hash(again) == hash(target)
    with pytest.raises(TargetError):
        ToyTarget.from_json(target.to_json())
    with pytest.raises(TargetError):
        Target.from_json({"kind": "cup", "fields": {}})


@dataclass(frozen=True, kw_only=True)
class TiledTarget(ToyTarget):
    """A kind with tuples among its facts, which no other process knows."""

    kind: ClassVar[str] = "tiled toy"
    sizes: tuple[tuple[int, ...], ...] = ()


def test_tuples_come_back_as_tuples() -> None:
    kinds = dict(_KINDS)
    try:
        register_kind(TiledTarget)
        target = TiledTarget(sizes=((16, 16), (8,)))
        again = Target.from_json(json.loads(json.dumps(target.to_json())))
    finally:
        _KINDS.clear()
        _KINDS.update(kinds)
    assert again == target
    assert hash(again) == hash(target)


def test_a_processor_that_is_edited_is_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    row = CPUS["x86-64-v3"]
    for l2 in (256 << 10, 1 << 20):
        monkeypatch.setitem(CPUS, "mine", row._replace(l2=l2))
        assert CpuTarget.parse("cpu -mcpu=mine").l2_bytes == l2


DESIGNS = {name: value for name, value in vars(rates).items() if isinstance(value, rates.Design)}


@pytest.mark.parametrize("name", DESIGNS)
def test_each_rate_of_the_table_has_a_source(name: str) -> None:
    design = DESIGNS[name]
    assert set(design.sources) == set(design.rates.to_json()) - {"hertz"}
    for rate, source in design.sources.items():
        if source.startswith("like "):
            other = DESIGNS[source.removeprefix("like ")]
            assert getattr(design.rates, rate) == getattr(other.rates, rate)
            assert not other.sources[rate].startswith("like ")
        else:
            assert source in rates.SOURCES


def test_each_row_of_a_product_has_the_rates_of_a_design() -> None:
    designs = {design.at(1.0) for design in DESIGNS.values()}
    generic = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "generic", "riscv64", "wasm32"}
    assert {cpu.rates._replace(hertz=1e9) for n, cpu in CPUS.items() if n not in generic} == designs
    assert {cpu.rates for n, cpu in CPUS.items() if n in generic} == {rates.Rates()}


@pytest.mark.parametrize("mcpu", CPUS)
def test_the_facts_of_each_row_have_sources(mcpu: str) -> None:
    assert len(CPUS[mcpu].sources) == 3
    assert {key for text in CPUS[mcpu].sources for key in text.split(", ")} <= set(CACHE_SOURCES)


@pytest.mark.parametrize("mcpu", CPUS)
def test_sets_of_caches_are_whole(mcpu: str) -> None:
    cpu = CPUS[mcpu]
    for size, ways in zip((cpu.l1, cpu.l2, cpu.l3), cpu.ways, strict=True):
        assert size % (64 * ways) == 0
