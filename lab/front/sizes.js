// Sliders for the sizes of a version, and what other sizes would give.

function slidersTab(lab) {
  return answered(lab, lab.need({ do: "sliders" }), "Opening the sizes of this version …", (known) => {
    const row = lab.ui.row ?? known.sliders.map((s) => s.value);
    const moved = row.some((v, n) => v !== known.sliders[n].value);
    const figures = (moved ? lab.figures(row) : undefined) ?? { result: known };
    return [
      el("div.row.headline", {},
        headline(lab, figures.result, known),
        el("button.primary", {
          type: "button",
          disabled: !moved || !figures.result?.valid,
          onclick: () => lab.keep(row),
        }, "Keep as a version"),
        el("button", { type: "button", disabled: !moved, onclick: () => lab.slide(null) }, "Reset")),
      figures.error ? errorBox(figures.error) : figures.result.valid ? null : errorBox(figures.result.error),
      figures.result?.pruned?.length
        ? el("p.bad", { role: "status" }, `The search would not try these sizes. Its limits: ${figures.result.pruned.join("; ")}.`)
        : null,
      el("div.sliders", {}, known.sliders.map((s, n) =>
        sliderRow(lab, s, row, n, figures.result?.around?.[n]))),
      figures.error ? null : figuresTable(figures.result),
      known.closed.length === 0 ? null : el("details", {}, el("summary", {}, `${known.closed.length} sizes cannot be moved`),
        el("ul", {}, known.closed.map((c) => el("li", {}, el("code", {}, c.label), el("span.soft", {}, ` ${c.why}`))))),
    ];
  });
}

function sliderRow(lab, slider, row, n, around) {
  const { values, label } = slider;
  const id = `${lab.id}-size-${n}`;
  return el("div.slider", { key: n },
    el("label", { for: id }, el("code", {}, label)),
    around?.why ? el("p.preview.soft", {}, `No preview: ${around.why}.`)
      : around ? preview(values, around, row[n]) : el("div.preview"),
    el("input", {
      id,
      type: "range",
      min: 0,
      max: values.length - 1,
      step: 1,
      value: values.indexOf(row[n]),
      "aria-valuetext": String(row[n]),
      oninput: (event) => lab.slide(row.with(n, values[Number(event.target.value)])),
    }),
    el("output", { for: id }, String(row[n])));
}

const MOST_BARS = 4;

/**
 * The predicted time at each value, others as they are: the lower, the faster. Hatched ones are not legal, and
 * the search would not try faint ones.
 */
function preview(values, { valid, pruned, predicted }, value) {
  const legal = predicted.filter((p, n) => valid[n] && p !== null);
  if (legal.length === 0) return el("div.preview");
  const least = Math.log(Math.min(...legal));
  const most = Math.min(Math.log(Math.max(...legal)), least + Math.log(MOST_BARS));
  const height = (p) => 15 + 85 * Math.min(1, (Math.log(p) - least) / Math.max(most - least, 0.05));
  return el("div.preview", { "aria-hidden": "true" }, values.map((v, n) => el("i", {
    key: v,
    class: [v === value && "here", !valid[n] && "illegal", pruned[n] && "pruned"].filter(Boolean).join(" "),
    style: `height: ${valid[n] && predicted[n] !== null ? height(predicted[n]) : 100}%`,
  })));
}

/** The time of the sizes, beside that of the sizes that the version has: expected, as of moves, or predicted. */
function headline(lab, result, known) {
  const seen = result?.predicted;
  if (seen === null || seen === undefined) return el("p.predicted", { role: "status" }, "No predicted time");
  const { id, measured } = lab.current();
  const time = measured && known.predicted ? measured.seconds * (seen / known.predicted) : seen;
  return el("p.predicted", {
    role: "status",
    title: measured && known.predicted ? howExpected(id, seen, measured.seconds, known.predicted) : null,
  },
    el("b", {}, seconds(time)), measured && known.predicted ? " expected, " : " predicted, ",
    comparison(seen, { id, predicted: known.predicted }));
}

function figuresTable(result) {
  const rows = (result.figures ?? []).map((f) => el("tr", { key: f.name, class: f.exceeds ? "exceeds" : null },
    el("th", { scope: "row" }, f.name),
    el("td.num", {}, f.of === null ? quantity(f.value, f.unit)
      : [bare(f.value, f.unit), el("span.soft", {}, ` of ${quantity(f.of, f.unit)}`)]),
    el("td", {}, share(f))));
  return [
    rows.length === 0 ? null : el("table", {},
      el("caption", {}, "What these sizes give"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "figure"),
        el("th.num", { scope: "col" }, "value of what there is"),
        el("th", { scope: "col" }, el("span.hidden", {}, "share")))),
      el("tbody", {}, rows)),
    result.loops?.length ? loopsTable(result.loops) : null,
  ];
}

/** What one iteration of each loop touches, and the nearest memory that holds it. */
function loopsTable(loops) {
  const rows = loops.flatMap(({ loop, held }) => held.map((h) => el("tr", {},
    el("th", { scope: "row" }, el("code", {}, loop)),
    el("td.num", {}, quantity(h.bytes, "bytes")),
    el("td", {}, h.memory),
    el("td.soft", {}, h.buffers.map((b) => `${b.name} ${quantity(b.bytes, "bytes")}`).join(", ")))));
  return el("table", {},
    el("caption", {}, "What one iteration of each loop touches"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "loop"), el("th.num", { scope: "col" }, "bytes"),
      el("th", { scope: "col" }, "fits in"), el("th", { scope: "col" }, "buffers"))),
    el("tbody", {}, rows));
}

function comparison(now, { id, predicted }) {
  const { text, of } = change(now, predicted);
  return of === "soft" ? `as ${id}` : [el("span", { class: of }, text), ` than ${id}`];
}

function share({ value, of, exceeds }) {
  if (!of) return null;
  return el("span.share", {},
    el("span.track", { "aria-hidden": "true" }, el("i", { style: `width: ${Math.min(100, (100 * value) / of)}%` })),
    exceeds ? el("span.bad", {}, "too much") : null);
}

/** A value whose unit follows in the words behind it. */
function bare(value, unit) {
  return quantity(value, unit === "bytes" ? unit : "");
}

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function quantity(value, unit) {
  if (value === null) return "unknown";
  if (unit !== "bytes") {
    const shown = digits(value);
    return unit ? `${shown} ${shown === "1" ? singular(unit) : unit}` : shown;
  }
  let power = 0;
  for (; value >= 1023.5 && power < BINARY.length - 1; power++) value /= 1024;
  return `${digits(value)} ${BINARY[power]}`;
}

/** A unit for one of it: "register a thread" for "registers a thread". A phrase such as "a block" stays. */
function singular(unit) {
  return unit.replace(/^(\w{2,}?)(ies|s)\b/, (_, stem, end) => (end === "ies" ? `${stem}y` : stem));
}
