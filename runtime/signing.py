"""Signing artifacts with keys of minisign, and making such keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..base.errors import ArtifactError, TrustError
from ..base.files import File, replace_files
from ..base.text import count
from .artifact import manifest_content, manifest_path, parse_manifest
from .loader import read_content
from .memory import memory_for
from .trust import key_id, minisign, parsed, read_small, signature_path


def sign(
    path: str | os.PathLike[str],
    key: str | os.PathLike[str],
    *,
    password: str | None = None,
    comment: str | None = None,
) -> Path:
    """Sign an artifact, and return the path of the signature, `matmul.so.json.minisig`.

    `key` is the file of a secret key, which minisign or `make_keys` has written, with its
    `password` if it has one. The `comment`, ASCII, is signed too, and shown where the signature is
    checked. All files are checked before, nothing is loaded. The same artifact, key and comment
    give the same bytes.

    Raises `ArtifactError` for a damaged artifact and where nothing can be written, and `TrustError`
    for what is no key, for a wrong or missing password, and for a comment that is none.
    """
    place = Path(path).absolute()
    manifest = read_content(place, ()).manifest
    content, described = manifest_content(place), manifest_path(place)
    if parse_manifest(content, described) != manifest:
        raise ArtifactError("{0} was replaced while it was signed", place, hint="sign it again")
    told = f"{count(len(manifest.programs), 'program')} for {manifest.target}"
    with _secret_key(Path(key), password) as secret:
        try:
            signature = secret.sign(content, trusted_comment=told if comment is None else comment)
            secret.get_public_key().verify(content, signature)
        except ValueError as error:
            raise TrustError(
                "{0} signs nothing: {1}", Path(key), error,
                hint="copy the key again, and take a comment of one line of ASCII",
            ) from error  # fmt: skip
    return _written(File(signature_path(described), bytes(signature) + b"\n"))[0]


def make_keys(path: str | os.PathLike[str], password: str | None = None) -> tuple[Path, Path]:
    """Write a new secret key to a file, `release.key`, and its public key to `release.pub`.

    The first is for its owner alone, and encrypted if there is a password. Both are keys of
    minisign. Raises `TrustError` where one of the files is there already.
    """
    secret = Path(path)
    if not secret.name:
        raise TrustError("cannot write a key to {0!r}", str(path), hint="name a file: release.key")
    public = secret.with_suffix(".pub")
    for file in (secret, public):
        if os.path.lexists(file) or secret == public:
            raise TrustError(
                "cannot write {0}: it is there, and keys replace no file", file,
                hint="name another: release.key",
            )  # fmt: skip
    pair = minisign().KeyPair.generate()
    named = key_id(pair.public_key.to_base64())
    pair.public_key.untrusted_comment = f"minisign public key {named}"
    with pair.secret_key as own:
        if password is not None:
            own.encrypt(password)
        files = _written(
            File(secret, bytes(own) + b"\n", 0o600), File(public, bytes(pair.public_key) + b"\n")
        )
    return files[0], files[1]


def is_encrypted(key: Path) -> bool:
    """Whether a secret key takes a password. Raises `TrustError`."""
    with _parsed(key) as secret:
        return bool(secret.is_encrypted())


def _secret_key(path: Path, password: str | None) -> Any:
    """A secret key that signs; its block ends by wiping it."""
    secret = _parsed(path)
    if not secret.is_encrypted():
        return secret
    if password is None:
        raise TrustError("{0} has a password, found none", path, hint="name the password")
    try:
        with memory_for("{0}: no memory to decrypt it", path):
            secret.decrypt(password)
    except ValueError as error:
        raise TrustError("{0} cannot be decrypted: {1}", path, error) from error
    return secret


def _parsed(path: Path) -> Any:
    try:
        return parsed(minisign().SecretKey, read_small(path), path)
    except FileNotFoundError:
        raise TrustError(
            "there is no key {0}: expected the file of a secret key", path,
            hint="make keys by `minisign -G` or `tilewright keygen`",
        ) from None  # fmt: skip


def _written(*files: File) -> tuple[Path, ...]:
    try:
        replace_files(files)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise TrustError("cannot write {0}: {1}", files[0].path, why) from error
    return tuple(file.path for file in files)
