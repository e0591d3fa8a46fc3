"""xgboost's C API, as much of it as the cost models need.

Its Python package loads scipy and much else before it comes to its library: importing it takes
0.2 s of processor time, opening the library 2 ms. The first build of a process asks for one
prediction, and has 1.5 s in all.

Feature rows are arrays of (rows, features), read as single floats like all that xgboost is given.
One thread does all the work.
"""

from __future__ import annotations

import ctypes
import json
import math
import weakref
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...base.errors import TuningError
from ...base.process import compute_alone

Floats = npt.NDArray[np.floating[Any]]
Singles = npt.NDArray[np.float32]
_VERSION = 3
_INSTALL = f"pip install 'xgboost-cpu=={_VERSION}.*'"
_PREDICT = json.dumps(
    {
        "type": 0,
        "training": False,
        "iteration_begin": 0,
        "iteration_end": 0,
        "missing": math.nan,
        "strict_shape": False,
        "cache_id": 0,
    }
).encode()


class Booster:
    """A sum of trees."""

    def __init__(self, parameters: Mapping[str, object], *data: ctypes.c_void_p) -> None:
        count = ctypes.c_uint64(len(data))
        self._handle = _made("XGBoosterCreate", (ctypes.c_void_p * len(data))(*data), count)
        weakref.finalize(self, _library().XGBoosterFree, self._handle)
        for name, value in parameters.items():
            _call("XGBoosterSetParam", self._handle, name.encode(), str(value).encode())

    @staticmethod
    def load(text: bytes) -> Booster:
        """A model of `to_json`. Raises `TuningError` for a text that xgboost does not take.

        Some that are no models end the process: the caller recognises its own first.
        """
        booster = Booster({"nthread": 1})
        _call("XGBoosterLoadModelFromBuffer", booster._handle, text, ctypes.c_uint64(len(text)))
        return booster

    def to_json(self) -> bytes:
        """The model in xgboost's JSON, with its attributes."""
        size, text = ctypes.c_uint64(), ctypes.POINTER(ctypes.c_char)()
        _call(
            "XGBoosterSaveModelToBuffer",
            self._handle,
            b'{"format": "json"}',
            ctypes.byref(size),
            ctypes.byref(text),
        )
        return ctypes.string_at(text, size.value)

    def note(self, **attributes: str) -> None:
        """Set attributes, which are saved with the model."""
        for name, value in attributes.items():
            _call("XGBoosterSetAttr", self._handle, name.encode(), value.encode())

    def predict(self, features: Floats) -> Singles:
        """A number for each row."""
        if len(features) == 0:
            return np.empty(0, dtype=np.float32)
        rows = _singles(features)
        shape, dimensions = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint64()
        result = ctypes.POINTER(ctypes.c_float)()
        _call(
            "XGBoosterPredictFromDense",
            self._handle,
            _interface(rows),
            _PREDICT,
            None,
            ctypes.byref(shape),
            ctypes.byref(dimensions),
            ctypes.byref(result),
        )
        return np.ctypeslib.as_array(result, (len(rows),)).copy()


def train(
    parameters: Mapping[str, object],
    rounds: int,
    features: Floats,
    label: Floats,
    *,
    weight: Floats | None = None,
) -> Booster:
    """Learn `label` of each row in so many rounds."""
    rows = _singles(features)
    config = json.dumps({"missing": math.nan, "nthread": 1}).encode()
    data = _made("XGDMatrixCreateFromDense", _interface(rows), config)
    try:
        for field, column in (("label", label), ("weight", weight)):
            if column is not None:
                numbers = _singles(column)
                text = _interface(numbers)
                _call("XGDMatrixSetInfoFromInterface", data, field.encode(), text)
        booster = Booster(parameters, data)
        for number in range(rounds):
            _call("XGBoosterUpdateOneIter", booster._handle, number, data)
        _call("XGBoosterReset", booster._handle)
    finally:
        _call("XGDMatrixFree", data)
    return booster


def installed_version() -> str | None:
    """The version of xgboost that its package says, without loading it; `None` where it is none."""
    package = find_spec("xgboost")
    if package is None or package.origin is None:
        return None
    try:
        return Path(package.origin).with_name("VERSION").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _made(function: str, *arguments: object) -> ctypes.c_void_p:
    """The handle that a function creates, which is its last argument."""
    handle = ctypes.c_void_p()
    _call(function, *arguments, ctypes.byref(handle))
    return handle


def _call(function: str, *arguments: object) -> None:
    library = _library()
    compute_alone()
    if getattr(library, function)(*arguments) != 0:
        message = library.XGBGetLastError().decode().strip()
        raise TuningError("xgboost: {0}", message.partition("\n")[0])


@cache
def _library() -> ctypes.CDLL:
    """xgboost's library, found by the file of its package that knows where it is.

    Raises `TuningError` where there is none that can be used.
    """
    package = find_spec("xgboost")
    if package is None or package.origin is None:
        raise TuningError("xgboost is not installed", hint=_INSTALL)
    finder = spec_from_file_location("libpath", Path(package.origin).with_name("libpath.py"))
    assert finder is not None, "a .py file has a loader"
    assert finder.loader is not None
    module = module_from_spec(finder)
    version = [ctypes.c_int() for _ in range(3)]
    try:
        finder.loader.exec_module(module)
        library = ctypes.CDLL(module.find_lib_path()[0])
        library.XGBoostVersion(*map(ctypes.byref, version))
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise TuningError("xgboost does not load: {0}", reason, hint=_INSTALL) from error
    if version[0].value != _VERSION:
        installed = ".".join(str(n.value) for n in version)
        raise TuningError("found xgboost {0}; expected {1}", installed, _VERSION, hint=_INSTALL)
    library.XGBGetLastError.restype = ctypes.c_char_p
    return library


def _singles(numbers: Floats) -> Singles:
    return np.ascontiguousarray(numbers, dtype=np.float32)


def _interface(numbers: Singles) -> bytes:
    """Where an array is, which has to outlive the call."""
    return json.dumps(numbers.__array_interface__).encode()
