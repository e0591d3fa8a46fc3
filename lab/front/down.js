// The way down: assembly with its hot block, each lowering pass, and the roofline.

function assemblyTab(lab) {
  return answered(lab, lab.need({ do: "assembly", count: 1 }), "Compiling …", ({ name, hot, says, total, loops, places, unknown }) => {
    const place = places[lab.ui.place];
    const start = lab.ui.line ?? Math.max(0, (hot?.[0] ?? 0) - BEFORE);
    return [
      el("div.row", {},
        el("span", {}, `${says[0].toUpperCase()}${says.slice(1)}.`),
        pager(lab, start, total)),
      loops === null ? el("p.soft", {}, unknown) : loopNote(lab, place, start),
      answered(lab, lab.need({ do: "assembly", start, count: PAGE }), "…", (page) =>
        el("pre.code", { tabindex: 0, role: "region", "aria-label": `${name} of ${lab.state.version}` },
          page.lines.map((line, n) => assemblyLine(lab, page, n, {
            isHot: within(start + n, [hot]), isMine: within(start + n, place?.lines ?? []),
          })))),
    ];
  });
}

/** The lines of the loop that is selected in the program. */
function loopNote(lab, place, start) {
  if (place === undefined) return el("p.soft", {}, "A loop that is selected, in the program or beside its lines, is marked in both.");
  const first = place.lines[0]?.[0];
  return el("p", {}, place.says, " ", first === undefined || first === start ? null
    : el("button", { type: "button", onclick: () => lab.set({ line: first }) }, `Show line ${first + 1}`));
}

/** A line with its number, the loop that it is of where that begins, and marks that are no colours. */
function assemblyLine(lab, { start, lines, loops, places }, n, { isHot, isMine }) {
  const loop = loops?.[n] ?? null;
  const begins = loop !== null && (n === 0 || loops[n - 1] !== loop);
  const { name } = places[loop] ?? {};
  return el("div.line", { key: n, class: [isHot && "hot", isMine && "mine"].filter(Boolean).join(" ") || null },
    el("span.lineno", {}, `${isHot ? "▸ " : ""}${start + n + 1}`),
    loops === null ? null : el("span.loop", {}, begins ? el("button.quiet", {
      type: "button",
      "aria-pressed": String(loop === lab.ui.place),
      "aria-label": `Select loop ${name} of line ${start + n + 1}`,
      onclick: () => lab.select(loop, Math.max(0, lab.nodes().findIndex((node) => node.id === loop))),
    }, name) : el("span", { "aria-hidden": "true" }, isMine ? "┃" : loop === null ? "" : "│")),
    code(expanded(lines[n])), "\n");
}

function within(n, ranges) {
  return ranges.some((range) => range !== null && n >= range[0] && n <= range[1]);
}

const BEFORE = 8;
const PAGE = 200;

function pager(lab, start, total) {
  const go = (line) => lab.set({ line: Math.max(0, line) });
  return [
    el("button", { type: "button", disabled: start === 0, onclick: () => go(start - PAGE) }, "Earlier"),
    el("button", { type: "button", disabled: start + PAGE >= total, onclick: () => go(start + PAGE) }, "Later"),
    el("span.soft", {}, `from line ${start + 1} of ${total}`),
  ];
}

function expanded(line) {
  return line.replaceAll("\t", "    ");
}

function loweringTab(lab) {
  return answered(lab, lab.need({ do: "lowering" }), "Lowering, pass by pass …", ({ stages }) => {
    const isStep = (s) => s.number === 0 || s.changed || s.error;
    const steps = stages.filter(isStep);
    const idle = stages.filter((s) => !isStep(s));
    const refused = stages.find((s) => s.program && s.error)?.number; // is what one looks for
    const at = Math.max(0, steps.findIndex((s) => s.number === (lab.ui.stage ?? refused)));
    const stage = steps[at];
    const go = (to) => lab.set({ stage: to });
    return el("div.lowering", {},
      el("div.row", {},
        el("button", { type: "button", disabled: at === 0, onclick: () => go(steps[at - 1].number) }, "Up"),
        el("button", { type: "button", disabled: at + 1 === steps.length, onclick: () => go(steps[at + 1].number) }, "Down"),
        el("label", {}, el("span.hidden", {}, "Pass"), el("select", {
          value: stage.number,
          onchange: (event) => go(Number(event.target.value)),
        }, steps.map((s) => el("option", { value: s.number, key: s.number, selected: s === stage },
          `${s.number}. ${s.name}${s.error ? " (failed)" : ""}`))))),
      idle.length ? el("details.idle", { key: "idle" },
        el("summary", {}, quantity(idle.length, idle.length === 1 ? "pass" : "passes"), " changed nothing"),
        el("ul", {}, idle.map((s) => el("li", { key: s.number }, el("b", {}, s.name), " ", el("span.soft", {}, prose(s.why)))))) : null,
      el("p", {}, el("b", {}, stage.name), " ", el("span.soft", {}, prose(stage.why))),
      stage.facts.length ? el("p.facts", {}, `Here: ${stage.facts.join(", ")}.`) : null,
      stage.error ? errorBox(stage.error)
        : stageLines(lab, stage.number));
  });
}

function stageLines(lab, number) {
  const { answer, more } = pages(lab, lab.about({ do: "stage", number }), { name: "lines", unit: "changed lines" });
  return answered(lab, answer, "…", (lines) => [diffView(lines), more]);
}

function rooflineTab(lab) {
  return answered(lab, lab.need({ do: "roofline" }, lab.times()), "Drawing …", ({ html, text, points }) => {
    const here = points.find((p) => p.version === lab.state.version);
    return [
      here ? el("p", {}, el("b", {}, `${Math.round(100 * here.share)}%`),
        ` of the roofline is what ${here.version} reaches, by its ${here.measured ? "measured" : "predicted"} time.`) : null,
      el("p.soft", {}, `The least time: ${text}.`),
      el("div", { key: "figure", html }),
    ];
  });
}
