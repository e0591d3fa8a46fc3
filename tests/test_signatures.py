"""Signed artifacts: what is loaded is what somebody has signed who is trusted, or nothing is."""

from __future__ import annotations

import base64
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime import cpu_runtime, loader, signing, trust
from tilewright.runtime.artifact import manifest_path
from tilewright.runtime.trust import MAX_BYTES, signature_path

from .commands import Run
from .graph.test_shipping import layers, weights_of, written, x_of
from .refusals import refused
from .test_artifact_files import adds

pytest.importorskip("minisign", reason="py-minisign is not installed")
KEPT = Path(__file__).parent / "runtime" / "kept"
"""An artifact that minisign has signed, and its keys, of which the secret one has a password."""
SERIAL = "cpu -threads=1"


class Signer(NamedTuple):
    key: Path
    public: Path


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Signer, Signer]:
    """Two who sign."""
    folder = tmp_path_factory.mktemp("keys")
    one, other = (Signer(*signing.make_keys(folder / name)) for name in ("one.key", "other.key"))
    return one, other


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, signers: tuple[Signer, Signer]) -> Path:
    """A folder of three models, of other weights: the first one has signed `a` and `b`."""
    folder = tmp_path_factory.mktemp("signed")
    for name, seed in (("a", 0), ("b", 1), ("unsigned", 2)):
        (folder / name).mkdir()
        path = written(layers(seed=seed), folder / name / "model.so")
        if name != "unsigned":
            assert tw.sign(path, signers[0].key) == signature_path(manifest_path(path))
    return folder


@pytest.fixture
def model(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "copy")
    return tmp_path / "copy" / "a" / "model.so"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that do not fit are looked at again at once."""
    monkeypatch.setattr(loader, "_REPLACING_SECONDS", 0)


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No code is loaded."""
    opened: list[Any] = []
    monkeypatch.setattr(cpu_runtime, "open_library", lambda *code: opened.append(code))
    yield
    assert opened == []


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def test_what_is_signed_is_loaded(model: Path, signers: tuple[Signer, Signer]) -> None:
    one, other = signers
    graph = layers()
    expected = [a.tobytes() for a in tw.load(model)(x_of(graph))]
    text = one.public.read_text().split()[-1]
    for keys in ([one.public], (str(one.public),), [text], [other.public, one.public]):
        found = tw.load(model, keys=keys)(x_of(graph))
        assert [a.tobytes() for a in found] == expected
    (model.with_suffix(".h")).unlink()  # which loading does not read
    assert tw.load(model, keys=[text]).ready is False
    check, *_ = tw.verify(model, keys=[text]).checks
    assert (check.what, check.outcome) == ("signature", "right")


def test_what_minisign_has_signed_is_loaded(tmp_path: Path) -> None:
    """It was written by an older version, too."""
    kernel = tw.load(KEPT / "matmul.so", keys=[KEPT / "minisign.pub"])
    a, b, c = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32), np.zeros((4, 5), np.float32)
    kernel(a, b, c)
    assert c.min() == c.max() == 6
    for name in ("matmul.so", "matmul.so.json"):
        shutil.copy(KEPT / name, tmp_path)
    library, key = tmp_path / "matmul.so", KEPT / "minisign.key"
    for wrong in (None, "", "Secret"):
        with refused(tw.TrustError, key):
            tw.sign(library, key, password=wrong)
    made = tw.sign(library, key, password="secret", comment="release 4")
    lines, kept = made.read_text().split(), (KEPT / "matmul.so.json.minisig").read_text().split()
    assert lines == kept
    checks = tw.verify(library, run=False, keys=[KEPT / "minisign.pub"]).checks
    assert checks[0].detail == "by the key A653F8B463FC2E22: release 4"


def test_equal_artifacts_have_equal_signatures(model: Path, signers: tuple[Signer, Signer]) -> None:
    before = signature_path(manifest_path(model)).read_bytes()
    assert tw.sign(model, signers[0].key).read_bytes() == before


