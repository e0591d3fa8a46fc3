"""Modules of MLIR by JAX's bindings: how they are read, and their types, constants and places."""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError
from ...graph.ir import TensorType
from ...graph.operator import Array
from ..unsupported import Reason, Unsupported

_MAGIC = b"ML\xefR"
_VERSION = re.compile(rb"StableHLO_v(\d+\.\d+\.\d+)")
_MOST_NAME = 4096
_STATIC = "shapes have to be static: export with arguments of known shapes, such as arrays"
_NAMES = {"i1": "bool", "bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}
_BRIEF = re.compile(r"(ui|i|f)(8|16|32|64)$")
_KINDS = {"ui": "uint", "i": "int", "f": "float"}


def parsed(program: str | bytes | bytearray) -> Any:
    """The `Module` of its text, its bytecode, or a portable artifact.

    Raises `ModelError` for what is none, and for an artifact of a version that is not known. Of
    damaged bytecode the reader of jaxlib may end the process.
    """
    from jax.extend.mlir import deserialize_portable_artifact, ir
    from jax.interpreters.mlir import make_ir_context

    context = make_ir_context()
    context.allow_unregistered_dialects = True  # for them to be refused by name
    data = program.encode() if isinstance(program, str) else bytes(program)
    version = _VERSION.search(data[:64]) if data.startswith(_MAGIC) else None
    if version is not None:
        _check_version(version[1].decode())
    try:
        if version is not None:
            return deserialize_portable_artifact(data, context)
        return ir.Module.parse(data if data.startswith(_MAGIC) else data.decode(), context)
    except UnicodeDecodeError:
        raise ModelError("expected a module of StableHLO, found {0!r:.40}", data) from None
    except Exception as error:
        short = len(data) < _MOST_NAME and b"\n" not in data and b"\0" not in data
        is_file = short and os.path.exists(data)  # not all texts make a `Path`
        raise ModelError(
            "this is no module of StableHLO: {0:.600}", str(error),
            hint="give what the file holds: Path(name).read_bytes()" if is_file else None,
        ) from error  # fmt: skip


def _check_version(found: str) -> None:
    """Raise `ModelError` for an artifact that is newer than what is installed reads."""
    from jax.extend.mlir.dialects.stablehlo import get_current_version

    known = get_current_version()
    if tuple(map(int, found.split("."))) > tuple(map(int, known.split("."))):
        raise ModelError(
            "this artifact is of StableHLO {0}; the installed jax reads up to {1}", found, known,
            hint="install a newer jax, or export for an older version",
        )  # fmt: skip


def is_complex(type: Any) -> bool:
    """Whether it is that of a tensor of complex numbers."""
    return "complex<" in str(type)


def tensor_type(type: Any, *, part: bool = False) -> TensorType:
    """The type of a tensor. Raises `Unsupported` for other things, and for open dims.

    `part`: of complex numbers, that of their real parts.
    """
    from jax.extend.mlir import ir

    if not isinstance(type, ir.RankedTensorType):
        raise Unsupported(Reason.TYPE, str(type))
    if not type.has_static_shape:
        raise Unsupported(Reason.DATA_DEPENDENT, f"{type}: {_STATIC}")
    name = str(type.element_type)
    own = name[len("complex<") : -1] if part and is_complex(type) else name
    return TensorType(_dtype(own), tuple(type.shape))


def _dtype(name: str) -> str:
    brief = _BRIEF.fullmatch(name)
    found = _NAMES.get(name) or (brief and _KINDS[brief[1]] + brief[2])
    if found not in dtypes.SCALARS:
        raise Unsupported(Reason.DTYPE, name)
    return str(found)


def elements(attribute: Any) -> Array:
    """The elements of a constant."""
    from jax.extend.mlir import ir

    type = tensor_type(attribute.type)
    dtype = dtypes.to_numpy(type.dtype)
    if isinstance(attribute, ir.DenseResourceElementsAttr):
        raise Unsupported(Reason.ATTRIBUTE, "elements that are in another part of the file")
    if type.dtype in dtypes.ML_DTYPES:  # of which the bindings make no array
        return _read(str(attribute), dtype, type.shape)
    return np.array(attribute, dtype).reshape(type.shape)


def complex_elements(constant: Any) -> Array:
    """The elements of a constant operation, of which the bindings have no attribute."""
    part = tensor_type(constant.results[0].type, part=True)
    dtype = np.result_type(dtypes.to_numpy(part.dtype), np.complex64)
    return _read(str(constant), dtype, part.shape)


def _read(text: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """The elements of `dense<...>`: all their bytes, or numbers, of which there may be one."""
    body = text[text.index("dense<") + len("dense<") : text.rindex("> : ")]
    if body.startswith('"0x'):
        flat = np.frombuffer(bytes.fromhex(body[3:-1]), dtype)
    else:
        part = dtype.type(0).real.dtype  # of complex numbers there are two
        bits = np.dtype(f"u{part.itemsize}")
        numbers = [
            np.array(int(w, 16), bits).view(part) if w.startswith("0x") else part.type(w)
            for w in re.findall(r"[^\[\](),\s]+", body)
        ]
        flat = np.array(numbers, part).view(dtype)
    return np.broadcast_to(flat.reshape(()) if flat.size == 1 else flat.reshape(shape), shape)


def place(operation: Any) -> str:
    """Where an operation is from: what JAX calls it, and the line of the user's source."""
    name, line = _origin(operation.location)
    return " ".join(filter(None, (name, line))) or operation.name


def argument_name(argument: Any) -> str:
    """What a function calls an argument: `p[0]['w']`; nothing if that is not known."""
    from jax.extend.mlir import ir

    location = argument.location
    known = isinstance(location, ir.NameLoc) and "/" not in location.name_str
    return str(location.name_str) if known else ""


def _origin(location: Any) -> tuple[str, str]:
    """The name of a location, and the file and line of its innermost frame."""
    from jax.extend.mlir import ir

    name = ""
    if isinstance(location, ir.FusedLoc):
        known = [_origin(own) for own in location.locations]
        return next((found for found in known if any(found)), ("", ""))
    if isinstance(location, ir.NameLoc):
        name = location.name_str
        location = location.child_loc
    while isinstance(location, ir.NameLoc | ir.CallSiteLoc):
        inner = isinstance(location, ir.NameLoc)
        location = location.child_loc if inner else location.callee
    if isinstance(location, ir.FileLineColLoc):
        return name, f"{PurePath(location.filename).name}:{location.start_line}"
    return name, ""
