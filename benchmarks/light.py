"""The light models of the `onnx` package, which say the shapes of their weights only, with weights.

Each `ConstantOfShape` of a known shape becomes a
tensor from a seed, scaled so that deep networks neither vanish nor grow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper

_LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"


def filled(folder: Path) -> list[Path]:
    """The files of the models, written into a folder where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for source in sorted(_LIGHT.glob("*.onnx")):
        written.append(folder / source.name)
        if not written[-1].exists():
            model = onnx.load(source)
            fill(model.graph)
            onnx.save(model, written[-1])
    return written


def fill(graph: onnx.GraphProto) -> None:
    """Replace what has a known shape and no elements by a tensor, an initializer."""
    rng = np.random.default_rng(0)
    held = {t.name: t for t in graph.initializer}
    read = {name: (node.op_type, k) for node in graph.node for k, name in enumerate(node.input)}
    made = [n for n in graph.node if n.op_type == "ConstantOfShape" and n.input[0] in held]
    for node in made:
        shape = tuple(numpy_helper.to_array(held[node.input[0]]))
        data = _weights(rng, shape, *read[node.output[0]])
        graph.initializer.append(numpy_helper.from_array(data, node.output[0]))
        graph.node.remove(node)


def _weights(
    rng: np.random.Generator, shape: tuple[int, ...], reader: str, place: int
) -> np.ndarray[Any, Any]:
    """Products nearly keep the variance of what they take; scales and variances are about 1."""
    data: np.ndarray[Any, Any] = rng.standard_normal(shape)
    if len(shape) > 1:
        data *= np.sqrt(1.5 / np.prod(shape[1:]))
    elif reader == "Mul" or (reader == "BatchNormalization" and place in (1, 4)):
        data = rng.uniform(0.5, 1.5, shape)
    else:
        data *= 0.1
    return data.astype(np.float32)
