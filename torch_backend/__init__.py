"""`torch.compile(module, backend="tilewright")`: what Dynamo captures is built as graphs."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def backend(module: Any, examples: Any, **options: Any) -> Any:
    """The entry point of PyTorch's registry of backends; see `dynamo.py`."""
    return import_module(".dynamo", __package__).compile_captured(module, examples, **options)
