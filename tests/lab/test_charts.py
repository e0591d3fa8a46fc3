"""Charts: what they draw, what they say to a screen reader, and data that break others."""

from __future__ import annotations

import itertools
import re
from math import inf, nan
from xml.etree.ElementTree import Element

import html5lib
import htpy as h
import pytest

from tilewright.base.durations import format_seconds
from tilewright.base.text import format_si
from tilewright.lab.pictures.bars import Interval, bars, intervals, parts
from tilewright.lab.pictures.charts import HEIGHT, WIDTH, Layer, chart, spread
from tilewright.lab.pictures.decisions import parallel
from tilewright.lab.pictures.page import page
from tilewright.lab.pictures.scales import Axis, Scale, labelled, width_of
from tilewright.lab.pictures.tables import Cell, Column, Row, table

CLOCK = Axis("wall-clock", "{:g} s".format, zero=True)
CALL = Axis("time of a call", format_seconds, logarithmic=True)


def parsed(node: h.Node) -> Element:
    """The document of a page with the node, which must be valid."""
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    document: Element = parser.parse(page("test", node))
    return document


def texts(document: Element) -> str:
    return " ".join("".join(document.itertext()).split())


def drawn(document: Element, name: str) -> list[str]:
    """The paths of a class in the order drawn."""
    return [
        path.get("d", "")
        for path in document.iter("{http://www.w3.org/2000/svg}path")
        if name in path.get("class", "").split()
    ]


def test_steps_go_across_and_then_down() -> None:
    points = [(0.0, 8e-3), (10.0, 2e-3), (20.0, 2e-3)]
    (line,) = drawn(parsed(chart("Best", CLOCK, CALL, Layer("best", points, "steps"))), "line")
    assert re.fullmatch(r"M[\d.]+ [\d.]+H[\d.]+V[\d.]+H[\d.]+", line)


def test_a_chart_says_what_it_shows() -> None:
    trials = Layer("trials", [(1.0, 8e-3), (2.0, 1e-3)], "cloud")
    best = Layer("best so far", [(1.0, 8e-3), (2.0, 1e-3)], "steps")
    document = parsed(chart("Best so far", CLOCK, CALL, trials, best))
    (svg,) = (e for e in document.iter("{http://www.w3.org/2000/svg}svg") if e.get("role"))
    assert svg.get("aria-label") == (
        "Best so far: time of a call against wall-clock. trials: 2 marks, from 1 ms to 8 ms. "
        "best so far: from 8 ms at 1 s to 1 ms at 2 s."
    )
    assert [c.text for c in document.iter("th") if c.get("scope") == "col"] == [
        None, "wall-clock", "time of a call",
    ]  # fmt: skip


def test_layers_differ_without_colour() -> None:
    points = [(1.0, 1.0), (2.0, 2.0)]
    lines = parsed(chart("l", CLOCK, CALL, *(Layer(f"line {k}", points) for k in range(5))))
    dashes = {
        c for p in lines.iter() for c in p.get("class", "").split() if re.fullmatch(r"d\d", c)
    }
    assert dashes == {f"d{k}" for k in range(5)}
    clouds = parsed(chart("c", CLOCK, CALL, *(Layer(f"{k}", points, "cloud") for k in range(5))))
    shapes = {re.sub(r"^M\S+ [\d.]+", "", d).split("M")[0] for d in drawn(clouds, "cloud")}
    assert len(shapes) == 5


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ([], "There is nothing to show."),
        ([(nan, 1.0), (1.0, inf), (1.0, -1.0), (1.0, 0.0), (1e300, 1.0)], "nothing to show"),
        ([(1.0, 1e-3)], "1 ms"),
        ([(1.0, 1e-3)] * 9, "1 ms"),
        ([(1.0, 1e-3), (2.0, nan)], "1 point without a finite value not shown."),
        ([(0.0, 1e-90), (1e90, 1e90)], "time of a call"),
        ([(1.0, 1.0), (2.0, 1.0 + 1e-15)], "1 s"),
    ],
)
@pytest.mark.parametrize("kind", ["steps", "line", "cloud", "points"])
def test_odd_data(points: list[tuple[float, float]], says: str, kind: str) -> None:
    names = [f"p{k}" for k in range(len(points))] if kind == "points" else ()
    layer = Layer("data", points, kind, names)  # type: ignore[arg-type]
    document = parsed(chart("odd", CLOCK, CALL, layer, diagonal=True))
    assert says in texts(document)
    assert "nan" not in " ".join(drawn(document, kind)).lower()


