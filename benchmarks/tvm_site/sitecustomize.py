"""Loaded by every Python that TVM starts, when this folder is in PYTHONPATH.

Importing TVM's tensor intrinsics calls `inspect.getmodule` so often that its builders, which do so
first of all, run into their own time limit; what it returns is of no use to them.
"""

import inspect

inspect.getmodule = lambda *_, **__: None