@pytest.mark.usefixtures("unopened")
def test_what_nobody_trusted_has_signed_is_refused(
    model: Path, signers: tuple[Signer, Signer]
) -> None:
    one, other = signers
    signature, described = signature_path(manifest_path(model)), manifest_path(model)
    with refused(tw.TrustError, described):
        tw.load(model, keys=[other.public])
    assert not tw.verify(model, keys=[other.public]).passed
    signature.unlink()
    with refused(tw.TrustError, described, signature):
        tw.load(model, keys=[one.public, other.public])
    for bad in ((), [], one.public, str(one.public), b"key", [3], {one.public: 1}):
        with refused(tw.ArgumentError):
            tw.load(model, keys=bad)  # type: ignore[arg-type]
        with refused(tw.ArgumentError):
            tw.verify(model, keys=bad)  # type: ignore[arg-type]


@pytest.mark.usefixtures("unopened")
def test_each_byte_of_a_signature(model: Path, signers: tuple[Signer, Signer]) -> None:
    """The last digits of base 64 have bits that say nothing."""
    path, keys = signature_path(manifest_path(model)), [signers[0].public]
    content = path.read_bytes()
    unsigned = range(len("untrusted comment: "), content.index(b"\n"))
    for place in range(len(content) - 1):
        changed = flipped(content, place)
        path.write_bytes(changed)
        (check, *more) = tw.verify(model, run=False, keys=keys).checks
        right = place in unsigned or said(changed) == said(content)
        assert (check.outcome == "right", bool(more)) == (right, right), (place, check)


def said(signature: bytes) -> list[bytes] | None:
    """The lines of a signature beside its comment, or `None`."""
    lines = signature.splitlines()
    try:
        encoded = [base64.b64decode(line, validate=True) for line in (lines[1], lines[3])]
    except (IndexError, ValueError):
        return None
    return [*encoded, lines[2], lines[0][: len("untrusted comment: ")]]


@pytest.mark.usefixtures("unopened")
@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n" * 4, b"\xff" * 300, b"untrusted comment: x\nRWQ=\ntrusted comment: y\nAA==\n",
        bytes(MAX_BYTES + 1),
    ],
    ids=["nothing", "lines", "bytes", "short", "long"],
)  # fmt: skip
def test_what_is_no_signature_and_no_key(
    content: bytes, model: Path, signers: tuple[Signer, Signer], tmp_path: Path
) -> None:
    path, key = signature_path(manifest_path(model)), tmp_path / "bad.pub"
    key.write_bytes(content)
    with refused(tw.TrustError, key):
        tw.load(model, keys=[signers[0].public, key])
    with refused(tw.TrustError, key):
        tw.sign(model, key)
    path.write_bytes(content)
    with refused(tw.TrustError, path):
        tw.load(model, keys=[signers[0].public])


@pytest.mark.usefixtures("unopened")
def test_a_key_of_the_other_kind_says_what_it_is(
    model: Path, signers: tuple[Signer, Signer]
) -> None:
    public = signers[0].public
    with refused(tw.TrustError, public) as caught:
        tw.sign(model, public)
    assert caught.value.hint == "it is a public key"


@pytest.mark.usefixtures("unopened")
def test_files_that_are_no_keys(
    model: Path, signers: tuple[Signer, Signer], tmp_path: Path
) -> None:
    """None is waited for, and none is read beyond what a key has."""
    pipe, huge, loop = tmp_path / "pipe", tmp_path / "huge", tmp_path / "loop"
    os.mkfifo(pipe)
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    loop.symlink_to(loop)
    signature = signature_path(manifest_path(model))
    for path in (pipe, huge, loop, tmp_path, Path("/dev/zero")):
        with refused(tw.TrustError, path):
            tw.load(model, keys=[path])
        with refused(tw.TrustError, path):
            tw.sign(model, path)
        signature.unlink(missing_ok=True)
        signature.symlink_to(path)
        with refused(tw.TrustError, signature):
            tw.load(model, keys=[signers[0].public])
    for absent in (tmp_path / "none.pub", "RWRnone", "a\0b", signers[0].key):
        with refused(tw.TrustError):
            tw.load(model, keys=[absent])


