"""Passes of lowering that several kinds of targets list."""

from __future__ import annotations

from .generator import Pass
from .passes.blocks import blocks
from .passes.flatten import flatten
from .passes.trim import trim

BLOCKS = Pass(
    "blocks",
    blocks,
    "Replaces blocks by plain stores in loops, as only schedules need to know which iterations "
    "belong to which computation.",
)
TRIM = Pass(
    "trim",
    trim,
    "Ends loops where every guard in them has become false, as the iterations after that do "
    "nothing.",
)
FLATTEN = Pass(
    "flatten",
    flatten,
    "Turns the indices of each access into one offset, as memory has one dimension.",
)
