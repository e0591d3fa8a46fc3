"""Damaged caches: builds are right, and only the files of the caches are removed."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import numpy as np

from tilewright import Target, TuningDatabase, build, tune
from tilewright.autotune.measure import machine
from tilewright.autotune.measure.machine import Description
from tilewright.codegen.cache import KernelCache
from tilewright.codegen.generator import Measured
from tilewright.graph import Builder, Graph, TensorType

from .attempt import Attack, Attempt, require
from .damage import damaged, edited
from .manifests import no_regular_file
from .subjects import TARGET, check_module, subjects

NAMES = ("affine", "matmul", "wider", "gather")
KINDS = {"kernels": len(NAMES) + 1, "choices": len(NAMES) + 1, "machines": 1, "models": 1}
"""The folders of the caches, with the number of their entries."""
RATES = {"hertz": 3e9, "fma": 1.5, "memory": 7.0}
_LARGE = 1 << 20
MINE = "notes.txt"
"""A file of the user's that happens to lie in the folder."""


def prepare(folder: Path) -> Attack:
    os.environ |= {"TILEWRIGHT_CACHE_DIR": str(folder), machine.VARIABLE: ""}
    patch.object(machine, "_measured", _measured).start()
    for name in NAMES:
        build(subjects()[name].func, TARGET, allow=("default",))
    build(_layer(), TARGET, allow=("default",))
    for kind, count in KINDS.items():
        require(len(list((folder / kind).iterdir())) == count, f"{kind} are not cached")

    def attack(attempt: Attempt) -> str:
        for kind in KINDS:
            place = attempt.folder / kind
            shutil.copytree(folder / kind, place, copy_function=shutil.copy2)
            place.chmod(0o700)
            (place / MINE).write_text("mine", encoding="ascii")
        for _ in range(attempt.choice((1, 1, 2, 4))):
            what, damage = attempt.choice(_DAMAGE)
            place = attempt.folder / attempt.choice(list(KINDS))
            entry = place / attempt.choice(sorted(p.name for p in (folder / place.name).iterdir()))
            attempt.note(f"{entry.name[:12]}: {what}")
            if entry.is_file() and not entry.is_symlink() and entry.stat().st_size < _LARGE:
                damage(entry, attempt)
        os.environ["TILEWRIGHT_CACHE_DIR"] = str(attempt.folder)
        machine._KNOWN.clear()
        if attempt.chance(0.25):
            _tune(attempt)
        for name in attempt.rng.permutation(NAMES):
            for _ in range(2):
                subject = subjects()[str(name)]
                module = build(subject.func, TARGET, allow=("default",))
                check_module(module, subject, attempt.rng)
        for _ in range(2):
            _check_model(attempt)
        _evict_all(attempt.folder / "kernels")
        for kind in KINDS:
            mine = attempt.folder / kind / MINE
            require(mine.read_text(encoding="ascii") == "mine", f"{MINE} was changed")
        return "right"

    return attack


@functools.cache
def _layer() -> Graph:
    b = Builder("layer")
    x = b.input("x", TensorType("float32", (4, 16)))
    w = b.constant(np.linspace(-1, 1, 256).reshape(16, 16), "float32")
    return b.graph({"y": b.add("relu", b.add("matmul", x, w))})


def _check_model(attempt: Attempt) -> None:
    x = attempt.rng.standard_normal((4, 16), np.float32)
    found = build(_layer(), TARGET, allow=("default",))(x)
    right = np.allclose(found, _layer().reference(x)[0], rtol=1e-5, atol=1e-5)
    require(right, "the model is wrong")


def _measured(target: Target, _: object) -> Description:
    """A description of this machine in place of a measurement, which takes long."""
    del target
    return Description(Measured(RATES, (), doubtful=False), datetime.now(UTC).isoformat())


def _tune(attempt: Attempt) -> None:
    subject = subjects()["affine"]
    with TuningDatabase("sqlite://") as database:
        tune(subject.func, TARGET, database=database, trials=1)
        module = build(subject.func, TARGET, database)
        check_module(module, subject, attempt.rng)


