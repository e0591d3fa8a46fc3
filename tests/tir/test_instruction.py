"""Instructions as pairs of programs: what may be declared, and what they match."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilewright.base.errors import IRError
from tilewright.target import Target
from tilewright.tir.instruction import Cost, Instruction, product_in
from tilewright.tir.instruction_check import check_instruction
from tilewright.tir.instruction_match import Mismatch, match
from tilewright.tir.instruction_set import (
    TABLES,
    find_instruction,
    instruction_names,
    instructions_of,
    products_of,
    register_intrin,
)
from tilewright.tir.ir import Stmt
from tilewright.tir.parser import parse

from ..toy_target import ToyTarget

SEMANTICS = """
def scale(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * 2.0
"""
IMPLEMENTATION = """
def scale(A: T.Buffer((2, 2), "float32"), B: T.Buffer((4,), "float32")):
    B[T.ramp(0, 1, 2)] = A[0, T.ramp(0, 1, 2)] + A[0, T.ramp(0, 1, 2)]
    B[T.ramp(2, 1, 2)] = A[1, T.ramp(0, 1, 2)] + A[1, T.ramp(0, 1, 2)]
"""


PAIRS_8, PAIRS_16 = (
    " ".join(f"dot_{lanes}x{what}" for what in ("4_u8u8", "4_u8s8", "4_s8u8", "4_s8s8", "2_s16s16"))
    for lanes in (8, 16)
)


def declared(semantics: str = SEMANTICS, implementation: str = IMPLEMENTATION) -> Instruction:
    programs = parse(semantics), parse(implementation)
    made = Instruction("scale", lambda: programs, product_in(programs[1]))
    check_instruction(made)
    return made


@pytest.mark.parametrize("name", [i.name for table in TABLES.values() for i in table])
def test_those_of_this_package(name: str) -> None:
    found = find_instruction(name)
    assert found is not None
    check_instruction(found)
    assert not isinstance(match(found.semantics.body, found), Mismatch)
    for other in filter(None, (found.init, found.write)):
        assert find_instruction(other) is not None


def test_tables_are_of_their_kind_and_names_are_unique() -> None:
    for kind, table in TABLES.items():
        assert {i.unit.kind for i in table} == {kind}
    named = [i.name for table in TABLES.values() for i in table]
    assert len(set(named)) == len(named)
    assert set(named) <= set(instruction_names())


@pytest.mark.parametrize(
    ("cpu", "names"),
    [
        ("x86-64-v2", ""),
        ("haswell", PAIRS_8),
        ("neoverse-n1", ""),
        ("alderlake", f"dot_8x4_vnni {PAIRS_8}"),
        ("skylake-avx512", f"{PAIRS_16} {PAIRS_8}"),
        ("cascadelake", f"dot_16x4_vnni dot_8x4_vnni {PAIRS_16} {PAIRS_8}"),
        (
            "cooperlake",
            f"dot_16x4_vnni dot_8x4_vnni dot_16x2_bf16 dot_8x2_bf16 {PAIRS_16} {PAIRS_8}",
        ),
        (
            "cooperlake -mattr=-avx512vl",
            f"dot_16x4_vnni dot_16x2_bf16 {PAIRS_16} {PAIRS_8}",
        ),
        (
            "sapphirerapids -mattr=-amx-int8,-avx512bf16",
            f"matmul_bf16_amx dot_16x4_vnni dot_8x4_vnni {PAIRS_16} {PAIRS_8}",
        ),
    ],
)
def test_what_targets_have_for_products(cpu: str, names: str) -> None:
    target = Target.parse(f"cpu -mcpu={cpu} -threads=1")
    assert " ".join(i.name for i, _, _ in products_of(target)) == names
    assert {i.name for i, _, _ in products_of(target)} <= {i.name for i in instructions_of(target)}


def test_instructions_are_of_one_kind_of_target() -> None:
    """A target of another kind has none, whatever its features are called."""
    features = tuple({name for i in TABLES["cpu"] for names in i.requires for name in names})
    other = replace(ToyTarget(), features=features)
    assert instructions_of(other) == ()
    assert all(i.unit.kind == "cpu" for i in TABLES["cpu"])


def test_the_text_has_the_programs() -> None:
    """Caches go by it, and locks."""
    found = declared()
    added = IMPLEMENTATION.replace(
        "A[0, T.ramp(0, 1, 2)] + A[0, T.ramp(0, 1, 2)]", "A[0, T.ramp(0, 1, 2)] * 2.0"
    )
    assert added != IMPLEMENTATION
    assert found.text == declared().text
    assert found.text != declared(implementation=added).text
    assert found.text != declared(SEMANTICS.replace("A[vi] * 2.0", "A[vi] + A[vi]")).text


def test_a_name_is_given_once() -> None:
    assert find_instruction("scale_for_a_test") is None
    found = register_intrin("scale_for_a_test", parse(SEMANTICS), parse(IMPLEMENTATION))
    assert find_instruction("scale_for_a_test") is found
    known = instructions_of(Target.parse("cpu -mcpu=cascadelake -threads=1"))
    names = [i.name for i in known]
    assert known[names.index("scale_for_a_test")] is found
    assert names.index("scale_for_a_test") < names.index("dot_16x4_vnni"), "users' come first"
    for name in ("scale_for_a_test", "dot_16x4_vnni"):
        with pytest.raises(IRError):
            register_intrin(name, parse(SEMANTICS), parse(IMPLEMENTATION))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("range(4)", "range(1)", "loops of two iterations or more around one store"),
        ("* 2.0", "* 2.0\n            B[vi] = A[vi]", "around one store"),
        ("A[vi] *", "A[3 - vi] *", "use each dimension of A by a loop of its own"),
        ('A: T.Buffer((4,)', 'A: T.Buffer((5,)', "use each dimension of A by a loop of its own"),
    ],
)  # fmt: skip
def test_semantics_of_another_form(old: str, new: str, message: str) -> None:
    with pytest.raises(IRError, match=message):
        declared(SEMANTICS.replace(old, new).replace("4, i", "1, i" if "1" in new else "4, i"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(2, 2)", "(2, 3)", "the same dtypes and numbers of elements"),
        ("    B[T.ramp(2", "    for i in range(2):\n        B[T.ramp(2", "found For"),
        ("T.ramp(2, 1, 2)]", "T.ramp(1, 1, 2)]", "compute different values: B|never"),
        (
            "+ A[1",
            "- A[1",
            r"compute different values: B\[2\] is 0.0, expected ",
        ),
    ],
)
def test_implementation_of_another_form(old: str, new: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        declared(implementation=IMPLEMENTATION.replace(old, new))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B[i] = A[i] * 3.0", "it computes"),
        ("B[i] = A[i] * 2.0 + 1.0", "it computes"),
        ("B[0] = A[i] * 2.0", "it stores 4 values to 1 elements of B"),
        ("B[i] = B[i] * 2.0", "B stands for B, A of the instruction"),
        ("B[i] = A[i // 2] * 2.0", "an index of A, i // 2, is not linear in the loops"),
    ],
)
def test_what_is_something_else(text: str, message: str) -> None:
    found = match(tile(text), declared())
    assert isinstance(found, Mismatch)
    assert message in found.message.format(*found.arguments)


@pytest.mark.parametrize("text", ["B[i] = A[i] * 2.0", "B[7 - i * 2] = 2.0 * A[i + 4]"])
def test_regions(text: str) -> None:
    found = match(tile(text), declared())
    assert not isinstance(found, Mismatch)
    assert [o.buffer.name for o in found.values()] == ["B", "A"]


def tile(text: str) -> Stmt:
    return parse(f"""
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(4):
        {text}
""").body


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"name": None}, "an instruction is named None; expected an identifier"),
        ({"name": 5}, "an instruction is named 5; expected an identifier"),
        ({"name": "a b"}, "an instruction is named 'a b'; expected an identifier"),
        ({"semantics": None}, "expected two programs"),
        ({"unit": 5}, "unit: expected a Unit, found 5"),
        ({"requires": None}, "`requires` is None; expected a tuple of alternatives"),
        ({"cost": "x"}, "cost: expected a Cost or None, found 'x'"),
        ({"cost": Cost(cycles=0.0, latency=1.0)}, "cycles is 0.0; expected a finite number above"),
        ({"cost": Cost(cycles=1.0, latency=0.0)}, "latency is 0.0; expected a finite number above"),
        ({"cost": Cost(cycles=-1.0, latency=1.0)}, "cycles is -1.0; expected a finite number"),
        ({"cost": Cost(float("inf"), 1.0)}, "cycles is inf; expected a finite number"),
        ({"cost": Cost(1.0, None)}, "latency is None; expected a finite number"),  # type: ignore[arg-type]
        ({"cost": Cost(1.0, 1.0, -1.0)}, "run_loads is -1.0; expected a finite number from 0 on"),
        ({"code": "abort"}, "expected the name of an LLVM intrinsic, found 'abort'"),
        ({"code": "llvm.x(); ret"}, "expected the name of an LLVM intrinsic"),
        ({"code": None}, "expected the name of an LLVM intrinsic, found None"),
    ],
)
def test_facts_that_mean_nothing_are_refused(facts: dict[str, Any], message: str) -> None:
    programs = {"semantics": parse(SEMANTICS), "implementation": parse(IMPLEMENTATION)}
    with pytest.raises(IRError, match=message):
        register_intrin(**{"name": "no_instruction", **programs, **facts})
    assert find_instruction("no_instruction") is None
