"""Parts of ONNX models, and whole ones, that onnxruntime or OpenVINO run on the processor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..base.errors import BuildError, ProviderError
from ..target import Target
from .part_loader import LOADERS, Call, PartLoader


class _OnnxParts(PartLoader):
    """Stored parts are ONNX models, which later versions take too."""

    def takes(self, version: str) -> bool:
        return _numbers(version) <= _numbers(self.version())

    def missing(self) -> ProviderError:
        """The error where its library is not installed."""
        return ProviderError(
            "the provider {0} is not installed", self.name, hint=f"pip install {self.name}",
            provider=self.name,
        )  # fmt: skip


class OnnxruntimeParts(_OnnxParts):
    """onnxruntime, with as many threads as the target has."""

    name = "onnxruntime"

    def version(self) -> str:
        return str(self._library().__version__)

    def session(self, model: bytes | str, target: Target) -> Any:
        """An `InferenceSession` of a model or its file. Raises `BuildError`, and `ProviderError`
        where onnxruntime is not installed."""
        ort = self._library()
        options = ort.SessionOptions()
        options.intra_op_num_threads = _threads(target)
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # it has no public base of its errors
            raise BuildError("onnxruntime does not take the model: {0}", error) from error

    def load(self, content: bytes, target: Target) -> Call:
        session = self.session(content, target)
        inputs = [one.name for one in session.get_inputs()]
        outputs = [one.name for one in session.get_outputs()]

        def call(*given: Any) -> Sequence[Any]:
            found: Sequence[Any] = session.run(outputs, dict(zip(inputs, given, strict=True)))
            return found

        return call

    def _library(self) -> ModuleType:
        try:
            import onnxruntime
        except ImportError as error:
            raise self.missing() from error
        return onnxruntime  # type: ignore[no-any-return]


class OpenvinoParts(_OnnxParts):
    """OpenVINO, with as many threads as the target has."""

    name = "openvino"

    def version(self) -> str:
        return str(self._library().__version__)

    def load(self, content: bytes, target: Target) -> Call:
        openvino = self._library()
        options = {
            "INFERENCE_NUM_THREADS": _threads(target),
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        try:
            core = openvino.Core()
            compiled = core.compile_model(core.read_model(content, b""), "CPU", options)
        except Exception as error:
            raise BuildError("OpenVINO does not take the model: {0}", error) from error
        count = len(compiled.outputs)

        def call(*given: Any) -> Sequence[Any]:
            request = compiled.create_infer_request()  # of a thread's own
            request.infer(list(given))
            return [np.array(request.get_output_tensor(n).data) for n in range(count)]

        return call

    def _library(self) -> ModuleType:
        try:
            import openvino
        except ImportError as error:
            raise self.missing() from error
        return openvino  # type: ignore[no-any-return]


def _threads(target: Target) -> int:
    return getattr(target, "threads", 0) or 1


def _numbers(version: str) -> list[int]:
    """The numbers that a version begins with: `2026.4.0-123-abc` is after `2026.3.1`."""
    return [int(n) for n in re.findall(r"\d+", version)[:3]]


for _loader in (OnnxruntimeParts(), OpenvinoParts()):
    LOADERS.setdefault(_loader.name, _loader)
