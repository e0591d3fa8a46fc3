// Two versions beside each other: their programs, their assembly, their times.

function compareTab(lab) {
  const { versions, version } = lab.state;
  const known = new Set(versions.map((v) => v.id));
  const root = versions[0].id;
  const fastest = [lab.state.fastest, versions.at(-1).id].find((id) => id !== null && id !== root) ?? root;
  const b = known.has(lab.ui.b) ? lab.ui.b : version === root ? fastest : version;
  const parent = versions.find((v) => v.id === b).parent ?? root;
  const a = known.has(lab.ui.a) ? lab.ui.a : parent;
  const pick = (name, value, label) => el("label", {}, `${label} `, el("select", {
    value,
    onchange: (event) => lab.set({ [name]: event.target.value }),
  }, versions.map((v) => el("option", { key: v.id, value: v.id, selected: v.id === value },
    `${v.id} ${v.text.replace(/^sch\./, "")}`.slice(0, 60)))));
  const timed = lab.state.compared.findLast((c) => [a, b].includes(c.a) && [a, b].includes(c.b));
  return [
    el("div.row", {}, pick("a", a, "Left"), pick("b", b, "Right"), el("button", {
      type: "button",
      disabled: a === b || !lab.measures(),
      onclick: () => lab.run({ do: "measure", versions: [a, b] }),
    }, "Time both, interleaved")),
    el("div", { role: "status" }, timed && a !== b ? el("p", {}, timed.text, " ",
      el("span.badge", { class: { faster: "c2", slower: "c4" }[timed.verdict] ?? "plain" }, verdictText(timed))) : null),
    a === b ? el("p.soft", {}, "Choose two versions.")
      : ["program", "assembly"].map((of) => differenceOf(lab, a, b, of)),
  ];
}

/** How the programs of two versions differ, or their assembly, which is compiled when it is opened. */
function differenceOf(lab, a, b, of) {
  const open = lab.ui.opened.has(of);
  return el("details", {
    key: of,
    open,
    ontoggle: (event) => {
      if (event.target.open === open) return;
      lab.ui.opened[open ? "delete" : "add"](of);
      lab.draw();
    },
  },
    el("summary", {}, of === "program" ? "Program" : "Assembly"),
    open ? differences(lab, a, b, of) : null);
}

function differences(lab, a, b, of) {
  const { answer, more } = pages(lab, { do: "diff", a, b, of }, { name: of, unit: `different lines of the ${of}` });
  return answered(lab, answer, of === "program" ? "…" : "Compiling …", (lines) => [sideBySide(lines, a, b), more]);
}

function diffView(lines) {
  if (lines.length === 0) return el("p.soft", {}, "It changes nothing.");
  const names = { "-": "removed", "+": "added", "…": "gap", " ": null };
  return el("pre.code.diff", { tabindex: 0, role: "region", "aria-label": "Difference" }, lines.map((line, n) => el("div.line", { key: n, class: names[line.op] },
    el("span.op", {}, line.op), code(line.text), "\n")));
}

function verdictText({ b, verdict }) {
  return { faster: `${b} is faster`, slower: `${b} is slower`, tie: "a tie" }[verdict] ?? "not settled";
}

/** Two texts beside each other, what was removed at the left of what came instead; where there is
 * little room, one below the other. */
function sideBySide(lines, a, b) {
  if (lines.length === 0) return el("p.soft", {}, "There is no difference.");
  const rows = [];
  let [left, right] = [[], []];
  const flush = () => {
    for (let n = 0; n < Math.max(left.length, right.length); n++) rows.push([left[n], right[n]]);
    [left, right] = [[], []];
  };
  for (const line of lines) {
    if (line.op === "-") left.push(line.text);
    else if (line.op === "+") right.push(line.text);
    else {
      flush();
      rows.push(line.op === "…" ? null : [line.text, line.text]);
    }
  }
  flush();
  const cell = (text, other, sign, name) => el("td", { class: text === other ? null : text === undefined ? "none" : name },
    el("code", {}, text === undefined ? "" : [el("span.op", {}, text === other ? " " : sign), code(narrowed(text))]));
  return [diffView(lines), el("div.wide.sides-box", { tabindex: 0, role: "region", "aria-label": `Difference of ${a} and ${b}` }, el("table.sides", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, a), el("th", { scope: "col" }, b))),
    el("tbody", {}, rows.map((row) => row === null
      ? el("tr.gap", {}, el("td", { colspan: 2 }, "⋯"))
      : el("tr", {}, cell(row[0], row[1], "−", "removed"), cell(row[1], row[0], "+", "added"))))))];
}

/** A line with half of its indentation: there is little room. */
function narrowed(text) {
  const shown = text.trimStart();
  return " ".repeat(Math.ceil((text.length - shown.length) / 2)) + shown;
}
