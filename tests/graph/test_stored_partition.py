"""Graphs whose parts several providers run, as files: loaded, they compute what was built."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.checked_json import sealed
from tilewright.base.errors import ArtifactError, BuildError, ProviderError, UnsupportedError
from tilewright.building.providers import PROVIDERS, register_provider
from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.ir import Node
from tilewright.graph.provider import Provider
from tilewright.runtime import signing
from tilewright.runtime.part_loader import LOADERS, Call
from tilewright.runtime.partition_evidence import PartitionEvidence
from tilewright.runtime.partitioned import PartitionedModel
from tilewright.runtime.stored_partition import part_path
from tilewright.target import Target

from .random_graphs import a_graph

TARGET = "cpu -threads=1"
pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang", "ld")), reason="no linker here"
)


class Kept(Provider):
    """Runs what `able` allows with numpy. What it stores is the place of a graph in a list."""

    graphs: ClassVar[list[Graph]] = []

    def __init__(self, name: str, able: Callable[[Node], bool] = lambda _: True) -> None:
        self.name = name
        self.able = able
        self.installed = "1"
        self.fails_at: int | None = None

    def version(self) -> str:
        return self.installed

    def refusal(self, node: Node) -> str | None:
        return None if self.able(node) else "not here"

    def seconds(self, node: Node) -> float:
        return 0.0

    def store(self, graph: Graph, target: Target) -> bytes:
        del target
        self.graphs.append(graph)
        return str(len(self.graphs) - 1).encode()

    def load(self, content: bytes, target: Target) -> Call:
        graph, calls = self.graphs[int(content)], 0

        def call(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == self.fails_at:
                raise ZeroDivisionError("a bug")
            return graph.reference(*given)

        return call

    def compile(self, graph: Graph, target: Target) -> Call:
        return self.load(self.store(graph, target), target)


Register = Callable[[Provider], Provider]


@pytest.fixture
def register() -> Iterator[Register]:
    """Registers providers for a test."""
    providers, loaders = dict(PROVIDERS), dict(LOADERS)
    yield register_provider
    PROVIDERS.clear()
    PROVIDERS.update(providers)
    LOADERS.clear()
    LOADERS.update(loaders)


def chain(*operators: str, size: int = 64) -> Graph:
    b = Builder("chain")
    value = b.input("x", TensorType("float32", (size,)))
    for operator in operators:
        value = b.add(operator, value)
    return b.graph({"y": value})


def x_of(size: int = 64) -> Any:
    return np.linspace(-1, 1, size, dtype=np.float32)


def written(path: Path, **options: Any) -> Path:
    """`negative(tanh(exp(x)))`, where `kept` runs tanh."""
    options = {"providers": ["tilewright", "kept"], "placement": {"tanh": "kept"}} | options
    graph = chain("exp", "tanh", "negative")
    return tw.build_library(graph, path, TARGET, allow=("default",), **options).files[0]


@pytest.fixture
def kept(register: Register) -> Kept:
    provider = Kept("kept")
    register(provider)
    return provider


def test_a_signature_covers_the_parts(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are files beside the code, of which the manifest has the digests."""
    pytest.importorskip("minisign", reason="py-minisign is not installed")
    path = written(tmp_path / "chain.so")
    key, public = signing.make_keys(tmp_path / "one.key")
    tw.sign(path, key)
    expected = tw.load(path)(x_of())
    np.testing.assert_array_equal(tw.load(path, keys=[public])(x_of()), expected)
    kept.store(chain("exp"), Target.parse(TARGET))
    part = part_path(path, 1)
    before = part.read_bytes()
    part.write_bytes(str(int(before) + 1).encode())
    monkeypatch.setattr(kept, "load", None)  # which nobody calls
    with pytest.raises(ArtifactError):
        tw.load(path, keys=[public])
    with pytest.raises(ArtifactError):
        tw.sign(path, key)


