"""The record of GPUs: texts, limits, and which devices run whose code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.base.errors import TargetError
from tilewright.target import ARCHS, CudaTarget, Target

from .refusals import refused


@pytest.mark.parametrize("arch", ARCHS)
def test_architectures_are_named_in_the_text(arch: str) -> None:
    target = Target.parse(f"cuda -arch={arch}")
    assert isinstance(target, CudaTarget)
    assert target == CudaTarget.named(arch)
    assert str(target) == f"cuda -arch={arch}"
    assert target.resolved
    assert target.compat_class == f"cuda/{arch}"
    assert Target.from_json(target.to_json()) == target
    assert target.facts["threads_per_block"] == 1024
    assert target.limits.block_bytes + target.limits.reserved_bytes == target.limits.sm_bytes


def test_a_target_without_an_architecture_is_left_to_the_machine() -> None:
    target = CudaTarget.parse("cuda")
    assert not target.resolved
    assert str(target) == "cuda"
    assert target.facts == {"model": None, "arch": None}
    with refused(TargetError, "cuda"):
        _ = target.limits


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cuda -arch=sm_91", ["unknown architecture -arch=sm_91", "sm_90a"]),
        ("cuda -arch=sm_75", ["-arch=sm_75; known: sm_80, ", "older", "capability 8.0"]),
        ("cuda -arch=sm_100a", ["-arch=sm_100a; known: sm_80, ", "newer", "not known yet"]),
        ("cuda -arch=sm_87", ["-arch=sm_87; known: sm_80, ", "next older"]),
        ("cuda -arch=compute_90a", ["write -arch=sm_90a"]),
        ("cuda -arch=8.6", ["write -arch=sm_86"]),
        ("cuda -arch=SM_80", ["write -arch=sm_80"]),
        ("cuda -arch=sm90a", ["write -arch=sm_90a"]),
        ("cuda -arch=hopper", ["unknown architecture -arch=hopper; known: sm_80, "]),
        ("cuda sm_90a", ["unknown target option", "did you mean -arch=sm_90a?"]),
        ("cuda -arch=", ["has no value"]),
        ("cuda -arch sm_90a", ["has no value", "write -arch=sm_90a"]),
        ("gpu", ["unknown target kind 'gpu'", 'write "cuda"', '"cuda -arch=sm_90a"']),
        ("nvidia/nvidia-h100", ["unknown target kind 'nvidia/nvidia-h100'"]),
        ("cuda -threads=4", ["known: -arch="]),
    ],
)
def test_wrong_texts_are_refused(text: str, words: list[str]) -> None:
    with pytest.raises(TargetError) as error:
        Target.parse(text)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90", (9, 0), True),
        ("sm_90a", (9, 0), True),
        ("sm_90a", (9, 1), False),
        ("sm_90", (10, 0), False),
    ],
)
def test_devices_run_code_of_their_generation(
    arch: str, capability: tuple[int, int], runs: bool
) -> None:
    assert CudaTarget.named(arch).runs_on(capability) is runs


def test_times_compare_on_one_model_with_one_limit_of_power() -> None:
    plain = CudaTarget.named("sm_90a")
    assert plain.perf_class == "cuda/sm_90a"
    device = replace(plain, model="NVIDIA H200", sms=132, memory_bytes=141 * 2**30, power_watts=700)
    assert device == plain
    assert device.perf_class == "cuda/sm_90a/NVIDIA-H200/132SMs/141GiB/700W"
    assert replace(device, power_watts=350).perf_class != device.perf_class


def test_each_architecture_has_the_rates_of_its_device() -> None:
    for arch in ARCHS:
        rates = CudaTarget.named(arch).rates
        assert 1e9 < rates.hertz < 3e9
        assert rates.memory < rates.l2
        assert rates.l1_bytes > ARCHS[arch].sm_bytes
    with refused(TargetError, "cuda"):
        _ = CudaTarget().rates


def test_a_device_that_is_known_by_name_has_its_own_memory() -> None:
    named = CudaTarget(arch="sm_90a", model="NVIDIA H200", l2_bytes=60 << 20, sms=132)
    plain = CudaTarget.named("sm_90a")
    assert (named.rates.memory, named.rates.l2_bytes) == (4.8e12, 60 << 20)
    assert (plain.rates.memory, plain.rates.l2_bytes) == (3.35e12, 50 << 20)
    assert named.rates.float32 == plain.rates.float32
