"""Compositions: layers that are several operators of graphs, as functions of a builder.

They say nothing of the format that a layer was read from, so that all importers use the same ones:
an importer reads attributes and versions, and calls these. A composition of floats narrower than
float32 computes in float32, and rounds once. It raises `ModelError` for operands that it does not
take, and `UnsupportedError` for dtypes that there are, but that it is not written for.
"""
