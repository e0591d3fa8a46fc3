"""Passes: what a graph goes through before it is divided into kernels.

A pass is a table of rules by operator. A rule is a function of a builder and a node, whose
docstring says before -> after; it answers with what stands for the node's outputs, or `None`. It
finds what computes its operands by `Builder.producer`. All passes are run in the order of `PASSES`,
each until none of its rules answers.

A rule that is exact keeps all values: NaN, infinities and the sign of zero too. The others (passes
with a `tolerance`) are as precise or more so, computed in the reals they are equal.
"""

from .driver import PASSES, Pass, Stage, stages

__all__ = ["PASSES", "Pass", "Stage", "stages"]
