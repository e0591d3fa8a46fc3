"""Random programs with rounds: a loop around several blocks, whose temporaries have no axis of it.

    for b:                          # a round
      for j: P[j] = A[b, j] * 2     # made anew in each, by a block with the axis of the round,
      for j: Q[j] = P[j] + 1        # or by one that only reads what another made
      for j: Y[b, j] = Q[j] * 3
    for b, j: Z[b, j] = Y[b, j] - Q[j]

An element has the value of a round as long as the round lasts, and afterwards that of the last.
"""

from __future__ import annotations

from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from .random_stages import Pick

TEMPORARIES = "PQRV"


def a_program_of_rounds(pick: Pick) -> Func:
    """Temporaries, each made from one before; what a round computes of them; and who reads that."""
    rounds, size = 2 + pick(3), 2 + pick(4)
    internal = pick(2)
    whole = [f"S{n}" for n in range(pick(2))]
    names = list(TEMPORARIES[: 1 + pick(len(TEMPORARIES))])
    before = [_in_full(name, "A", rounds, size, pick) for name in whole]
    body, rows = list[str](), dict[str, int]()
    if pick(4) == 0:  # all rows again in each round
        body += _indented(_in_full("W", "A", rounds, size, pick))
        whole.append("W")
    for k, name in enumerate(names):
        body += _temporary(name, names[:k], ["A", *whole], (rounds, size), pick)
    if pick(4) == 0:
        body += _window(names, (rounds, size), pick)
        rows["X"] = rounds + 1
    body += _result(names, [*whole, *rows], (rounds, size), pick)
    tensors = ["A", *(["Y"] if not internal else []), "Z"]
    allocs: list[tuple[str, tuple[int, ...]]] = [(name, (size,)) for name in names]
    full = [*whole, *(["Y"] if internal else [])]
    allocs += [(name, (rows.get(name, rounds), size)) for name in [*full, *rows]]
    params = ", ".join([f'{t}: T.Buffer(({rounds}, {size}), "int32")' for t in tensors])
    lines = [
        f"def rounds({params}):",
        *(f'    {name} = T.alloc({shape}, "int32")' for name, shape in allocs),
        *(line for part in before for line in _indented(part)),
        f"    for b in range({rounds}):",
        *_indented(body),
        *_indented(_reader(names, whole, rounds, size, pick)),
    ]
    return parse("\n".join(["@tw.script", *lines]) + "\n")


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _in_full(name: str, source: str, rounds: int, size: int, pick: Pick) -> list[str]:
    """A nest that computes all rows, perhaps as sums."""
    summed = pick(2)
    loops, axes, kinds = ("a, j, k", "va, vj, vk", "SSR") if summed else ("a, j", "va, vj", "SS")
    extents = (rounds, size, size) if summed else (rounds, size)
    lines = [
        f"for {loops} in T.grid{extents}:",
        f'    with T.block("{name}"):',
        f'        {axes} = T.axis.remap("{kinds}", [{loops}])',
    ]
    if not summed:
        return [*lines, f"        {name}[va, vj] = {source}[va, vj] + 1"]
    return [
        *lines,
        "        with T.init():",
        f"            {name}[va, vj] = 0",
        f"        {name}[va, vj] = {name}[va, vj] + {source}[va, vk]",
    ]


def _temporary(
    name: str, earlier: list[str], whole: list[str], sizes: tuple[int, int], pick: Pick
) -> list[str]:
    """A block in a round that makes a temporary, of another one where there is one."""
    rounds, size = sizes
    at = ("vj", f"{size - 1} - vj")[pick(3) == 0]
    if earlier and pick(4):
        axis, source = pick(3) == 0, f"{earlier[pick(len(earlier))]}[{at}]"
    else:
        axis, source = True, f"{whole[pick(len(whole))]}[vb, {at}]"
    if earlier and pick(4) == 0:
        source += f" - {earlier[pick(len(earlier))]}[vj]"
    summed = pick(4) == 0
    lines = [
        f"    for j, k in T.grid({size}, {size}):" if summed else f"    for j in range({size}):",
        f'        with T.block("{name}"):',
        *([f"            vb = T.axis.spatial({rounds}, b)"] if axis else []),
        f"            vj = T.axis.spatial({size}, {('j', f'{size - 1} - j')[pick(3) == 0]})",
    ]
    if not summed:
        value = f"{source} + A[vb, vj]" if axis and pick(2) else f"{source} * 2 + 1"
        return [*lines, f"            {name}[vj] = {value}"]
    return [
        *lines,
        f"            vk = T.axis.reduce({size}, k)",
        "            with T.init():",
        f"                {name}[vj] = 1",
        f"            {name}[vj] = {name}[vj] + {source.replace('vj', 'vk')}",
    ]


def _window(names: list[str], sizes: tuple[int, int], pick: Pick) -> list[str]:
    """Rows that two rounds compute, of which the later one holds."""
    rounds, size = sizes
    return [
        f"    for a, j in T.grid(2, {size}):",
        '        with T.block("X"):',
        f"            vx = T.axis.spatial({rounds + 1}, b + a)",
        f"            vj = T.axis.spatial({size}, j)",
        f"            X[vx, vj] = {names[pick(len(names))]}[vj] + 5",
    ]


def _result(names: list[str], whole: list[str], sizes: tuple[int, int], pick: Pick) -> list[str]:
    """What a round computes of its temporaries, the last of them among these."""
    rounds, size = sizes
    terms = [f"{n}[vj]" for n in names]
    terms += [f"{n}[vb + {pick(2)}, vj]" if n == "X" else f"{n}[vb, vj]" for n in whole]
    at = ("vj", f"{size - 1} - vj")[pick(2)]
    first = f"{names[-1]}[{at}] * 3 - {terms[pick(len(terms))]}"
    return [
        f"    for j in range({size}):",
        '        with T.block("Y"):',
        f"            vb = T.axis.spatial({rounds}, b)",
        f"            vj = T.axis.spatial({size}, j)",
        f"            Y[vb, vj] = {first}{' + X[vb, vj] - X[vb + 1, vj]' if 'X' in whole else ''}",
    ]


def _reader(names: list[str], whole: list[str], rounds: int, size: int, pick: Pick) -> list[str]:
    """What reads the results of all rounds, and perhaps a temporary of the last one."""
    terms = [
        "Y[vb, vj] - 1",
        f"Y[vb, vj] + {names[pick(len(names))]}[vj]",
        f"Y[vb, {size - 1} - vj] + Y[{rounds - 1} - vb, vj]",
        f"Y[vb, vj] + {(whole or ['A'])[-1]}[vb, vj]",
    ]
    return [
        f"for b, j in T.grid({rounds}, {size}):",
        '    with T.block("Z"):',
        '        vb, vj = T.axis.remap("SS", [b, j])',
        f"        Z[vb, vj] = {terms[pick(len(terms))]}",
    ]
