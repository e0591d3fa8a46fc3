"""ONNX Runtime on the processor."""

from __future__ import annotations

import onnxruntime

from ..suite import Array, Case
from .call import Call
from .graphs import graph

VERSION = onnxruntime.__version__


def prepare(case: Case, arrays: list[Array], threads: int) -> Call | None:
    """The call for a case."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    model, feeds = graph(case, arrays)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("y")
    return Call(
        lambda: session.run(None, feeds),
        lambda: session.run(None, feeds)[0],
        lambda: session.run_with_iobinding(binding),
    )