@pytest.mark.usefixtures("unopened")
def test_each_byte_of_a_public_key(
    model: Path, signers: tuple[Signer, Signer], tmp_path: Path
) -> None:
    key = tmp_path / "one.pub"
    content = signers[0].public.read_bytes().rstrip()
    comment = range(len("untrusted comment: "), content.index(b"\n"))
    for place in range(len(content)):
        key.write_bytes(flipped(content, place))
        try:
            passed = tw.verify(model, run=False, keys=[key]).passed
        except tw.TrustError:
            passed = False
        assert passed == (place in comment), place


def test_each_byte_of_a_secret_key(
    model: Path, signers: tuple[Signer, Signer], tmp_path: Path
) -> None:
    """A damaged key signs nothing, or what nobody accepts."""
    key, content = tmp_path / "one.key", signers[0].key.read_bytes().rstrip()
    for place in range(content.index(b"\n"), len(content), 3):
        key.write_bytes(flipped(content, place))
        signature_path(manifest_path(model)).unlink(missing_ok=True)
        try:
            tw.sign(model, key)
        except tw.TrustError:
            continue
        if not tw.verify(model, run=False, keys=[signers[0].public]).passed:
            continue
        checksum = content.index(b"\n") + 1 + 126 // 3 * 4
        assert place >= checksum, place


