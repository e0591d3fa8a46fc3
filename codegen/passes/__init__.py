"""Lowering passes: each takes a `Func` and the facts that it needs."""
