"""Bills of materials: what is in them, that they are valid, and equal where artifacts are."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.runtime.artifact import manifest_path

from .commands import Run
from .graph.test_shipping import layers, weights_of, written
from .refusals import refused
from .test_artifact_files import adds

pytest.importorskip("cyclonedx", reason="cyclonedx-python-lib is not installed")
KEPT = Path(__file__).parent / "runtime" / "kept"
PARALLEL = "cpu -threads=2"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel and a model."""
    path = tmp_path_factory.mktemp("built") / "ops.so"
    programs: dict[str, Any] = {"adds": adds(3), "model": layers()}
    return tw.build_library(programs, path, PARALLEL, allow=("default",)).files[0]


def components(text: str) -> dict[str, dict[str, Any]]:
    data = json.loads(text)
    found = [*data["components"], data["metadata"]["component"]]
    return {component["bom-ref"]: component for component in found}


def facts(component: dict[str, Any]) -> dict[str, str]:
    return {p["name"].removeprefix("tilewright:"): p["value"] for p in component["properties"]}


def test_a_bill_is_valid_and_has_what_is_in_the_artifact(library: Path) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    from cyclonedx.schema import SchemaVersion

    text = tw.sbom(library)
    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found, manifest = components(text), json.loads(manifest_path(library).read_text())
    files = {
        "library:ops.so": library,
        "file:ops.h": library.with_suffix(".h"),
        "data:ops.so.weights": weights_of(library),
    }
    for ref, path in files.items():
        (digest,) = found[ref]["hashes"]
        assert digest["content"] == hashlib.sha256(path.read_bytes()).hexdigest()
    for ref, program in zip(
        ("data:adds", "machine-learning-model:model"), manifest["programs"], strict=True
    ):
        told = program["provenance"]["source"]
        assert facts(found[ref]) == {"kind": told["kind"], "digest": told["digest"]}
    assert facts(found["library:ops.so"])["manifest"] == manifest["digest"]
    versions = {c["name"]: c["version"] for c in found.values() if c.get("scope") == "excluded"}
    assert versions == manifest["toolchain"]
    purl = found["tool:llvmlite"]["purl"]
    assert purl == f"pkg:pypi/llvmlite@{manifest['toolchain']['llvmlite']}"
    openmp = any(program["needs"].get("openmp") for program in manifest["programs"])
    assert openmp == ("runtime:libgomp" in found)
    (root,) = (d for d in json.loads(text)["dependencies"] if d["ref"] == "library:ops.so")
    assert {*root["dependsOn"], "library:ops.so"} == found.keys()


def test_equal_artifacts_have_equal_bills(library: Path, tmp_path: Path) -> None:
    for path in library.parent.iterdir():
        shutil.copy(path, tmp_path)
    assert tw.sbom(tmp_path / library.name) == tw.sbom(library)
    made = tw.build_library(adds(4), tmp_path / library.name, PARALLEL, allow=("default",))
    one, other = (json.loads(tw.sbom(path))["serialNumber"] for path in (library, made))
    assert one != other


def test_an_artifact_of_an_older_version_has_one() -> None:
    found = components(tw.sbom(KEPT / "matmul.so"))
    assert {"library:matmul.so", "data:matmul", "tool:llvm"} <= found.keys()


@pytest.mark.parametrize("target", ["cpu -threads=1", PARALLEL])
def test_object_files_have_one(target: str, tmp_path: Path) -> None:
    """Code for several threads calls the OpenMP runtime of the program that it is linked into."""
    sch = adds(3)
    if target == PARALLEL:
        sch.parallel(sch.get_loops(sch.get_block("y"))[0])
    path = tw.build_library(sch, tmp_path / "adds.o", target).files[0]
    found = components(tw.sbom(path))
    (code,) = found["library:adds.o"]["hashes"]
    assert code["content"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert "file:adds.h" in found
    assert ("runtime:libgomp" in found) == (target == PARALLEL)
    assert "tool:linker" not in found


def test_the_parts_of_other_providers(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    options: dict[str, Any] = {"providers": ["onnxruntime", "tilewright"]}
    found = components(tw.sbom(written(layers(), tmp_path / "model.so", **options)))
    assert found["runtime:onnxruntime"]["purl"] == f"pkg:pypi/onnxruntime@{ort.__version__}"
    assert found["data:model.so.part0"]["hashes"][0]["content"] == (
        hashlib.sha256((tmp_path / "model.so.part0").read_bytes()).hexdigest()
    )


def test_a_model_from_a_file(tmp_path: Path, run: Run) -> None:
    """It has the digest of the file and who has read it."""
    onnx_ir = pytest.importorskip("onnx_ir")
    model, bill = tmp_path / "model.onnx", tmp_path / "model.cdx.json"
    model.write_bytes(layers().to_onnx().SerializeToString())
    made = run("build", model, "-o", tmp_path / "model.so", "--sbom", bill, "--json")
    assert made.json["files"][-1] == str(bill)
    assert bill.read_text() == tw.sbom(tmp_path / "model.so")
    found = components(bill.read_text())
    (name,) = made.json["programs"]
    program = found[f"machine-learning-model:{name}"]
    assert program["hashes"][0]["content"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert found["tool:onnx_ir"]["purl"] == f"pkg:pypi/onnx-ir@{onnx_ir.__version__}"


def test_what_has_no_bill(
    library: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in library.parent.iterdir():
        shutil.copy(path, tmp_path)
    copy = tmp_path / library.name
    weights_of(copy).write_bytes(bytes(weights_of(copy).stat().st_size))
    with refused(tw.ArtifactError, weights_of(copy)):
        tw.sbom(copy)
    with refused(tw.BuildError):
        tw.sbom(3)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "cyclonedx", None)
    with refused(tw.BuildError) as caught:
        tw.sbom(library)
    assert "tilewright[sbom]" in str(caught.value.hint)
    model = tmp_path / "model.onnx"
    model.write_bytes(layers().to_onnx().SerializeToString())
    assert run("build", model, "-o", tmp_path / "new.so", "--sbom", tmp_path / "bill").code == 1
    assert not (tmp_path / "new.so").exists()
