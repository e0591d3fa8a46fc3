// The versions as a tree of branches, drawn beside their list.

const ROW = 26;
const LANE = 14;

function versionsPane(lab) {
  const { state } = lab;
  const placed = lanes(state.versions);
  const width = LANE * (1 + Math.max(...placed.map((p) => p.lane))) + 6;
  return el("section.pane.versions", { "aria-label": "Versions" },
    el("header.bar", {}, el("h3", {}, "Versions")),
    el("div.graph", { tabindex: 0, role: "region", "aria-label": "Versions, each below the one that it came from" },
      drawing(placed, width, state.version),
      el("ol", { style: `margin-left: ${width}px` }, placed.map(({ version }) =>
        versionRow(lab, version, version.id === state.fastest)))));
}

/**
 * Versions, each after the one that it came from, with a lane: a chain stays in one, a branch gets
 * a new one.
 */
function lanes(versions) {
  const children = new Map();
  for (const v of versions) children.set(v.parent, [...(children.get(v.parent) ?? []), v]);
  const placed = [];
  let free = 0;
  const todo = (children.get(null) ?? []).map((version) => ({ version, lane: free++, up: null }));
  todo.reverse();
  while (todo.length) {
    const here = todo.pop();
    here.row = placed.length;
    placed.push(here);
    const below = (children.get(here.version.id) ?? []).map((version, k) =>
      ({ version, lane: k === 0 ? here.lane : free++, up: here }));
    todo.push(...below.reverse());
  }
  return placed;
}

function drawing(placed, width, current) {
  const x = (p) => LANE * p.lane + 9;
  const y = (p) => ROW * p.row + ROW / 2;
  return el("svg.lanes", { width, height: ROW * placed.length, "aria-hidden": "true" },
    placed.filter((p) => p.up).map((p) => el("path", {
      key: `to ${p.version.id}`,
      d: p.lane === p.up.lane
        ? `M${x(p)} ${y(p.up)}V${y(p)}`
        : `M${x(p.up)} ${y(p.up)}V${y(p) - ROW / 2}Q${x(p.up)} ${y(p)} ${x(p)} ${y(p)}`,
    })),
    placed.map((p) => el("circle", {
      key: p.version.id,
      cx: x(p), cy: y(p), r: p.version.id === current ? 5 : 3.5,
      class: p.version.id === current ? "here" : null,
    })));
}

function versionRow(lab, version, best) {
  const here = version.id === lab.state.version;
  return el("li", { key: version.id },
    el("button.version", {
      type: "button",
      "aria-current": here ? "true" : null,
      title: version.text,
      onclick: () => here || lab.run({ do: "go", version: version.id }),
    },
      el("span.soft.id", {}, version.id),
      el("code", {}, version.text.replace(/^sch\./, "")),
      version.pinned ? pinnedBadge() : null,
      best ? el("span.badge.c2", {}, "fastest") : null,
      versionTime(version)));
}

/** The mark of a schedule that builds take, whatever is the fastest; where it is narrow, the sign alone. */
function pinnedBadge() {
  return el("span.badge.pinned", { title: "Builds of this program take it" },
    el("span", { "aria-hidden": "true" }, "◆"), el("span.word", {}, " pinned"));
}

function versionTime(version) {
  if (version.problem) return el("span.bad.time", { title: version.problem }, "✕ failed");
  if (version.measured) return measuredTime(version.measured);
  if (version.recorded !== null) {
    return el("span.time.soft", { title: "Not measured here; the database has this time" },
      `${seconds(version.recorded)} recorded`);
  }
  if (version.predicted === null) return el("span.time.soft", {}, "no time");
  return el("span.time.soft", {}, `≈ ${seconds(version.predicted)}`);
}

function measuredTime({ text, checked, samples }) {
  const known = { true: "; its results were checked", false: "; its results were not checked" }[checked] ?? "";
  return el("span.time.measured", { title: `${text}, the median of ${samples} samples${known}` }, text,
    checked === false ? el("span.soft", {}, " unchecked") : null);
}
