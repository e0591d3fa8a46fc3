// The way down: assembly with its hot block, each lowering pass, and the roofline.

function assemblyTab(lab) {
  return answered(lab, lab.need({ do: "assembly", count: 1 }), "Compiling …", ({ name, hot, total }) => {
    const isHot = (n) => hot !== null && n >= hot[0] && n <= hot[1];
    const start = lab.ui.line ?? Math.max(0, (hot?.[0] ?? 0) - BEFORE);
    return [
      el("div.row", {},
        el("span", {}, hot === null ? "No loop of it computes." : `The hot block is lines ${hot[0] + 1} to ${hot[1] + 1}.`),
        pager(lab, start, total)),
      answered(lab, lab.need({ do: "assembly", start, count: PAGE }), "…", ({ lines }) =>
        el("pre.code", { tabindex: 0, role: "region", "aria-label": `${name} of ${lab.state.version}` },
          lines.map((line, n) => el("div.line", { key: n, class: isHot(start + n) ? "hot" : null },
            el("span.lineno", {}, `${isHot(start + n) ? "▸ " : ""}${start + n + 1}`), code(expanded(line)), "\n")))),
    ];
  });
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
    const at = Math.min(lab.ui.stage, stages.length - 1);
    const stage = stages[at];
    const go = (to) => lab.set({ stage: to });
    const next = stages.findIndex((s, n) => n > at && s.changed);
    const before = stages.findLastIndex((s, n) => n < at && (s.changed || n === 0));
    return el("div.lowering", {},
      el("div.row", {},
        el("button", { type: "button", disabled: before < 0, onclick: () => go(before) }, "Up"),
        el("button", { type: "button", disabled: next < 0, onclick: () => go(next) }, "Down"),
        el("label", {}, el("span.hidden", {}, "Pass"), el("select", {
          value: at,
          onchange: (event) => go(Number(event.target.value)),
        }, stages.map((s, n) => el("option", { value: n, key: n, selected: n === at }, stageName(s, n)))))),
      el("p", {}, el("b", {}, stage.name), " ", el("span.soft", {}, prose(stage.why))),
      stage.error ? errorBox(stage.error)
        : stageLines(lab, at));
  });
}

function stageLines(lab, number) {
  const { answer, more } = pages(lab, lab.about({ do: "stage", number }), { name: "lines", unit: "changed lines" });
  return answered(lab, answer, "…", (lines) => [diffView(lines), more]);
}

function stageName({ name, changed, error }, number) {
  return `${number}. ${name}${error ? " (failed)" : changed || number === 0 ? "" : " (no change)"}`;
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
