"""Programs that no operator of this package makes: random candidates compute what they say."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.autotune.measure.numeric_check import check_outputs, tolerance_of
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import sketches
from tilewright.codegen.detect import resolve
from tilewright.codegen.lower import lower
from tilewright.schedule.block_queries import has_reduction, region_buffers
from tilewright.schedule.find import blocks_in
from tilewright.target import Target
from tilewright.tir import te
from tilewright.tir.ir import Func, Load, Ramp, Seq, Store, const
from tilewright.tir.structure import same
from tilewright.tir.visit import walk

from .checking import arguments, expected, planned, run, some_rows
from .formulas import (
    FORMULAS,
    product_of_activations,
    product_of_halves,
    squeeze_and_excite,
    sub_pixel_convolution,
    sums_of_channels,
    transposed_convolution,
    transposed_convolution_by_2,
)
from .selection import LEAST, selected

SERIAL = Target.parse("cpu -mcpu=cascadelake -threads=1")


@pytest.mark.part(2)
@pytest.mark.parametrize("name", FORMULAS)
def test_candidates_compute_what_the_formula_says(name: str) -> None:
    func, target = FORMULAS[name](), resolve("cpu -threads=2")
    wanted, rng = expected(func, 1), np.random.default_rng(0)
    assert "written" not in planned(func, target)
    made = selected(func, target)
    for sketch in made:
        for row in some_rows(sketch, rng, 1 if len(made) >= LEAST else 2):
            found = arguments(func, 1)
            run(sketch.trace.with_row(row.tolist()).apply(func).func, target, found)
            check = check_outputs(found[-1:], wanted[-1:], ["Y"], tolerance_of(func))
            assert check.passed, f"{sketch.name} {row.tolist()}: {check.error}"


def test_vectors_of_a_reduction_lie_in_one_piece() -> None:
    """They run on through dimensions that lie side by side alone."""
    func = sums_of_channels()
    (sketch,) = sketches(func, SERIAL)
    for row in Rowspace(sketch).sample(np.random.default_rng(0), 4):
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        reads = [
            n.indices[0]
            for n in walk(lower(scheduled, SERIAL))
            if type(n) is Load and n.buffer.name == "X"
        ]
        assert reads
        assert all(type(i) is Ramp and same(i.stride, const(1)) for i in reads)


@pytest.mark.parametrize("name", ["products_of_columns", "products_of_rows"])
def test_a_product_of_a_buffer_with_itself_is_tiled(name: str) -> None:
    made = sketches(FORMULAS[name](), SERIAL)
    assert any("tiled" in s.name for s in made)
    for sketch in made:
        assert not any(b.name.endswith("_copy") for b in sketch.func.allocs)


def test_what_all_rows_share_is_computed_once() -> None:
    """Rows do not compute it again, each for itself."""
    (sketch,) = sketches(squeeze_and_excite(), SERIAL)
    tops = sketch.func.body.stmts if isinstance(sketch.func.body, Seq) else ()
    written = [{b.name for r in blocks_in(top) for b in region_buffers(r.writes)} for top in tops]
    assert not any({"S_sum", "Y"} <= names for names in written)


def test_packed_operands_are_computed_where_they_are_packed() -> None:
    for make in (product_of_halves, product_of_activations):
        packed = [s for s in sketches(make(), SERIAL) if "packB" in s.name]
        assert packed
        for sketch in packed:
            products = [b for b in blocks_in(sketch.func.body) if has_reduction(b)]
            bodies = " ".join(str(b.body) for b in products)
            assert "* B_ahead_packed[" in bodies
            assert "maximum" not in bodies


def names_of(func: Func) -> list[str]:
    return [s.name for s in sketches(func, SERIAL)]


def test_digits_become_variables() -> None:
    """A result at y reads at y // 2 and y % 2: a contraction, tiled in registers as any other."""
    assert "tiled_across_packW" in names_of(transposed_convolution_by_2())
    assert all(name.startswith("tiled") for name in names_of(transposed_convolution_by_2()))
    assert all(name.startswith("tiled") for name in names_of(sub_pixel_convolution()))


def test_digits_of_which_registers_hold_no_tile_stay_together() -> None:
    inputs, y = transposed_convolution(8)
    assert names_of(te.func([*inputs, y])) == ["rows"]


def test_rows_of_digits_are_written_in_one_piece() -> None:
    """Vectors along z // 2 are interleaved in registers with those of the other remainder."""
    inputs, y = transposed_convolution(2)
    func, target = te.func([*inputs, y]), SERIAL
    (sketch,) = [s for s in sketches(func, target) if s.name == "tiled"]
    for row in Rowspace(sketch).sample(np.random.default_rng(0), 4):
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        stores = [n for n in walk(lower(scheduled, target)) if type(n) is Store]
        places = [n.indices[0] for n in stores if n.buffer.name == "Y"]
        assert places
        assert all(type(i) is Ramp and same(i.stride, const(1)) for i in places)
