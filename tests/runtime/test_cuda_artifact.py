"""Artifacts for CUDA devices: what is written is loaded, and the rest is refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ArgumentError, ArtifactError, TargetError
from tilewright.base.files import File, replace_files
from tilewright.runtime import Argument, Origin, Signature, cuda_pycuda, load, loader
from tilewright.runtime.artifact import ProgramContent, artifact_files, manifest_path
from tilewright.runtime.cuda_driver import Driver, use_driver
from tilewright.runtime.cuda_launch import KernelLaunch, kernels_to_json
from tilewright.runtime.cuda_memory import DeviceArray
from tilewright.runtime.manifest import Provenance, description
from tilewright.runtime.signature import Packing
from tilewright.target import CudaTarget

from ..test_imports import GROUND
from .cuda_double import H200, DoubleDriver, DoubleKernel, Launched

IMAGE = b"\x7fELF of a kernel"
N = 32
SIGNATURE = Signature(
    "twice", (Argument("A", "float32", (N,)), Argument("B", "float32", (N,), role="out")), 64
)
LAUNCH = KernelLaunch("twice_0", (1, 1, 1), (N, 1, 1), (0, 1, 2), 1024)
ORIGIN = Origin("record", "abc123", "measured: 8.9 us", 0.125, "s0")
PROVENANCE = Provenance(ORIGIN)
SM_90A = CudaTarget.named("sm_90a")


def twice(launched: Launched) -> None:
    launched.array(1, "float32", (N,))[...] = 2 * launched.array(0, "float32", (N,))


@pytest.fixture
def double() -> Iterator[DoubleDriver]:
    driver = DoubleDriver()
    driver.provide(IMAGE, {"twice_0": DoubleKernel(twice)})
    with use_driver(driver):
        yield driver


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that do not fit are looked at again at once."""
    monkeypatch.setattr(loader, "_REPLACING_SECONDS", 0)


def write(
    path: Path,
    signature: Signature = SIGNATURE,
    target: CudaTarget = SM_90A,
    lists: Any = None,
) -> Path:
    needs = {"kernels": [kernels_to_json([LAUNCH])] if lists is None else lists}
    code = File(path, IMAGE + description(signature, target, target.features, needs))
    content = ProgramContent(signature, needs, PROVENANCE)
    replace_files(artifact_files(code, target, {"nvcc": "13.0.88"}, [content]))
    return path


def edit(path: Path, **changes: Any) -> Path:
    """Change what the code needs as the manifest says, and its digest to that of what it says."""
    data = json.loads(manifest_path(path).read_text())
    data["programs"][0]["needs"].update(changes)
    covered = {key: value for key, value in data.items() if key != "digest"}
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
    data["digest"] = hashlib.sha256(text.encode()).hexdigest()
    manifest_path(path).write_text(json.dumps(data))
    return path


def test_an_artifact_is_loaded_and_called(double: DoubleDriver, tmp_path: Path) -> None:
    path = write(tmp_path / "twice.cubin")
    assert {p.name for p in tmp_path.iterdir()} == {"twice.cubin", "twice.cubin.json"}
    assert path.read_bytes().startswith(IMAGE)
    mod = load(path)
    a, b = DeviceArray.of(np.arange(N, dtype=np.float32)), DeviceArray.of(np.zeros(N, np.float32))
    mod(a, b)
    assert (b.numpy() == 2 * a.numpy()).all()
    assert (mod.signature, mod.target, mod.origin, mod.device) == (SIGNATURE, SM_90A, ORIGIN, 0)
    assert double.device(0).launches[0].shared_bytes == 1024
    assert mod.resources["twice_0"]["threads"] == N


def test_an_artifact_is_loaded_to_a_device_that_is_named(tmp_path: Path) -> None:
    driver = DoubleDriver([H200, replace(H200, ordinal=1)])
    driver.provide(IMAGE, {"twice_0": DoubleKernel(twice)})
    path = write(tmp_path / "twice.cubin")
    with use_driver(driver):
        mod = load(path, device=1)
        assert mod.device == 1
        a = DeviceArray.of(np.ones(N, np.float32), 1)
        b = DeviceArray.of(np.zeros(N, np.float32), 1)
        mod(a, b)
        assert (b.numpy() == 2).all()
        assert load(path).device == 0
        with pytest.raises(ArtifactError):
            load(path, device=2)
        for wrong in (-1, True, "1"):
            with pytest.raises(ArgumentError):
                load(path, device=wrong)  # type: ignore[arg-type]


def test_packers_are_functions_of_the_image(double: DoubleDriver, tmp_path: Path) -> None:
    double.provide(IMAGE, {"twice_0": DoubleKernel(twice), "pack": DoubleKernel(twice)})
    operand = Argument("W", "float32", (N,), constant=True)
    packed = replace(operand, packing=Packing("f_pack_W", operand, "A"))
    lists = [[], kernels_to_json([KernelLaunch("pack", (1, 1, 1), (N, 1, 1), (0, 1))])]
    mod = load(write(tmp_path / "f.cubin", Signature("f", (packed,)), SM_90A, lists))
    made = mod.pack("W", DeviceArray.of(np.ones(N, np.float32)))
    assert (made.numpy() == 2).all()