@pytest.mark.parametrize("seed", [*range(8), 14])
def test_what_is_loaded_computes_what_was_built(
    seed: int, register: Register, tmp_path: Path
) -> None:
    """Any cut; with kernels in two of the cases, as these take long to compile."""
    case = a_graph(seed)
    rng = np.random.default_rng(seed)
    one = {node: int(rng.integers(3)) for node in case.graph.nodes}
    register(Kept("a", lambda node: one.get(node, 0) == 0))
    register(Kept("b", lambda node: one.get(node, 1) == 1))
    register(Kept("c"))
    last = "tilewright" if seed in (3, 14) else "c"
    options: dict[str, Any] = {"providers": ["a", "b", last], "allow": ("default",)}
    built = tw.build(case.graph, TARGET, **options)
    if not isinstance(built, PartitionedModel):
        return
    library = tw.build_library(case.graph, tmp_path / "case.so", TARGET, **options)
    loaded = tw.load(library.files[0])
    assert isinstance(loaded, PartitionedModel)
    given = [*case.arguments.values()]
    for found, wanted in zip(results(loaded(*given)), results(built(*given)), strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype
    assert loaded.counts == built.counts
    assert (loaded.inputs, loaded.outputs) == (built.inputs, built.outputs)
    assert loaded.evidence.transfers == built.evidence.transfers
    assert [p.operators for p in loaded.evidence.parts] == [
        p.operators for p in built.evidence.parts
    ]


def results(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def test_a_partitioned_model_is_files(kept: Kept, tmp_path: Path) -> None:
    path = written(tmp_path / "chain.so")
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["chain.so", "chain.so.json", "chain.so.part1"]
    model = tw.load(path)
    np.testing.assert_allclose(model(x_of()), -np.tanh(np.exp(x_of())), rtol=1e-5)
    assert model.counts == {"runs": 1, "tilewright": 2, "kept": 1, "transferred_bytes": 512}
    assert [part.kernels is None for part in model.evidence.parts] == [False, True, False]
    assert model.evidence.facts()["kernels"] == "2 by default, arena 0 B, weights 0 B"
    assert PartitionEvidence.from_json(model.evidence.to_json()) == model.evidence
    assert isinstance(model.parts[0], tw.Model)
    assert model.parts[0].kernels
    told = json.loads((tmp_path / "chain.so.json").read_text())
    assert told["programs"][0]["partition"]["parts"][1]["file"]["version"] == "1"


def test_equal_kernels_of_two_parts_and_weights(register: Register, tmp_path: Path) -> None:
    """Each part has its slice of the weights, and outputs that are constants are there too."""
    register(Kept("kept"))
    rng = np.random.default_rng(0)
    b = Builder("twice")
    x = b.input("x", TensorType("float32", (4, 16)))
    for last in (False, True):
        w = b.constant(rng.standard_normal((16, 16)), "float32")
        x = b.add("matmul", x, w)
        x = x if last else b.add("tanh", x)
    held = b.constant(np.arange(3), "int64")
    graph = b.graph({"y": x, "held": held})
    options: dict[str, Any] = {
        "providers": ["tilewright", "kept"],
        "placement": {"tanh": "kept"},
        "allow": ("default",),
    }
    path = tw.build_library(graph, tmp_path / "twice.so", TARGET, **options).files[0]
    given = rng.standard_normal((4, 16)).astype(np.float32)
    loaded, built = tw.load(path), tw.build(graph, TARGET, **options)
    for found, wanted in zip(loaded(given), built(given), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert loaded(given)[1].flags.writeable
    first, _, second = loaded.parts
    assert first.weights.size == second.weights.size == 16 * 16 * 4
    assert not np.may_share_memory(first.weights, second.weights)


def test_a_graph_of_which_no_part_is_compiled(kept: Kept, tmp_path: Path) -> None:
    library = tw.build_library(chain("exp"), tmp_path / "other.so", TARGET, providers=["kept"])
    np.testing.assert_allclose(tw.load(library.files[0])(x_of()), np.exp(x_of()), rtol=1e-6)


def test_what_cannot_be_stored_is_refused(tmp_path: Path, register: Register) -> None:
    own = Kept("plain")
    own.store = partial(Provider.store, own)  # type: ignore[method-assign]
    register(own)
    for provider in ("reference", "plain"):
        options = {"providers": ["tilewright", provider], "placement": {"tanh": provider}}
        with pytest.raises(UnsupportedError) as error:
            written(tmp_path / "chain.so", **options)
        assert error.value.data["reasons"] == [provider]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("answer", [None, "text", ZeroDivisionError("a bug")])
def test_a_provider_that_stores_no_bytes(kept: Kept, tmp_path: Path, answer: Any) -> None:
    def store(graph: Graph, target: Target) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    kept.store = store  # type: ignore[method-assign]
    with pytest.raises(ProviderError) as error:
        written(tmp_path / "chain.so")
    assert error.value.data["provider"] == "kept"


def test_object_files_have_kernels_only(kept: Kept, tmp_path: Path) -> None:
    with pytest.raises(BuildError):
        written(tmp_path / "chain.o", object_file=True)


def test_models_are_for_processors(kept: Kept, tmp_path: Path) -> None:
    with pytest.raises(BuildError):
        tw.build_library(
            chain("exp"), tmp_path / "chain.cubin", "cuda -arch=sm_90a", providers=["kept"]
        )


def test_never_forbids_what_is_built_and_what_is_loaded(kept: Kept, tmp_path: Path) -> None:
    with pytest.raises(BuildError):
        written(tmp_path / "chain.so", never=["kept"])
    path = written(tmp_path / "chain.so")
    tw.load(path, never=("onnxruntime",))
    with pytest.raises(ProviderError) as error:
        tw.load(path, never=("kept",))
    assert error.value.data["provider"] == "kept"
    with pytest.raises(tw.ArgumentError):
        tw.load(path, never="kept")


def test_a_provider_that_is_not_there_or_of_another_version(kept: Kept, tmp_path: Path) -> None:
    path = written(tmp_path / "chain.so")
    kept.installed = "2"
    with pytest.raises(ProviderError) as error:
        tw.load(path)
    assert (error.value.data["expected"], error.value.data["found"]) == ("1", "2")
    del LOADERS["kept"]
    with pytest.raises(ProviderError) as error:
        tw.load(path)
    assert error.value.data["provider"] == "kept"


@pytest.mark.parametrize("answer", [None, ZeroDivisionError("a bug")])
def test_a_provider_that_does_not_load(kept: Kept, tmp_path: Path, answer: Any) -> None:
    path = written(tmp_path / "chain.so")

    def load(content: bytes, target: Target) -> Any:
        if answer is not None:
            raise answer

    kept.load = load  # type: ignore[method-assign]
    with pytest.raises(ProviderError) as error:
        tw.load(path)
    assert error.value.data["provider"] == "kept"


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_provider_that_fails_at_its_nth_call(kept: Kept, tmp_path: Path, number: int) -> None:
    path = written(tmp_path / "chain.so")
    kept.fails_at = number
    model = tw.load(path)
    for n in range(1, 7):
        if n == number:
            with pytest.raises(ProviderError) as error:
                model(x_of())
            assert error.value.data["provider"] == "kept"
        else:
            np.testing.assert_allclose(model(x_of()), -np.tanh(np.exp(x_of())), rtol=1e-5)
    assert (model.counts["runs"], model.counts["kept"], model.counts["tilewright"]) == (6, 6, 11)


@pytest.mark.parametrize("damage", ["missing", "short", "other"])
def test_a_part_that_is_damaged(kept: Kept, tmp_path: Path, damage: str) -> None:
    path = written(tmp_path / "chain.so")
    part = part_path(path, 1)
    if damage == "missing":
        part.unlink()
    else:
        content = part.read_bytes()
        part.write_bytes(content[:-1] if damage == "short" else b"x" * len(content))
    with pytest.raises(ArtifactError):
        tw.load(path)


Change = Callable[[dict[str, Any]], None]


def swap_outputs(stored: dict[str, Any]) -> None:
    parts = stored["plan"]["parts"]
    parts[0]["writes"], parts[1]["writes"] = parts[1]["writes"], parts[0]["writes"]


CHANGES: dict[str, Change] = {
    "reads what is later": lambda s: s["plan"]["parts"][0].update(reads=[3]),
    "writes an input": lambda s: s["plan"]["parts"][0].update(writes=[0]),
    "kills nothing": lambda s: s["plan"]["parts"][0].update(dead=[2]),
    "kills an output": lambda s: s["plan"]["parts"][2].update(dead=[3]),
    "no output": lambda s: s["plan"].update(outputs=[["y", 9]]),
    "no type": lambda s: s["plan"].update(values=s["plan"]["values"][:1]),
    "another shape": lambda s: s["plan"]["values"][1].update(shape=[65]),
    "another dtype": lambda s: s["plan"]["values"][1].update(dtype="float64"),
    "a part less": lambda s: s.update(parts=s["parts"][:2]),
    "two kinds": lambda s: s["parts"][0].update(file=s["parts"][1]["file"]),
    "no kind": lambda s: s["parts"][0].update(function=None),
    "other order": swap_outputs,
    "weights": lambda s: s["parts"][0]["function"].update(weights=64),
    "another function": lambda s: s["parts"][0]["function"]["signature"].update(name="chain_2"),
    "a workspace": lambda s: s["parts"][0]["function"]["signature"].update(workspace_bytes=64),
    "fewer steps": lambda s: s["parts"][0]["function"].update(profiled=0),
    "a twin": lambda s: s["plan"].update(inputs=["x", "x"]),
    "held": lambda s: s.update(constants=[0]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_manifest_that_says_something_else(kept: Kept, tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "chain.so")
    place = path.with_name("chain.so.json")
    told = json.loads(place.read_text())
    CHANGES[name](told["programs"][0]["partition"])
    told.pop("digest")
    place.write_text(json.dumps(sealed(told)))
    with pytest.raises(ArtifactError):
        tw.load(path)


@pytest.mark.parametrize("told", [None, {}, {"parts": []}])
def test_a_manifest_without_evidence(kept: Kept, tmp_path: Path, told: Any) -> None:
    path = written(tmp_path / "chain.so")
    place = path.with_name("chain.so.json")
    manifest = json.loads(place.read_text())
    provenance = manifest["programs"][0]["provenance"]
    if told == {"parts": []}:
        told = provenance["evidence"] | {"parts": [], "transfers": []}
    provenance["evidence"] = told
    manifest.pop("digest")
    place.write_text(json.dumps(sealed(manifest)))
    with pytest.raises(ArtifactError):
        tw.load(path)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of numbers, texts and nulls of JSON."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))
        else:
            yield (*path, key)


@pytest.mark.parametrize("seed", range(40))
def test_an_edited_manifest_is_refused_or_runs(kept: Kept, tmp_path: Path, seed: int) -> None:
    """Whoever edits it may wire values otherwise, but never gets more than a typed error."""
    path = written(tmp_path / "chain.so")
    place = path.with_name("chain.so.json")
    told = json.loads(place.read_text())
    rng = np.random.default_rng(seed)
    stored = told["programs"][0]["partition"]
    everywhere = [*places(stored)]
    for _ in range(int(rng.integers(1, 3))):
        *above, last = everywhere[int(rng.integers(len(everywhere)))]
        part = stored
        for key in above:
            part = part[key]
        others: list[Any] = (
            [0, 1, 2, 3, -1, 1 << 40] if isinstance(part[last], int) else ["x", None]
        )
        part[last] = others[int(rng.integers(len(others)))]
    told.pop("digest")
    place.write_text(json.dumps(sealed(told)))
    try:
        result = tw.load(path)(x_of())
    except tw.TilewrightError:
        return
    assert result.shape == (64,)


def test_parts_of_onnx_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    options: dict[str, Any] = {
        "providers": ["tilewright", "onnxruntime"],
        "placement": {"tanh": "onnxruntime"},
    }
    path = written(tmp_path / "chain.so", **options)
    held = onnx.load_from_string(part_path(path, 1).read_bytes())
    assert [node.op_type for node in held.graph.node] == ["Tanh"]
    model, built = tw.load(path), tw.build(chain("exp", "tanh", "negative"), TARGET, **options)
    np.testing.assert_array_equal(model(x_of()), built(x_of()))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ProviderError) as error:
        tw.load(path)
    assert error.value.data["provider"] == "onnxruntime"


def test_later_versions_take_parts_of_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = PROVIDERS["onnxruntime"]
    monkeypatch.setattr(type(loader), "version", lambda _: "1.31.0")
    taken = {v: loader.takes(v) for v in ("1.9.2", "1.31.0", "1.31.1", "1.32.0rc1", "2.0")}
    assert [v for v, taken in taken.items() if taken] == ["1.9.2", "1.31.0"]


def test_into_writes_outputs(kept: Kept) -> None:
    options: dict[str, Any] = {"placement": {"tanh": "kept"}, "allow": ("default",)}
    model: Any = tw.build(chain("exp", "tanh"), TARGET, providers=["tilewright", "kept"], **options)
    out = np.empty(64, np.float32)
    model.into(x_of(), out=out)
    np.testing.assert_array_equal(out, model(x_of()))
    model.into(x=x_of(), out=[out])
    overlapping = np.zeros(96, np.float32)
    read_only = out.copy()
    read_only.flags.writeable = False
    for wrong in (
        np.empty(63, np.float32), np.empty(64), [], [out, out], np.empty(128, np.float32)[::2],
        read_only,
    ):  # fmt: skip
        with pytest.raises(tw.ArgumentError):
            model.into(x_of(), out=wrong)
    with pytest.raises(tw.ArgumentError):
        model.into(overlapping[:64], out=overlapping[32:])


def test_a_profile_has_kernels_and_parts(kept: Kept) -> None:
    options: dict[str, Any] = {"placement": {"tanh": "kept"}, "allow": ("default",)}
    model: Any = tw.build(
        chain("exp", "tanh", "exp"), TARGET, providers=["tilewright", "kept"], **options
    )
    told = model.profile(x_of())
    groups = {kernel.operators: kernel.groups for kernel in told.kernels}
    assert groups == {"exp": 2, "tanh by kept": 1}
    assert len(told.steps) == 3
    assert abs(sum(kernel.share for kernel in told.kernels) - 1) < 1e-6
    by_name = {kernel.operators: kernel for kernel in told.kernels}
    assert by_name["tanh by kept"].bytes == 512
    assert "tanh by kept" in str(told)
    assert type(told).from_json(told.to_json()) == told


def test_a_program_that_is_called_as_a_part_of_another_is_refused(
    tmp_path: Path, kept: Kept
) -> None:
    """Regression: the linker said that, in its words."""
    programs = {"two": chain("exp", "tanh"), "two_0": chain("tanh")}
    with pytest.raises(tw.BuildError) as refused:
        tw.build_library(
            programs, tmp_path / "two.so", TARGET, allow=("default",), placement={"tanh": "kept"},
            providers=["tilewright", "kept"],
        )  # fmt: skip
    assert refused.value.data["name"] == "two_0"


@pytest.mark.parametrize("placement", [{}, {"tanh": "kept"}])
def test_a_partition_that_was_made_before_is_shipped(
    tmp_path: Path, register: Register, placement: dict[str, str]
) -> None:
    register(Kept("kept", lambda node: node.operator == "tanh" and bool(placement)))
    graph = chain("exp", "tanh", "negative")
    found = tw.partition(graph, ["tilewright", "kept"], placement)
    assert len(found.parts) == (3 if placement else 1)
    (wanted,) = graph.reference(x_of())
    programs: list[Any] = [found, {"other": found}]
    for n, given in enumerate(programs):
        made = tw.build_library(given, tmp_path / f"{n}.so", TARGET, allow=("default",))
        np.testing.assert_allclose(tw.load(made.files[0])(x_of()), wanted, rtol=1e-5)
