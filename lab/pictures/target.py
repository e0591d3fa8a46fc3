"""The picture of a target: its caches, vectors and rates, and what this machine lacks for it."""

from __future__ import annotations

import htpy as h

from ...base.errors import TargetError, TilewrightError
from ...base.text import format_bytes
from ...codegen.detect import resolve
from ...codegen.generator import generator_for
from ...target import Fact, Target
from .page import text
from .tables import facts

_WORDS = {"sm": "SM", "sms": "SMs", "line": "cache line"}
"""Words in the names of facts as people write them."""


def view(target: Target) -> h.Node:
    """The picture of a target, with what it leaves to this machine filled in."""
    missing = list[TilewrightError](generator_for(target).missing())
    known = target
    try:
        known = resolve(target)
    except TargetError as error:
        missing.insert(0, error)
    features = known.facts.get("features")
    return h.div(".tw-target")[
        h.p[h.code[text(target)], "" if known == target else f" is {text(known)} here"],
        facts({
            **{_title(name): _fact(name, value) for name, value in known.facts.items()},
            "Features": _folded(features) if isinstance(features, list) else "",
        }),
        h.p(".caption")["Rates:"] if known.speeds else None,
        facts({name.capitalize(): text(value) for name, value in known.speeds.items()}),
        [_lacking(told) for told in dict.fromkeys(map(str, missing))],
    ]  # fmt: skip


def _title(name: str) -> str:
    """`L1` of `l1_bytes`, `Vector bits` of `vector_bits`."""
    words = [_WORDS.get(word, word) for word in name.split("_") if word != "bytes"]
    return " ".join([words[0][0].upper() + words[0][1:], *words[1:]])


def _fact(name: str, value: Fact) -> str:
    if isinstance(value, int) and "bytes" in name.split("_"):
        return format_bytes(value)
    return "" if value is None else text(value)


def _lacking(told: str) -> h.Node:
    """What this machine lacks, and below it the remedy."""
    first, *rest = told.split("\n")
    return h.div[
        h.p[h.b(".bad")["Missing: "], text(first)],
        [h.p(".caption")[text(line.strip())] for line in rest],
    ]


def _folded(features: list[str]) -> h.Node:
    if not features:
        return ""
    return h.details[h.summary[f"{len(features)} features"], text(", ".join(features))]