@pytest.mark.usefixtures("unopened")
def test_bytes_of_what_is_signed(model: Path, signers: tuple[Signer, Signer]) -> None:
    """The signature covers the manifest, and this all that is loaded."""
    keys = [signers[0].public]
    for path in (model, weights_of(model), manifest_path(model)):
        content = path.read_bytes()
        for place in range(0, len(content), len(content) // 40 + 1):
            path.write_bytes(flipped(content, place))
            with refused(tw.TrustError if path == manifest_path(model) else tw.ArtifactError):
                tw.load(model, keys=keys)
        path.write_bytes(content)


@pytest.mark.usefixtures("unopened")
def test_a_forged_manifest(built: Path, model: Path, signers: tuple[Signer, Signer]) -> None:
    """One that fits the files, beside a signature of the one before."""
    shutil.copytree(built / "unsigned", model.parent, dirs_exist_ok=True)
    with refused(tw.TrustError, manifest_path(model)):
        tw.load(model, keys=[signers[0].public])


def test_files_of_two_artifacts_of_one_signer(
    built: Path, model: Path, signers: tuple[Signer, Signer]
) -> None:
    """All of the other one are the other one; any less is refused."""
    other, keys = built / "b" / "model.so", [signers[0].public]
    files = (model, weights_of(model), manifest_path(model), signature_path(manifest_path(model)))
    kept = {path: path.read_bytes() for path in files}
    taken = {path: (other.parent / path.name).read_bytes() for path in files}
    same = [path for path in files if kept[path] == taken[path]]
    assert weights_of(model) not in same
    for size in range(1, len(files)):
        for swapped in combinations(files, size):
            for path in files:
                path.write_bytes((taken if path in swapped else kept)[path])
            mixed = {path for path in files if path not in same} - {*swapped}
            if mixed and {*swapped} - {*same}:
                with refused(tw.ArtifactError):
                    tw.load(model, keys=keys)
    for path in files:
        path.write_bytes(taken[path])
    x = x_of(layers())
    found, expected = (tw.load(path, keys=keys)(x) for path in (model, other))
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


@pytest.mark.parametrize("by", ["links", "folder"])
def test_files_that_are_swapped_after_the_signature_was_checked(
    by: str, model: Path, signers: tuple[Signer, Signer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What was checked is loaded, or nothing."""
    check = trust.check_signature
    folder, other = model.parent, model.parent.with_name("unsigned")

    def swapping(*arguments: Any) -> Any:
        found = check(*arguments)
        if by == "folder":
            folder.rename(folder.with_name("before"))
            folder.symlink_to(other)
        else:
            for path in [*folder.iterdir()]:
                path.unlink()
                path.symlink_to(other / path.name)
        return found

    monkeypatch.setattr(loader, "check_signature", swapping)
    with refused(tw.ArtifactError):
        tw.load(model, keys=[signers[0].public])


def test_weights_that_are_written_to_after_a_load(
    model: Path, signers: tuple[Signer, Signer]
) -> None:
    x = x_of(layers())
    loaded = tw.load(model, keys=[signers[0].public])
    before = [a.tobytes() for a in loaded(x)]
    with weights_of(model).open("r+b") as file:
        file.write(bytes(weights_of(model).stat().st_size))
    assert [a.tobytes() for a in loaded(x)] == before


def test_what_is_not_signed(model: Path, signers: tuple[Signer, Signer]) -> None:
    key = signers[0].key
    for comment in ("two\nlines", "Straße", "x" * 10_000):
        with refused(tw.TrustError, key):
            tw.sign(model, key, comment=comment)
    with refused(tw.TrustError, signers[0].public):
        tw.sign(model, signers[0].public)
    with weights_of(model).open("r+b") as file:
        file.write(b"!")
    with refused(tw.ArtifactError, weights_of(model)):
        tw.sign(model, key)
    with refused(tw.ArtifactError):
        tw.sign(model.with_name("none.so"), key)
    with refused(tw.ArtifactError):
        tw.sign("/", key)


def test_without_the_library_that_checks(
    model: Path, signers: tuple[Signer, Signer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "minisign", None)
    tw.load(model)
    with refused(tw.TrustError) as caught:
        tw.load(model, keys=[signers[0].public])
    assert "tilewright[sign]" in str(caught.value.hint)


def test_the_commands(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(layers(), tmp_path / "model.so")
    Path("password").write_text("long and secret\n")
    assert run("keygen", "one.key", "--password-file", "password").out == "one.key\none.pub\n"
    assert run("keygen", "other.key", "--no-password").code == 0
    assert Path("one.key").stat().st_mode & 0o777 == 0o600
    before = Path("one.key").read_bytes()
    for name in ("one.key", "one.pub", "one.other"):
        assert run("keygen", name, "--no-password").code == 1
    assert Path("one.key").read_bytes() == before
    Path("empty").touch()
    for wrong in ("empty", "model.so", "none"):
        assert run("sign", "model.so", "--key", "one.key", "--password-file", wrong).code == 1
    assert not Path("model.so.json.minisig").exists()
    made = run("sign", "model.so", "--key", "one.key", "--password-file", "password")
    assert made.out.endswith("model.so.json.minisig\n")
    assert run("verify", "model.so", "--key", "other.pub", "--key", "one.pub").code == 0
    assert run("run", "model.so", "--random", "0", "--key", "one.pub").code == 0
    assert run("run", "model.so", "--random", "0", "--key", "other.pub").code == 1
    told = run("verify", "model.so", "--key", "other.pub", "--json")
    assert told.code == 1
    assert [(c["what"], c["outcome"]) for c in told.json["checks"]] == [("signature", "wrong")]


def test_a_kernel_is_signed_as_a_model_is(tmp_path: Path, signers: tuple[Signer, Signer]) -> None:
    path = tw.build_library(adds(3), tmp_path / "adds.so", SERIAL, allow=("default",)).files[0]
    tw.sign(path, signers[1].key, comment="1.0")
    assert tw.load(path, keys=[signers[1].public], counting=True).report().calls == 0
