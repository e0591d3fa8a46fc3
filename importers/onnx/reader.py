"""Reading ONNX files: what is damaged, contradictory or outside the model's folder is refused here.

`onnx_ir` maps external data, and keeps paths within the folder that it is told. It takes the last
of several initializers of one name, and tensors without data; these are looked for in the protobuf.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError, TilewrightError, UnsupportedError
from ...base.files import open_regular
from ...graph.mapped import mapped
from ..unsupported import Reason, Unsupported

PRODUCER = "tilewright"
"""Who has written a model, as it says."""

_LFS = b"version https://git-lfs"


def is_extent(dim: Any, producer: str | None) -> bool:
    """Whether a dim is a number. Other exporters than ours write 0 for what they do not know."""
    return isinstance(dim, int) and dim >= (0 if producer == PRODUCER else 1)


def loaded(model: Any) -> Any:
    """The `onnx_ir.Model` of a path, of bytes or of a `ModelProto`. Raises `ModelError`."""
    import onnx
    import onnx_ir

    folder = None
    try:
        if isinstance(model, bytes):
            proto = onnx.load_model_from_string(model)
        elif isinstance(model, str | os.PathLike):
            file = Path(model)
            with open_regular(file, ModelError):
                proto = onnx.load(file, load_external_data=False)
            folder = file.absolute().parent
        elif type(model).__name__ == "ModelProto":
            proto = model
        else:
            raise ModelError(
                "expected a path, bytes or a ModelProto, found {0}", type(model).__name__
            )
        if not proto.opset_import and proto.ir_version >= 3:
            raise ModelError("the model names no opset; its file may be cut off")
        _check(proto.graph)
        read = onnx_ir.serde.deserialize_model(proto)
        if folder is not None:
            onnx_ir.external_data.set_base_dir(read.graph, folder)
        return read
    except TilewrightError:
        raise
    except FileNotFoundError as error:
        raise ModelError("there is no file {0}", model) from error
    except Exception as error:  # the reader raises whatever a damaged file leads to
        path = Path(model) if isinstance(model, str | os.PathLike) else None
        raise ModelError(
            "{0} cannot be read as an ONNX model: {1}", path or "the model", _root(error),
            hint=None if path is None else _pointer_hint(path),
        ) from error  # fmt: skip


def _pointer_hint(path: Path) -> str | None:
    """What to do with a file that Git LFS has left in the place of a model."""
    with path.open("rb") as file:
        pointer = file.read(len(_LFS)) == _LFS
    return "it is a pointer of Git LFS: `git lfs pull` fetches the model" if pointer else None


def _root(error: BaseException) -> BaseException:
    """The first of the errors that led to this one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _check(graph: Any) -> None:
    """Raise for names that stand for two, and for initializers without their data."""
    if graph.sparse_initializer:
        names = [s.values.name for s in graph.sparse_initializer]
        raise UnsupportedError(
            "the initializers {0} are sparse", ", ".join(names),
            reasons=[(name, "initializer", Reason.TYPE.name, "sparse") for name in names],
        )  # fmt: skip
    for kind, values in (
        ("initializers", graph.initializer),
        ("inputs", graph.input),
        ("outputs", graph.output),
    ):
        for name, count in Counter(v.name for v in values).items():
            if count > 1:
                raise ModelError("{0} {1} are named {2!r}", count, kind, name)
    for tensor in graph.initializer:
        if any(extent < 0 for extent in tensor.dims):
            raise ModelError("the initializer {0} has dims {1}", tensor.name, list(tensor.dims))
        if math.prod(tensor.dims) and not _has_data(tensor):
            raise ModelError("the initializer {0} has no data", tensor.name)
    for inner in _bodies(graph):
        _check(inner)


def _has_data(tensor: Any) -> bool:
    fields = (
        tensor.raw_data, tensor.float_data, tensor.int32_data, tensor.int64_data,
        tensor.double_data, tensor.uint64_data, tensor.string_data, tensor.external_data,
    )  # fmt: skip
    return any(len(field) for field in fields)


def _bodies(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


def array(tensor: Any) -> np.ndarray[Any, Any]:
    """The elements of a tensor of a model.

    Raises `ModelError` if its data are missing, too few or outside the model's folder, and
    `Unsupported` for elements that numpy or the compiler has no dtype for.
    """
    name = tensor.name or "without a name"
    try:
        shape = tuple(int(extent) for extent in tensor.shape)
        found = _external(tensor, shape) if hasattr(tensor, "base_dir") else tensor.numpy()
        found = np.asarray(found)
    except TilewrightError:
        raise
    except Exception as error:  # the reader raises whatever damaged data lead to
        raise ModelError("the tensor {0} cannot be read: {1}", name, _root(error)) from error
    if found.shape != shape:
        raise ModelError(
            "the tensor {0} has dims {1}, and data of {2}", name, list(shape), list(found.shape)
        )
    try:
        dtypes.from_numpy(found.dtype)
    except (TilewrightError, ValueError, KeyError, TypeError) as error:
        raise Unsupported(Reason.DTYPE, str(found.dtype)) from error
    return found


def _external(tensor: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The elements that another file has, mapped; those of less than a byte are copied."""
    _check_external(tensor)
    found: np.ndarray[Any, Any] = tensor.numpy()  # refuses paths that leave the model's folder
    if tensor.dtype.bitwidth % 8:
        return found.copy()
    return mapped(Path(tensor.path), found.dtype, shape, tensor.offset or 0)


def _check_external(tensor: Any) -> None:
    if not tensor.base_dir:
        raise ModelError(
            "the data of the tensor {0} are in the file {1}", tensor.name, tensor.location,
            hint="give the path of the model, whose folder has that file",
        )  # fmt: skip
    path = Path(tensor.path)
    if not path.is_file():  # a pipe or a device may never end
        raise ModelError("the data of the tensor {0}: there is no file {1}", tensor.name, path)
    length = tensor.length
    if length is not None and length != tensor.nbytes:
        raise ModelError(
            "the tensor {0} takes {1} bytes, its data have {2}", tensor.name, tensor.nbytes, length
        )
    end = (tensor.offset or 0) + tensor.nbytes
    if end > path.stat().st_size:
        raise ModelError(
            "the data of the tensor {0} end at byte {1} of {2}, which has {3}",
            tensor.name, end, path, path.stat().st_size,
        )  # fmt: skip