def test_many_marks_stay_few_and_outliers_stay() -> None:
    many = [(k / 50, 1e-3 * (1 + k * 7919 % 1000 / 1000)) for k in range(20_000)]
    document = parsed(chart("m", CLOCK, CALL, Layer("trials", [*many, (1.0, 10.0)], "cloud")))
    (path,) = drawn(document, "cloud")
    assert path.count("M") <= 1200
    assert "marks stand for 20,001 trials" in texts(document)
    assert min(float(y) for y in re.findall(r"M\S+ ([\d.]+)", path)) < 60


def test_names_do_not_cover_each_other() -> None:
    points = [(20.0, 1e-3 * (1 + k / 1000)) for k in range(6)]
    names = [f"version {k}" for k in range(6)]
    document = parsed(chart("n", CLOCK, CALL, Layer("versions", points, "points", names)))
    heights = sorted(
        float(t.get("y", ""))
        for t in document.iter("{http://www.w3.org/2000/svg}text")
        if (t.text or "").startswith("version")
    )
    assert len(heights) == 6
    assert all(b - a >= 12.9 for a, b in itertools.pairwise(heights))
    assert heights[-1] < HEIGHT


def test_spread_keeps_order_and_bounds() -> None:
    assert spread([50, 10, 52], 0, 100, 10) == [50, 10, 60]
    assert spread([99, 98], 0, 100, 10) == [100, 90]


@pytest.mark.parametrize("seconds", [1e-3, 1.001e-3, 0.999e-3])
def test_names_stand_above_what_they_name(seconds: float) -> None:
    """Also at the lower edge, and where a line ends at a point."""
    best = Layer("best so far", [(0.0, 8e-3), (10.0, 1e-3)], "steps")
    document = parsed(chart("n", CLOCK, CALL, best, Layer("f", [(10.0, seconds)], "points", ["f"])))
    (group,) = (
        g for g in document.iter("{http://www.w3.org/2000/svg}g") if g.get("class") == "names"
    )
    below, above = sorted((float(t.get("y", "")) for t in group), reverse=True)
    (line,) = drawn(document, "line")
    assert below < float(line.rpartition("V")[2].partition("H")[0])
    assert above <= below - 11


def test_the_name_of_a_short_line_stands_beside_the_axis() -> None:
    document = parsed(chart("n", CLOCK, CALL, Layer("best so far", [(0.0, 1e-3)], "steps")))
    (name,) = (
        t for t in document.iter("{http://www.w3.org/2000/svg}text") if t.text == "best so far"
    )
    ticks = [
        t
        for t in document.iter("{http://www.w3.org/2000/svg}text")
        if (t.text or "").endswith("ms")
    ]
    axis = max(float(t.get("x", "")) for t in ticks)
    assert float(name.get("x", "")) - width_of("best so far") >= axis


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (1e-4, 2e-3, ["100 us", "200 us", "500 us", "1 ms", "2 ms"]),
        (1e-6, 1.0, ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"]),
        (1.1e-3, 1.7e-3, ["1.1 ms", "1.2 ms", "1.3 ms", "1.4 ms", "1.5 ms", "1.6 ms", "1.7 ms"]),
        (0.95e-3, 2.2e-3, ["1 ms", "1.2 ms", "1.4 ms", "1.6 ms", "1.8 ms", "2 ms", "2.2 ms"]),
        (1e-3, 1e-3, ["980 us", "990 us", "1 ms", "1.01 ms", "1.02 ms"]),
    ],
)
def test_ticks_are_round(low: float, high: float, labels: list[str]) -> None:
    scale = Scale.around([low, high], 0, 260, CALL)
    assert [label for _, label in labelled(scale.ticks(30), CALL, scale, lambda _: 13)] == labels


def test_ticks_of_linear_scales_use_the_room() -> None:
    scale = Scale.around([1, 7.3], 0, 180, Axis("ratio"))
    assert scale.ticks(50) == [2, 4, 6]


def test_labels_of_ticks_have_room() -> None:
    scale = Scale.around([0, 123456], 0, WIDTH, CLOCK)
    shown = labelled(scale.ticks(5), CLOCK, scale, width_of)
    assert len(shown) > 3
    for (a, first), (b, second) in itertools.pairwise(shown):
        assert b - a >= (width_of(first) + width_of(second)) / 2


def test_rates_have_prefixes() -> None:
    assert [format_si(v, "FLOP/s") for v in (1.5e9, 999.6e6, 12.0)] == [
        "1.5 GFLOP/s", "1 GFLOP/s", "12 FLOP/s",
    ]  # fmt: skip


