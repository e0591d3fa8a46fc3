"""Passes: what a graph goes through before it is divided into kernels.

A pass is a table of rules by operator. A rule is a function of a builder and a node, whose
docstring says before -> after; it answers with what stands for the node's outputs, or `None`. It
finds what computes its operands by `Builder.producer`. All passes are run in the order of `PASSES`,
each until none of its rules answers.

A rule is exact, and keeps all values: NaN, infinities and the sign of zero too; or it is equal over
the reals and rounds no more than what it replaces does, as in passes with `roundings`.
"""

from .driver import PASSES, Pass, Stage, stages

__all__ = ["PASSES", "Pass", "Stage", "stages"]
