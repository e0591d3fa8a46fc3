"""GPUs: damaged artifacts and hostile arrays, on a driver of our own.

An artifact is refused, or is the one that was written. An array is refused by an `ArgumentError`,
or the result is right.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import Module, load
from tilewright.base.errors import ArgumentError, ArtifactError
from tilewright.base.files import File, replace_files
from tilewright.runtime import Argument, Origin, Signature
from tilewright.runtime.artifact import ProgramContent, artifact_files, manifest_path
from tilewright.runtime.cuda_driver import use_driver
from tilewright.runtime.cuda_launch import KernelLaunch, KernelResources, kernels_to_json
from tilewright.runtime.manifest import Provenance, description
from tilewright.target import CudaTarget

from ..runtime.cuda_arrays import Exported, Interfaced, Library
from ..runtime.cuda_double import DoubleDriver, DoubleKernel, Launched
from .attempt import Attack, Attempt, refusal, require
from .damage import damaged, edited

SHAPE = (6, 8)
SIGNATURE = Signature(
    "scale",
    (
        Argument("A", "float32", SHAPE),
        Argument("B", "float32", SHAPE, role="out"),
        Argument("s", "float32", kind="scalar"),
    ),
    64,
)
IMAGE = b"\x7fELF of a kernel" + bytes(range(256)) * 8
KERNELS = (
    KernelLaunch("scale_0", (6, 1, 1), (8, 1, 1), (0, 3, 2), 64, KernelResources(32)),
    KernelLaunch("scale_1", (1, 6, 1), (8, 1, 1), (3, 1)),
)
TARGET = CudaTarget.named("sm_90a")


def prepare(folder: Path) -> Attack:
    needs = {"kernels": [kernels_to_json(KERNELS)]}
    code = File(
        folder / "scale.cubin", IMAGE + description(SIGNATURE, TARGET, TARGET.features, needs)
    )
    content = ProgramContent(SIGNATURE, needs, Provenance(Origin("schedule")))
    files = artifact_files(code, TARGET, {"nvcc": "13.0.88"}, [content])

    def attack(attempt: Attempt) -> str:
        driver = DoubleDriver()
        driver.provide(
            IMAGE,
            {
                "scale_0": DoubleKernel(lambda seen: _scale(seen, seen.number(2, "float32"))),
                "scale_1": DoubleKernel(lambda seen: _scale(seen, 1)),
            },
        )
        replace_files([File(attempt.folder / file.path.name, file.content) for file in files])
        path = attempt.folder / "scale.cubin"
        with use_driver(driver):
            if attempt.chance(0.5):
                return _arrays(load(path), attempt)
            return _artifact(path, attempt)

    return attack


def _scale(launched: Launched, factor: Any) -> None:
    source = launched.array(0, "float32", (1,) if factor == 1 else SHAPE)
    if factor == 1:  # of the workspace, which has room for 16 numbers
        launched.array(1, "float32", SHAPE)[...] = source[0]
    else:
        launched.array(1, "float32", (1,))[...] = source[0, 0] * factor


def _artifact(path: Path, attempt: Attempt) -> str:
    name, damage = attempt.choice(_DAMAGE)
    attempt.note(name)
    damage(path, attempt)
    found: list[Module] = []
    refused = refusal(lambda: found.append(load(path)))
    if refused is not None:
        require(isinstance(refused, ArtifactError), f"a {type(refused).__name__}: {refused}")
        return "refused"
    (module,) = found
    require(module.signature == SIGNATURE, f"loaded as {module.signature!r:.500}")
    given = [Interfaced(_values()), Interfaced(_values())]
    module(*given, 2.0)
    require(bool((given[1].numpy() == 6).all()), "a wrong result")
    return "loaded and right"


def _bytes(path: Path, attempt: Attempt) -> None:
    path.write_bytes(damaged(path.read_bytes(), attempt))


def _manifest_bytes(path: Path, attempt: Attempt) -> None:
    _bytes(manifest_path(path), attempt)


def _fields(path: Path, attempt: Attempt) -> None:
    """Edit the manifest, or the launches of its kernels, and make its digest right again."""
    manifest = manifest_path(path)
    data = json.loads(manifest.read_text())
    for n in range(attempt.choice((1, 1, 3))):
        if n == 0 and attempt.chance(0.7):
            needs = data["programs"][0]["needs"]
            needs["kernels"] = edited(needs["kernels"], attempt)
        else:
            data = edited(data, attempt)
    if isinstance(data, dict):
        covered = {key: value for key, value in data.items() if key != "digest"}
        text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
        data["digest"] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    manifest.write_text(json.dumps(data), "utf-8", "surrogatepass")


_DAMAGE: tuple[tuple[str, Callable[[Path, Attempt], None]], ...] = (
    ("bytes of the code", _bytes),
    ("bytes of the manifest", _manifest_bytes),
    ("fields", _fields),
    ("fields", _fields),
    ("fields", _fields),
)


def _values() -> Any:
    return np.full(SHAPE, 3, np.float32)


def _arrays(module: Module, attempt: Attempt) -> str:
    given: list[Any] = [_array(attempt) for _ in range(2)]
    at = attempt.pick(2)
    lie = attempt.choice(_LIES)
    given[at] = lie(attempt)
    bound = attempt.chance(0.3)
    stream = attempt.choice(_STREAMS)
    attempt.note(f"{lie.__name__} as argument {at}, on {stream!r:.100}, bound: {bound}")

    def call() -> None:
        if bound:
            module.bind(*given, 2.0, stream=stream)()
        else:
            module(*given, 2.0, stream=stream)

    refused = refusal(call)
    if refused is not None:
        require(isinstance(refused, ArgumentError), f"a {type(refused).__name__}: {refused}")
        return f"refused ({lie.__name__})"
    module.synchronize()
    require(bool((given[1].numpy() == 6).all()), "a wrong result")
    return "taken and right"


def _array(attempt: Attempt) -> Any:
    return attempt.choice((Exported, Interfaced, _LIBRARY.array))(_values())


_LIBRARY = Library()
_STREAMS: tuple[Any, ...] = (None, None, None, None, 0, 1, -1, 2**64, 0.5, "s", object(), [])


def interface(attempt: Attempt) -> Any:
    """An interface with other fields; its address is a true one, or none at all."""
    own = Interfaced(_values())
    fields: Any = own.__cuda_array_interface__
    for _ in range(attempt.choice((1, 1, 2))):
        key = attempt.choice(("shape", "typestr", "strides", "version", "data", "mask", "stream"))
        value = edited(fields.get(key), attempt)
        if key == "data" and attempt.chance(0.5):
            value = attempt.choice((0, 1, 4096, fields["data"][0] + 4)), False
        if key == "stream" and isinstance(value, int) and value > 1:
            value = None  # whether there is such a stream, nobody can know
        fields = {**fields, key: value}
    if attempt.chance(0.1):
        fields = edited(fields, attempt)
    if _elsewhere(fields, own):
        fields = own.__cuda_array_interface__
    attempt.note(f"{fields!r:.500}")
    own.__class__ = type("Told", (Interfaced,), {"__cuda_array_interface__": fields})
    return own


def _elsewhere(fields: Any, own: Interfaced) -> bool:
    """Whether an interface names memory of the device other than its own: nobody can know."""
    try:
        address = fields["data"][0]
        return bool(abs(address - own.view.pointer) > 4 and address > 4096)
    except Exception:  # noqa: BLE001 - what is malformed names none
        return False


def view(attempt: Attempt) -> Any:
    """An array of another dtype, shape or stride, by capsules or the library's functions."""
    make: Any = attempt.choice((Exported, Interfaced, _LIBRARY.array))
    values = _values()
    match attempt.pick(6):
        case 0:
            return make(values.astype(np.float64))
        case 1:
            return make(values[:5])
        case 2:
            return make(values).changed(strides=(4, 24), shape=SHAPE)
        case 3:
            return make(values).changed(read_only=True)
        case 4:
            found = make(values)
            return found.changed(pointer=found.view.pointer + attempt.choice((1, 4, 8)))
        case _:
            return make(values.reshape(8, 6))


def exporter(attempt: Attempt) -> Any:
    """An exporter that raises, returns something else, or names another device."""
    results: tuple[Any, ...] = (None, 0, "x", (2,), (2, 7), (1, 0), (2.5, 0), (2**70, 0), object())
    device, capsule = attempt.choice(results), attempt.choice(results)
    error = attempt.choice((None, ValueError("no"), KeyError(), BufferError("a gradient")))

    class Odd(Exported):
        def __dlpack_device__(self) -> Any:
            if error is not None and attempt.chance(0.5):
                raise error
            return device if attempt.chance(0.5) else (2, 0)

        def __dlpack__(self, **options: Any) -> Any:
            if error is not None:
                raise error
            return capsule

    return Odd(_values())


def nothing(attempt: Attempt) -> Any:
    """What is no array on the device."""
    return attempt.choice((None, 3, "A", [1.0], _values(), object(), type, Interfaced))


_LIES: tuple[Callable[[Attempt], Any], ...] = (interface, view, exporter, nothing)
