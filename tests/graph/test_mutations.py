"""Texts of graphs with a mistake: each kind is refused, by an error that can be read."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright.graph import Graph
from tilewright.graph.text import graph_text, parse_graph

from ..long import examples
from .random_graphs import a_graph
from .random_values import Pick

Mutation = Callable[[list[str], Pick], None]
"""Changes the lines of a text. Raises `IndexError` where there is nothing to change."""
MUTATIONS: dict[str, Mutation] = {}


def mutation(function: Mutation) -> Mutation:
    MUTATIONS[function.__name__] = function
    return function


def one_of(lines: list[str], pick: Pick, pattern: str) -> int:
    """The place of a line that matches."""
    places = [k for k, line in enumerate(lines) if re.search(pattern, line)]
    if not places:
        raise IndexError(pattern)
    return places[pick(len(places))]


def replaced(lines: list[str], at: int, pattern: str, new: str) -> None:
    lines[at], count = re.subn(pattern, new, lines[at], count=1)
    if not count:
        raise IndexError(pattern)


NODE = r"^  %.* = \w+\("
READ = re.compile(r"%\d+")


def read_nodes(lines: list[str]) -> str:
    """A pattern of the lines of nodes of whose results one is read later."""
    made = {
        name: line for line in lines if re.search(NODE, line)
        for name in READ.findall(line.partition(" = ")[0])
    }  # fmt: skip
    read = {name for line in lines for name in READ.findall(line.partition(" = ")[2] or line)}
    found = {made[name] for name in read if name in made}
    if not found:
        raise IndexError
    return "|".join(f"^{re.escape(line)}$" for line in found)


@mutation
def a_node_is_missing(lines: list[str], pick: Pick) -> None:
    del lines[one_of(lines, pick, read_nodes(lines))]


@mutation
def a_node_is_there_twice(lines: list[str], pick: Pick) -> None:
    at = one_of(lines, pick, NODE)
    lines.insert(at, lines[at])


@mutation
def a_node_comes_after_its_reader(lines: list[str], pick: Pick) -> None:
    lines.insert(len(lines) - 1, lines.pop(one_of(lines[:-1], pick, read_nodes(lines[:-1]))))


@mutation
def a_value_is_read_that_is_none(lines: list[str], pick: Pick) -> None:
    replaced(lines, one_of(lines, pick, NODE), r"\((%\d+|\w\d+)(?=[,)])", "(%999")


@mutation
def an_operand_is_missing(lines: list[str], pick: Pick) -> None:
    replaced(lines, one_of(lines, pick, r" = (?!concatenate)\w+\((%|x\d|w\d)"),
             r"\((%\d+|[xw]\d+)(, |(?=\)))", "(")  # fmt: skip


@mutation
def an_operand_too_many(lines: list[str], pick: Pick) -> None:
    at = one_of(lines, pick, r" = (?!concatenate|recurrence)\w+\((%|x\d|w\d)")
    replaced(lines, at, r"\((%\d+|[xw]\d+)", r"(\1, \1, \1, \1, \1, \1")


@mutation
def an_operator_is_unknown(lines: list[str], pick: Pick) -> None:
    replaced(lines, one_of(lines, pick, NODE), r" = (\w+)\(", r" = \1z(")


@mutation
def an_attribute_is_unknown(lines: list[str], pick: Pick) -> None:
    replaced(lines, one_of(lines, pick, NODE), r"\)$", ", axels=1)")


@mutation
def an_attribute_is_there_twice(lines: list[str], pick: Pick) -> None:
    replaced(lines, one_of(lines, pick, r"\w+=\w+\)$"), r"(\w+=\w+)\)$", r"\1, \1)")


@mutation
def an_attribute_is_missing(lines: list[str], pick: Pick) -> None:
    at = one_of(lines, pick, r"(slice|transpose|reshape|softmax|normalize|pad|top)\(")
    replaced(lines, at, r", \w+=(\([^()]*\)|[\w.']+)", "")
    if "pad(" in lines[at]:
        replaced(lines, at, r", after=\([^()]*\)", "")


@mutation
def an_attribute_is_of_another_kind(lines: list[str], pick: Pick) -> None:
    at = one_of(lines, pick, r"(slice|transpose|reshape|softmax|normalize|pad|sum|conv|pool)\(")
    new = ("'two'", "None", "(1e999,)", "{1: 2}", "((1, 2), 3)", "1.5", "-77")[pick(7)]
    replaced(
        lines, at, r"(shape|axes|axis|starts|strides|before)=(\([^()]*\)|[\w.']+)", rf"\1={new}"
    )


@mutation
def another_dtype(lines: list[str], pick: Pick) -> None:
    at = one_of(lines, pick, NODE)
    dtype = ("uint16", "float64", "bool", "float31")[pick(4)]
    if f": {dtype}[" in lines[at]:
        raise IndexError
    replaced(lines, at, r": \w+\[", f": {dtype}[")


@mutation
def another_extent(lines: list[str], pick: Pick) -> None:
    replaced(lines, one_of(lines, pick, r"^  %\d+: \w+\[\d"), r"(: \w+\[)(\d+)", r"\g<1>1\2")


@mutation
def another_rank(lines: list[str], pick: Pick) -> None:
    replaced(lines, one_of(lines, pick, r"^  %\d+: \w+\[\d"), r"(: \w+\[)", r"\g<1>1, ")


@mutation
def an_extent_that_no_array_has(lines: list[str], pick: Pick) -> None:
    new = ("9" * 19, "9" * 5000, "-1")[pick(3)]
    replaced(lines, one_of(lines, pick, r": \w+\[\d"), r"(: \w+\[)\d+", rf"\g<1>{new}")


@mutation
def an_input_is_there_twice(lines: list[str], _: Pick) -> None:
    replaced(lines, 0, r"\((\w+: \w+\[[\d, ]*\])", r"(\1, \1")


@mutation
def something_else_among_the_inputs(lines: list[str], _: Pick) -> None:
    replaced(lines, 0, r"\(", "(and more, ")


@mutation
def an_output_is_there_twice(lines: list[str], _: Pick) -> None:
    replaced(lines, 0, r"-> \((\w+)", r"-> (\1, \1")
    replaced(lines, len(lines) - 1, r"return (\w+=[%\w]+)", r"return \1, \1")


@mutation
def an_output_that_is_not_returned(lines: list[str], _: Pick) -> None:
    replaced(lines, 0, r"-> \(", "-> (more, ")


@mutation
def something_else_among_what_is_returned(lines: list[str], _: Pick) -> None:
    lines[-1] += ", and more"


@mutation
def nothing_is_returned(lines: list[str], _: Pick) -> None:
    del lines[-1]


@mutation
def another_digest(lines: list[str], pick: Pick) -> None:
    replaced(lines, one_of(lines, pick, r"sha256:"), r"sha256:\w{9}", "sha256:000000000")


@mutation
def another_type_of_a_constant(lines: list[str], pick: Pick) -> None:
    at = one_of(lines, pick, r"const w\d+: \w+\[\d")
    replaced(lines, at, r"(: \w+\[)(\d+)", r"\g<1>1\2")


@mutation
def a_line_that_is_none(lines: list[str], pick: Pick) -> None:
    lines.insert(1 + pick(len(lines) - 1), "  %x = 1")


def parsed(lines: list[str], graph: Graph) -> Graph:
    return parse_graph("\n".join(lines) + "\n", {c.digest: c.data for c in graph.constants})


@pytest.mark.parametrize("kind", sorted(MUTATIONS))
def test_each_kind_of_mistake_is_refused(kind: str) -> None:
    left = examples(32)
    for seed in range(400):
        rng = np.random.default_rng(seed)
        graph = a_graph(seed).graph
        lines = graph_text(graph).splitlines()
        try:
            MUTATIONS[kind](lines, lambda n, rng=rng: int(rng.integers(n)))  # type: ignore[misc]
        except IndexError:
            continue
        with pytest.raises(ModelError) as raised:
            parsed(lines, graph)
        assert str(raised.value)
        left -= 1
        if not left:
            return
    raise AssertionError(f"{left} examples are lacking")


def test_other_characters_are_refused_or_mean_another_graph() -> None:
    rng = np.random.default_rng(0)
    for seed in range(examples(40)):
        graph = a_graph(seed).graph
        text = graph_text(graph)
        held = {c.digest: c.data for c in graph.constants}
        for _ in range(40):
            at = int(rng.integers(len(text)))
            new = rng.choice(list("0189,=([)]:%\"'\\-* \n\x00xé"))
            changed = text[:at] + new + text[at + int(rng.integers(2)) :]
            try:
                again = parse_graph(changed, held)
            except ModelError:
                continue
            assert parse_graph(graph_text(again), held).digest == again.digest