def test_bars_are_a_table_with_figures() -> None:
    rows = [("crash", 3.0), ("build_error", 120.0), ("<script>", 0.0)]
    document = parsed(bars("Failures", rows, head=("reason", "candidates")))
    assert [c.text for c in document.iter("th") if c.get("scope") == "row"] == [r[0] for r in rows]
    wide = [float(r.get("width", "")) for r in document.iter("{http://www.w3.org/2000/svg}rect")]
    assert wide == [pytest.approx(192 * 3 / 120, abs=0.1), 192.0]
    assert "nothing" not in texts(document)


def test_intervals_show_ends_or_a_hollow_dot() -> None:
    rows = [
        Interval("a", ["1 ms"], 1.0, None, "fastest"),
        Interval("b", ["2 ms"], 1.5, (1.2, inf), "slower"),
        Interval("c", ["?"], nan, (nan, nan), "unsettled"),
    ]
    head = [Column("schedule"), Column("time", number=True)]
    axis = Axis("times the fastest", "{:.3g}".format)
    document = parsed(intervals("Finals", rows, head=head, axis=axis, beside=1.0))
    dots = [c.get("class") for c in document.iter("{http://www.w3.org/2000/svg}circle")]
    assert dots == ["at open", "at"]
    assert len(drawn(document, "whisker")) == 1
    assert len(drawn(document, "zero")) == 3


def test_what_is_off_the_axis_is_an_arrow_with_its_number() -> None:
    rows = [Interval("a", [], 1.0, None), Interval("b", [], 1.04, (1.02, 1.06))]
    slow = Interval("c", [], 37.13, (37.0, 38.0), "37x (37 to 38)", off=True)
    axis = Axis("times the fastest", "{:.4g}".format)

    def drawn_with(*more: Interval) -> tuple[Element, list[float]]:
        found = parsed(intervals("F", [*rows, *more], head=[Column("")], axis=axis, beside=1.0))
        dots = found.iter("{http://www.w3.org/2000/svg}circle")
        return found, [float(dot.get("cx", "")) for dot in dots]

    document, dots = drawn_with(slow)
    assert dots == drawn_with()[1]
    assert dots[1] - dots[0] > 100
    assert len(drawn(document, "zero")) == 3
    written = [t.text for t in document.iter("{http://www.w3.org/2000/svg}text")]
    assert written.count("37.13") == 1
    assert "37x (37 to 38)" in texts(document)


def test_parts_add_up() -> None:
    document = parsed(parts("Time", [("search", 1.0), ("build", 3.0), ("x", 0)], format_seconds))
    assert "search 1 s (25%), build 3 s (75%)" in texts(document)
    assert "nothing to show" in texts(parsed(parts("Time", [("a", 0.0)], format_seconds)))


def test_parallel_coordinates_draw_the_fastest_strong() -> None:
    rows = [({"tile": 2**k % 32, "pack": "yes", "n": k % 7}, 1e-3 * (1 + k)) for k in range(900)]
    document = parsed(parallel("Decisions", rows, format_seconds))
    assert "The same in all: pack = yes." in texts(document)
    assert "of 900 candidates are drawn, evenly by rank." in texts(document)
    assert len(drawn(document, "faint")[0].split("M")) <= 312
    (fastest,) = drawn(document, "best")
    assert fastest.count("L") == 2
    assert "nothing to show" in texts(parsed(parallel("D", [], format_seconds)))
    assert "nothing to show" in texts(parsed(parallel("D", [({"a": 1}, nan)], format_seconds)))


def test_tables_have_headers_and_keys() -> None:
    columns = [Column("name"), Column("time", number=True)]
    rows: list[Row] = [("a", Cell("1 ms", 0.001)), ("b", "-")]
    document = parsed(table("Times", columns, rows, sortable=True))
    cells = list(document.iter("td"))
    assert [c.get("data-key") for c in cells] == ["0.001", None]
    assert [c.text for c in document.iter("caption")] == ["Times"]


HOSTILE = '</svg><script>alert("x")</script>\x00\x1b[2J' + "x" * 10_000_000


def test_hostile_names_are_text_and_short() -> None:
    layer = Layer(HOSTILE, [(1.0, 1.0)], "points", [HOSTILE])
    nodes = [
        chart(HOSTILE, Axis(HOSTILE), Axis(HOSTILE), layer),
        bars(HOSTILE, [(HOSTILE, 1.0)], head=(HOSTILE, HOSTILE)),
        parallel(HOSTILE, [({HOSTILE: 1}, 1.0), ({HOSTILE: 2}, 2.0)], format_seconds),
    ]
    for node in nodes:
        assert len(str(node)) < 200_000
        assert "\x1b" not in str(node)
        assert not list(parsed(node).iter("script"))
