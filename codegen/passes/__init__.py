"""Lowering passes: each takes a `Func` and a `Target` and returns a `Func`."""
