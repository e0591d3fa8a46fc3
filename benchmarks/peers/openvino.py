"""OpenVINO on the processor."""

from __future__ import annotations

import openvino

from ..suite import Array, Case
from .call import Call
from .graphs import graph

VERSION = openvino.__version__


def prepare(case: Case, arrays: list[Array], threads: int) -> Call | None:
    """The call for a case, in the precision of its data."""
    model, feeds = graph(case, arrays)
    core = openvino.Core()
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", options)
    request = compiled.create_infer_request()
    bound = compiled.create_infer_request()
    for name, array in feeds.items():
        bound.set_tensor(name, openvino.Tensor(array, shared_memory=True))
    return Call(
        lambda: request.infer(feeds, share_inputs=True, share_outputs=True),
        lambda: request.infer(feeds)[0],
        bound.infer,
    )