def _evict_all(place: Path) -> None:
    """Have the folder emptied, as a writer does that needs the room."""
    kernels = KernelCache(place, limit_bytes=1 << 14)
    from tilewright.codegen.build import compile_func

    kernels.put("0" * 64, compile_func(subjects()["affine"].func, TARGET))


def _bytes(entry: Path, attempt: Attempt) -> None:
    entry.write_bytes(damaged(entry.read_bytes(), attempt))


def _redigested(entry: Path, attempt: Attempt) -> None:
    """Other lengths or texts, and the digest that goes with them; the code stays as it is."""
    content = entry.read_bytes()
    start = content.index(b"\n") + 1
    head, body = content[:start], bytearray(content[start + 32 :])
    if entry.suffix == ".machine" and attempt.chance(0.8):
        attempt.note("re-digested: other values of a description")
        told = Description(Measured(RATES, ("a load",), doubtful=True), "2026-03-01T12:00:00+00:00")
        _write(entry, head, json.dumps(edited(told.to_json(), attempt)).encode())
        return
    if entry.suffix in (".choice", ".machine"):
        attempt.note("re-digested: a text")
        _write(entry, head, damaged(bytes(body), attempt))
        return
    what = attempt.pick(4)
    if what == 0:
        body[attempt.pick(16)] = attempt.pick(256)
    elif what == 1:
        body[16:20] = attempt.rng.bytes(4)
    elif what == 2:
        length = attempt.pick(20)
        del body[length:]
    else:
        bomb = _bomb()
        old = int.from_bytes(body[:4], "little")
        body[16 : 16 + old] = bomb
        body[:4] = len(bomb).to_bytes(4, "little")
    attempt.note(f"re-digested: {('a length', 'a text', 'cut off', 'a bomb')[what]}")
    _write(entry, head, bytes(body))


def _write(entry: Path, head: bytes, body: bytes) -> None:
    """An entry whose digest is right."""
    entry.write_bytes(head + hashlib.sha256(entry.stem.encode() + b"\0" + body).digest() + body)


@functools.cache
def _bomb() -> bytes:
    """A few bytes that are very many, decompressed."""
    return zlib.compress(bytes(200 << 20), 1)


LARGEST = 1 << 20
"""Bytes of a file that is copied: one that another damage made may be endless."""


def _exchanged(entry: Path, attempt: Attempt) -> None:
    """Another entry of the same kind under this name."""
    others = [
        p
        for p in sorted(entry.parent.glob(f"*{entry.suffix}"))
        if p != entry and p.is_file() and p.stat().st_size < LARGEST
    ]
    if others:
        shutil.copy2(attempt.choice(others), entry)


def _modes(entry: Path, attempt: Attempt) -> None:
    place = attempt.choice((entry, entry.parent))
    mode = attempt.choice((0o777, 0o602, 0o620, 0o000, 0o400, 0o700))
    if place == entry.parent and mode & 0o500 != 0o500:
        mode = 0o777
    attempt.note(f"{place.name[:12]} has mode {mode:o}")
    place.chmod(mode)


def _another_owner(entry: Path, attempt: Attempt) -> None:
    if os.geteuid() == 0:
        entry.write_bytes(damaged(entry.read_bytes(), attempt))
        os.chown(entry, 65534, 65534)


def _junk(entry: Path, attempt: Attempt) -> None:
    """Files and folders that look like entries, or like what writers leave."""
    kind = entry.suffix
    for name in (f"x{kind}", "0" * 64 + kind, ".tilewright-0123456789abcdef.partial", "tmp"):
        path = entry.parent / name
        if attempt.chance(0.3) and not path.exists():
            path.mkdir()
        elif not path.is_dir():
            path.write_bytes(attempt.rng.bytes(200))


_DAMAGE: tuple[tuple[str, Callable[[Path, Attempt], None]], ...] = (
    ("bytes", _bytes),
    ("bytes", _bytes),
    ("re-digested", _redigested),
    ("exchanged", _exchanged),
    ("no regular file", no_regular_file),
    ("modes", _modes),
    ("of another user", _another_owner),
    ("junk", _junk),
)
