// The program as a tree of loops and blocks, or as text.

const ICONS = { parallel: "∥", vector: "⇶", unrolled: "⋮", reduction: "Σ" };

function programPane(lab) {
  const { ui } = lab;
  return el("section.pane.program", { "aria-label": "Program" },
    el("header.bar", {},
      el("h3", {}, "Program"),
      choice("Shown as", ["tree", "text"], ui.shown, (shown) => lab.set({ shown, reveal: true }))),
    ui.shown === "tree" ? treeView(lab) : textView(lab),
    ui.shown === "tree" ? lab.tree().more : null);
}

/** Buttons of which one is pressed. */
function choice(label, options, current, choose) {
  return el("div.choice", { role: "group", "aria-label": label }, options.map((option) =>
    el("button", {
      type: "button",
      key: option,
      "aria-pressed": String(option === current),
      onclick: () => choose(option),
    }, option[0].toUpperCase() + option.slice(1))));
}

function treeView(lab) {
  const { ui } = lab;
  const rows = visibleRows(lab);
  const focus = rows.some((r) => r.at === ui.cursor) ? ui.cursor : (rows[0]?.at ?? 0);
  return el("ul.tree", {
    role: "tree",
    "aria-label": `Loops and blocks of ${lab.state.program.name}`,
    onkeydown: (event) => treeKey(lab, rows, event),
  }, rows.map((row) => treeRow(lab, row, row.at === focus)));
}

/** The nodes that no folded node hides, with their positions and whether they have children. */
function visibleRows(lab) {
  const { ui } = lab;
  const nodes = lab.nodes();
  const rows = [];
  let hidden = Infinity;
  nodes.forEach((node, at) => {
    if (node.depth > hidden) return;
    const folded = node.id !== undefined && ui.folded.has(node.id);
    hidden = folded ? node.depth : Infinity;
    rows.push({ at, node, folded, parent: (nodes[at + 1]?.depth ?? 0) > node.depth });
  });
  return rows;
}

function treeRow(lab, { at, node, folded, parent }, focusable) {
  const { ui } = lab;
  const selected = node.id !== undefined && node.id === ui.place;
  const inTheWay = node.id !== undefined && node.id === ui.inTheWay;
  return el("li", {
    key: node.id ?? `code${at}`,
    role: "treeitem",
    "aria-level": node.depth + 1,
    "aria-expanded": parent ? String(!folded) : null,
    "aria-selected": String(selected),
    tabindex: focusable ? 0 : -1,
    class: inTheWay ? "in-the-way" : null,
    style: `--depth: ${node.depth}`,
    "data-id": node.id ?? null,
    "data-at": at,
    onclick: () => node.id !== undefined && lab.select(node.id, at),
  },
    el("span.twist", {
      "aria-hidden": "true",
      onclick: parent ? (event) => { event.stopPropagation(); lab.fold(node.id); } : null,
    }, parent ? (folded ? "▸" : "▾") : ""),
    el("code", {}, nodeText(node)),
    (node.badges ?? []).map((name) => el("span.badge", { class: badgeClass(name) },
      ICONS[name] ? el("span", { "aria-hidden": "true" }, `${ICONS[name]} `) : null, name)),
    inTheWay ? el("span.badge.way", {}, "in the way") : null,
    footprint(node));
}

function nodeText(node) {
  if (node.kind === "loop") {
    return [el("span.keyword", {}, "for"), " ", el("b", {}, node.name), " ",
      el("span.keyword", {}, "in"), " ", el("span.number", {}, String(node.extent))];
  }
  if (node.kind === "block") return [el("b", {}, node.name), " ", el("span.soft", {}, blockText(node))];
  return code(node.text);
}

function blockText(node) {
  const inputs = node.reads.filter((name) => !node.writes.includes(name));
  return node.text ?? `${node.writes.join(", ")} ← ${inputs.join(", ") || "nothing"}`;
}

function badgeClass(name) {
  return { parallel: "c2", vector: "c0", unrolled: "c1", reduction: "c3" }[name] ?? "plain";
}

/** What one iteration of a loop touches of each memory; the title has the buffers. */
function footprint({ held }) {
  if (!held?.length) return null;
  const says = held.map((h) => `An iteration touches ${quantity(h.bytes, "bytes")}, which ${h.memory} holds: ${
    h.buffers.map((b) => `${b.name} ${quantity(b.bytes, "bytes")}`).join(", ")}`);
  return el("span.footprint", { title: says.join("\n") },
    held.map((h) => [" ", el("span.held", {}, quantity(h.bytes, "bytes"), " ", el("span.level", {}, h.memory))]));
}

function treeKey(lab, rows, event) {
  const focus = Number(event.target.closest("[data-at]")?.dataset.at);
  const here = rows.findIndex((row) => row.at === focus);
  const row = rows[here];
  const move = (index) => lab.focusRow(rows[Math.max(0, Math.min(index, rows.length - 1))].at);
  const parentOf = () => rows.findLastIndex((r, k) => k < here && r.node.depth < row.node.depth);
  const actions = {
    ArrowDown: () => move(here + 1),
    ArrowUp: () => move(here - 1),
    Home: () => move(0),
    End: () => move(rows.length - 1),
    ArrowRight: () => row.folded ? lab.fold(row.node.id) : row.parent ? move(here + 1) : null,
    ArrowLeft: () => row.parent && !row.folded && row.node.id
      ? lab.fold(row.node.id)
      : parentOf() >= 0 ? move(parentOf()) : null,
    Enter: () => row.node.id !== undefined && lab.select(row.node.id, row.at),
    " ": () => row.node.id !== undefined && lab.select(row.node.id, row.at),
  };
  if (!row || !actions[event.key] || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  event.stopPropagation();
  actions[event.key]();
}

function textView(lab) {
  const { items: lines, more } = pages(lab, lab.about({ do: "text" }),
    { name: "lines", unit: "lines", first: lab.state.text });
  return [
    el("pre.code.scroll", { tabindex: 0, role: "region", "aria-label": "Text of the program" },
      lines.map((line, n) => el("div.line", {
        key: n,
        class: line.place !== null && line.place === lab.ui.place ? "hot" : null,
        onclick: line.place === null ? null : () => lab.select(line.place),
      }, el("span.lineno", { "aria-hidden": "true" }, n + 1),
        code(line.text), "\n"))),
    more,
  ];
}
