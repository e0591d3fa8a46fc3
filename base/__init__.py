"""The ground floor: errors, dtypes, texts, files; every package may import it."""

__version__ = "0.1.0"
"""Of the package, and of the runtime that is shipped alone (`packaging/runtime`)."""

LOWERING = 1
"""The generation of what makes programs of models: importers, compositions, passes, lowering.

It is one more after a change that makes other programs of a model, whose records and locks are of
the earlier programs then; `tests/graph/test_generation.py` notices.
"""
