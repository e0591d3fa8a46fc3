"""Who vouches for an artifact: detached signatures of manifests, in the format of minisign.

A manifest has the digests of code, header, weights and parts: a signature of its bytes is one of
all that is loaded. It stands where minisign looks for it, `matmul.so.json.minisig`:

    minisign -Vm matmul.so.json -p release.pub

A signature says who made it, not which artifact of the signer this is: an older one is as good.
The library `minisign` (py-minisign, of the extra `sign`) reads, checks and makes signatures.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from ..base.checked_json import show
from ..base.errors import ArgumentError, TrustError
from ..base.files import open_regular, read_some
from ..base.text import printable

MAX_BYTES = 64 << 10
"""Of the file of a key or a signature: a comment has at most 8 KB."""
Keys: TypeAlias = Sequence[Any]
"""Public keys that are accepted, of `public_keys`."""
_KEY = re.compile(r"RW[Q-T][A-Za-z0-9+/]{53}")
"""A public key in base 64: `Ed`, its id, and the key itself."""


@dataclass(frozen=True)
class Signed:
    """A signature that was checked: the id of its key, and the comment that is signed too."""

    key: str
    comment: str

    def __str__(self) -> str:
        return f"by the key {self.key}: {printable(self.comment)}"


def public_keys(given: object) -> Keys:
    """The public keys of minisign in files, or of their texts `RW...`.

    Raises `TrustError` for what is no such key, and `ArgumentError` for what is no list, or empty.
    """
    if not isinstance(given, list | tuple) or not all(
        isinstance(key, str | os.PathLike) for key in given
    ):
        raise ArgumentError(
            "keys: expected a list of public keys, or of their files, found {0!r:.80}", given,
            hint='keys=["release.pub"]',
        )  # fmt: skip
    if not given:
        raise ArgumentError(
            "keys: found none, and nothing is signed by none of them",
            hint="leave keys out where no signature is needed",
        )
    return [_public_key(key) for key in given]


def check_signature(content: bytes, path: Path, keys: Keys) -> Signed:
    """What is known of the signature of a file of that content, if one of the keys has made it.

    Raises `TrustError`.
    """
    place = signature_path(path)
    try:
        text = read_small(place)
    except FileNotFoundError:
        raise TrustError(
            "{0} is not signed: there is no {1}", path, place,
            hint="keep the signature beside the manifest, or sign it: tilewright sign",
        ) from None  # fmt: skip
    signature = parsed(minisign().Signature, text, place)
    signer = key_id(bytes(signature).splitlines()[1])
    own = [key for key in keys if key_id(key.to_base64()) == signer]
    if not own:
        accepted = ", ".join(key_id(key.to_base64()) for key in keys)
        raise TrustError(
            "{0} is signed by the key {1}, expected one of {2}", path, signer, accepted,
            hint="take the artifact of whom you trust, or accept that key as well",
            found=signer,
        )  # fmt: skip
    for key in own:
        try:
            key.verify(content, signature)
        except ValueError:
            continue
        return Signed(signer, signature.trusted_comment)
    raise TrustError(
        "{0} is not what was signed by {1}: it or its signature was changed", path, signer,
        hint="copy all files of the artifact and its signature again", found=signer,
    )  # fmt: skip


def signature_path(path: Path) -> Path:
    """The path of the signature of a file: `matmul.so.json.minisig` beside `matmul.so.json`."""
    return path.with_name(path.name + ".minisig")


def read_small(path: Path) -> bytes:
    """The content of a key or signature. Raises `TrustError`, and `FileNotFoundError`."""
    with open_regular(path, TrustError) as (file, _):
        content = read_some(file, MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TrustError(
            "{0} has more than {1} bytes; keys and signatures have fewer", path, MAX_BYTES
        )
    return content


def parsed(kind: Any, content: bytes, path: Path) -> Any:
    """The key or signature of a kind of the library. Raises `TrustError`."""
    try:
        return kind.from_bytes(content)
    except ValueError as error:
        said = content.partition(b"\n")[0].decode("ascii", "replace")
        other = next((words for words in _WORDS.values() if words in said), None)
        expected = _WORDS[kind.__name__]
        raise TrustError(
            "{0} has no {1} of minisign: {2}", path, expected, error,
            hint="copy the file again" if other in (None, expected) else f"it is a {other}",
        ) from error  # fmt: skip


def minisign() -> ModuleType:
    """The library. Raises `TrustError` where it is not installed."""
    try:
        import minisign
    except ImportError as error:
        project = __package__.partition(".")[0].replace("_", "-")
        raise TrustError(
            "signatures are checked by py-minisign, which is not installed",
            hint=f"pip install '{project}[sign]'",
        ) from error
    return minisign  # type: ignore[no-any-return]


def key_id(encoded: bytes) -> str:
    """The id of a key, as minisign prints it, of a public key or signature in base 64."""
    return f"{int.from_bytes(base64.b64decode(encoded)[2:10], 'little'):016X}"


# A signature says that it is one of a secret key.
_WORDS = {"PublicKey": "public key", "Signature": "signature", "SecretKey": "secret key"}


def _public_key(given: str | os.PathLike[str]) -> Any:
    kind = minisign().PublicKey
    if isinstance(given, str) and _KEY.fullmatch(given):
        try:
            return kind.from_base64(given)
        except ValueError as error:
            raise TrustError("{0} is no public key: {1}", show(given), error) from error
    path = Path(given)
    try:
        return parsed(kind, read_small(path), path)
    except FileNotFoundError:
        raise TrustError(
            "there is no key {0}: expected the file of a public key, or its text", show(str(path)),
            hint="minisign and `tilewright keygen` write it beside the secret key: release.pub",
        ) from None  # fmt: skip
