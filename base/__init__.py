"""The ground floor: errors, dtypes, texts, files; every package may import it."""

__version__ = "0.1.0"
"""Of the package, and of the runtime that is shipped alone (`packaging/runtime`)."""
