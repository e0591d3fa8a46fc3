"""Artifacts whose manifest is damaged, edited, exchanged or no file at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from .artifacts import NAMES, Swapping, copy_artifact, load_and_call, make_libraries
from .attempt import Attack, Attempt
from .damage import damaged, edited, nested


def prepare(folder: Path) -> Attack:
    source = make_libraries(folder)

    def attack(attempt: Attempt) -> str:
        name = attempt.choice(NAMES)
        library = copy_artifact(source, name, attempt.folder)
        what, damage = attempt.choice(_DAMAGE)
        attempt.note(f"{name}: {what}")
        manifest = library.with_name(library.name + ".json")
        if damage is None:
            return _swapped(source, library, name, attempt)
        damage(manifest, attempt)
        return load_and_call(library, attempt, may=(name,))

    return attack


def _swapped(source: Path, library: Path, name: str, attempt: Attempt) -> str:
    """Load while both files are exchanged for those of another kernel of the same name."""
    names = (("affine", "longer"), ("matmul", "wider"))[attempt.pick(2)]
    pairs = [(source / f"{n}.so", source / f"{n}.so.json") for n in names]
    held = ""
    with Swapping(library, pairs, attempt.choice((0.0, 1e-4, 1e-3))):
        for _ in range(8):
            held = load_and_call(library, attempt, may=(name, *names))
    return f"swapped, {held}"


def _bytes(manifest: Path, attempt: Attempt) -> None:
    manifest.write_bytes(damaged(manifest.read_bytes(), attempt))


def _field(manifest: Path, attempt: Attempt) -> None:
    data = json.loads(manifest.read_text())
    for _ in range(attempt.choice((1, 1, 2, 4))):
        data = edited(data, attempt)
    manifest.write_text(json.dumps(data), "utf-8", "surrogatepass")


def _argument(manifest: Path, attempt: Attempt) -> None:
    data = json.loads(manifest.read_text())
    argument = attempt.choice(data["programs"][0]["signature"]["arguments"])
    key = attempt.choice(("shape", "dtype", "strides", "role", "value_range", "name", "kind"))
    before = argument.get(key)
    if key == "shape" and before and attempt.chance(0.7):
        at = attempt.pick(len(before))
        before[at] = attempt.choice((0, 1, before[at] - 1, before[at] + 1, before[at] * 2, 2**62))
    elif key == "role":
        argument[key] = attempt.choice(("in", "out", "inout"))
    elif key == "value_range":
        argument[key] = attempt.choice(([0, 1000], [-5, 40], None, [0, 0], [40, 0]))
    else:
        argument[key] = edited(before, attempt)
    attempt.note(f"{argument['name']!r}: {key} is {argument.get(key)!r:.300}")
    manifest.write_text(json.dumps(data), "utf-8", "surrogatepass")


def _code(manifest: Path, attempt: Attempt) -> None:
    """Damage the facts of the code in the manifest."""
    data = json.loads(manifest.read_text())
    (program,) = data["programs"]
    key, value = attempt.choice(
        (
            ("target", "cpu -mcpu=x86-64 -threads=1"),
            ("target", "cpu -mcpu=x86-64-v4 -threads=4"),
            ("target", "cpu -mcpu=neoverse-n1"),
            ("features", []),
            ("features", ["avx"] * 5000),
            ("size", 0),
            ("size", 2**63),
            ("sha256", "0" * 64),
            ("sha256", data["code"]["sha256"].upper()),
            ("abi", 0),
            ("format", 99),
            ("signature", {**program["signature"], "name": "_init"}),
            ("weights", {"offset": 0, "size": 2**40}),
            ("programs", [program, program]),
            ("programs", []),
        )
    )
    attempt.note(f"{key} is {value!r:.200}")
    next(p for p in (program, program["needs"], data["code"], data) if key in p)[key] = value
    manifest.write_text(json.dumps(data))


def _another(manifest: Path, attempt: Attempt) -> None:
    """The manifest of another kernel, or of its own under another name."""
    source = manifest.with_name("other.json")
    data = json.loads(manifest.read_text())
    data["programs"][0]["signature"]["arguments"] = data["programs"][0]["signature"]["arguments"][
        ::-1
    ]
    source.write_text(json.dumps(data))
    os.replace(source, manifest)


def _costly(manifest: Path, attempt: Attempt) -> None:
    text = attempt.choice(
        (
            "[" * 500_000,
            json.dumps(nested(800)),
            " " * (40 << 20),
            '{"format": ' + "1" * 5000 + "}",
            '{"a": 1, "a": 2}',
            "",
            "null",
            "\ufeff{}",
        )
    )
    attempt.note(f"{len(text)} characters, {text[:20]!r}")
    manifest.write_text(text, encoding="utf-8")


def _arguments(manifest: Path, attempt: Attempt) -> None:
    """Very many arguments, or very many dimensions."""
    data = json.loads(manifest.read_text())
    arguments = data["programs"][0]["signature"]["arguments"]
    if attempt.chance(0.5):
        count = attempt.choice((16, 130, 1200))
        data["programs"][0]["signature"]["arguments"] = [
            {**arguments[k % len(arguments)], "name": f"a{k}"} for k in range(count)
        ]
    else:
        arguments[0]["shape"] = [attempt.choice((1, 2, 2**40))] * attempt.choice((33, 65, 2000))
    manifest.write_text(json.dumps(data))


def no_regular_file(path: Path, attempt: Attempt) -> None:
    """A link, a folder, a pipe, a device, or a file that cannot be read, in the place of a file."""
    kind = attempt.pick(8)
    attempt.note(f"{path.name}: no regular file, {kind}")
    other = path.with_name("moved")
    shutil.move(path, other)
    if kind == 0:
        path.symlink_to(other)
    elif kind == 1:
        path.symlink_to(attempt.choice(("/dev/zero", "/dev/null", "/proc/self/mem", "/")))
    elif kind == 2:
        os.mkfifo(path)
    elif kind == 3:
        path.mkdir()
    elif kind == 4:
        path.symlink_to(path)
    elif kind == 5:
        path.symlink_to("/nowhere/at/all")
    elif kind == 6:
        with path.open("wb") as file:
            file.truncate(attempt.choice((1 << 33, 1 << 40)))
    else:
        os.link(other, path)


_DAMAGE: tuple[tuple[str, Callable[[Path, Attempt], None] | None], ...] = (
    ("bytes", _bytes),
    ("fields", _field),
    ("fields", _field),
    ("an argument", _argument),
    ("an argument", _argument),
    ("the code's facts", _code),
    ("arguments in another order", _another),
    ("costly to read", _costly),
    ("many arguments", _arguments),
    ("no regular file", no_regular_file),
    ("swapped while it is loaded", None),
)
