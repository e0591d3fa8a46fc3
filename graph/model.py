"""`Model`, what a graph is built to: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base import dtypes
from ..base.errors import ArgumentError
from ..runtime.module import Module
from ..runtime.timer import Timing
from .ir import TensorType
from .operator import Array
from .reference import bound_to


class Model:
    """A compiled graph. Calls may run concurrently in several threads.

    `module` is the kernel that runs all others; its last argument is `weights`, if there are any.
    """

    def __init__(
        self,
        module: Module,
        inputs: Mapping[str, TensorType],
        outputs: Mapping[str, TensorType],
        weights: Array | None,
        evidence: Any = None,
    ) -> None:
        self.module = module
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)
        self.weights = weights
        self.evidence = evidence
        self._held = () if weights is None else (weights,)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The output, or the tuple of outputs, as new numpy arrays.

        Inputs are given by position or by name: numpy arrays, or CPU objects with `__dlpack__`, of
        exactly the types of `inputs`. Raises `ArgumentError` and what the kernel raises.
        """
        results = self._empty()
        self._run(arguments, named, results)
        return results[0] if len(results) == 1 else results

    def into(self, *arguments: Any, out: Any, **named: Any) -> None:
        """Like a call, and the outputs are written to `out`: an array, or several in their order."""
        results = tuple(out) if isinstance(out, Sequence) else (out,)
        if len(results) != len(self.outputs):
            raise ArgumentError(
                "out: expected {0} arrays ({1}), found {2}",
                len(self.outputs), ", ".join(self.outputs), len(results),
            )  # fmt: skip
        self._run(arguments, named, results)

    def time(self, *arguments: Any, **options: Any) -> Timing:
        """Times calls with these inputs, by position; options as of `Module.time`."""
        given = bound_to(self.inputs, arguments, {})
        return self.module.time(*given.values(), *self._empty(), *self._held, **options)

    def _run(self, arguments: Sequence[Any], named: Mapping[str, Any], out: Sequence[Any]) -> None:
        given = bound_to(self.inputs, arguments, named)
        compact = map(np.ascontiguousarray, given.values())
        shaped = (a.reshape(t.shape) for a, t in zip(compact, self.inputs.values(), strict=True))
        self.module(*shaped, *out, *self._held)

    def _empty(self) -> tuple[Array, ...]:
        return tuple(np.empty(t.shape, dtypes.to_numpy(t.dtype)) for t in self.outputs.values())

    def __repr__(self) -> str:
        given = ", ".join(f"{n}: {t}" for n, t in self.inputs.items())
        made = ", ".join(f"{n}: {t}" for n, t in self.outputs.items())
        return f"<Model {self.module.signature.name}({given}) -> ({made})>"