def test_an_artifact_for_another_architecture(double: DoubleDriver, tmp_path: Path) -> None:
    path = write(tmp_path / "twice.cubin", target=CudaTarget.named("sm_80"))
    with pytest.raises(ArtifactError):
        load(path)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86"])
def test_devices_run_code_for_older_ones_of_their_generation(tmp_path: Path, arch: str) -> None:
    driver = DoubleDriver([replace(H200, capability=(8, 9), name="NVIDIA L40")])
    driver.provide(IMAGE, {"twice_0": DoubleKernel(twice)}, arch="sm_8")
    with use_driver(driver):
        assert load(write(tmp_path / "twice.cubin", target=CudaTarget.named(arch))).device == 0


def test_an_image_that_the_driver_refuses(double: DoubleDriver, tmp_path: Path) -> None:
    path = write(tmp_path / "twice.cubin")
    double.images.clear()
    with pytest.raises(ArtifactError, match="does not load code for .*CUDA_ERROR_INVALID_IMAGE"):
        load(path)


def test_a_kernel_that_the_image_lacks(double: DoubleDriver, tmp_path: Path) -> None:
    lists = [kernels_to_json([replace(LAUNCH, symbol="thrice_0")])]
    path = write(tmp_path / "twice.cubin", lists=lists)
    with pytest.raises(ArtifactError):
        load(path)


def test_a_kernel_that_asks_too_much(double: DoubleDriver, tmp_path: Path) -> None:
    double.provide(IMAGE, {"twice_0": DoubleKernel(twice, registers=255, max_threads=16)})
    with pytest.raises(ArtifactError):
        load(write(tmp_path / "twice.cubin"))


def test_a_machine_without_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> Driver:
        raise TargetError("there is no driver", hint="install it")

    monkeypatch.setattr(cuda_pycuda, "open_driver", no_driver)
    with pytest.raises(ArtifactError):
        load(write(tmp_path / "twice.cubin"))


LAUNCHES = [LAUNCH.to_json()]


@pytest.mark.parametrize(
    ("lists", "place"),
    [
        (None, ""),
        ({}, ""),
        ([], None),
        ([LAUNCHES, LAUNCHES], None),
        ([None], "kernels"),
        ([[None]], "kernels[0]"),
        ([[{**LAUNCHES[0], "grid": [0, 1, 1]}]], "kernels[0].grid"),
        ([[{**LAUNCHES[0], "arguments": [7]}]], "kernels[0].arguments"),
        ([[{**LAUNCHES[0], "symbol": "../x"}]], "kernels[0].symbol"),
        ([[{**LAUNCHES[0], "shared_bytes": 2**40}]], "kernels[0].shared_bytes"),
        ([LAUNCHES * 5000], "kernels"),
    ],
)
def test_malformed_manifests_are_refused(
    double: DoubleDriver, tmp_path: Path, lists: Any, place: str | None
) -> None:
    path = edit(write(tmp_path / "twice.cubin"), kernels=lists)
    with pytest.raises(ArtifactError) as caught:
        load(path)
    assert caught.value.data.get("at") == place
    assert not double.device(0).modules


@pytest.mark.parametrize(
    "changes", [{"grid": [2, 1, 1]}, {"block": [16, 1, 1]}, {"arguments": [1, 0, 2]}]
)
def test_a_manifest_of_other_launches_is_refused(
    double: DoubleDriver, tmp_path: Path, changes: Any
) -> None:
    path = edit(write(tmp_path / "twice.cubin"), kernels=[[{**LAUNCHES[0], **changes}]])
    with pytest.raises(ArtifactError):
        load(path)


def test_damaged_code_is_refused(double: DoubleDriver, tmp_path: Path) -> None:
    path = write(tmp_path / "twice.cubin")
    path.write_bytes(path.read_bytes()[:-9] + b"XXXXXXXXX")
    with pytest.raises(ArtifactError, match="is not the file of its manifest: expected sha256"):
        load(path)


CODE = """
import sys
from dataclasses import replace
import numpy as np
import tilewright as tw
from tests.runtime.cuda_double import H200, DoubleDriver, DoubleKernel
from tilewright.runtime.cuda_driver import use_driver
from tilewright.runtime.cuda_memory import DeviceArray

driver = DoubleDriver([replace(H200, memory_bytes=1 << 27)])
driver.provide(bytes.fromhex(sys.argv[2]), {"twice_0": DoubleKernel(lambda launched: None)})
with use_driver(driver):
    module = tw.load(sys.argv[1])
    module(*(DeviceArray.of(np.zeros(32, np.float32)) for _ in range(2)))
    module.time(*(DeviceArray.of(np.zeros(32, np.float32)) for _ in range(2)))
names = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(*sorted(name for name in names if not name.startswith("_")))
named = (name.split(".") for name in sys.modules if name.startswith("tilewright."))
print(*sorted({of for _, of, *inside in named if inside}))
"""


def test_loading_takes_numpy_alone(tmp_path: Path, root: Path) -> None:
    path = write(tmp_path / "twice.cubin")
    run = subprocess.run(
        [sys.executable, "-c", CODE, str(path), IMAGE.hex()],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stderr == ""
    libraries, packages = run.stdout.splitlines()
    assert set(libraries.split()) <= {"numpy", "cython_runtime", "tests", "tilewright"}
    assert set(packages.split()) <= {"runtime", *GROUND}
