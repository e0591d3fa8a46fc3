// The steps that can be taken at the selected place: legal ones as buttons, refused ones with the reason.

function movesPane(lab) {
  const { ui } = lab;
  const node = lab.nodes().find((n) => n.id === ui.place);
  const { answer, more } = pages(lab, lab.about({ do: "moves", place: ui.place }),
    { name: "moves", unit: "moves", also: lab.times() });
  const where = node !== undefined ? `${node.kind} ${node.name}` : ui.place === null ? "the whole program" : "…";
  return el("section.pane.moves", { "aria-label": "Moves" },
    el("header.bar", {},
      el("h3", { tabindex: -1, "data-fallback": "" }, "Moves at ", el("code", {}, where)),
      el("label.search", {}, el("span.hidden", {}, "Filter moves"), el("input", {
        type: "search",
        placeholder: "Filter",
        value: ui.filter,
        oninput: (event) => lab.set({ filter: event.target.value }),
      }))),
    answer === undefined
      ? el("p.soft.wait", {}, "Trying every primitive …")
      : answered(lab, answer, "", (moves) => moveList(lab, moves, more)));
}

function moveList(lab, moves, more) {
  const filter = lab.ui.filter.trim().toLowerCase();
  const shown = moves.filter((m) => `${m.text} ${m.says}`.toLowerCase().includes(filter));
  const legal = grouped(shown.filter((m) => m.legal === true));
  const asking = shown.filter((m) => m.legal === null);
  const refused = shown.filter((m) => m.legal === false);
  return el("div.scroll", { tabindex: 0, role: "region", "aria-label": "Moves here" },
    legal.length === 0 ? el("p.soft", {}, "No primitive is legal here as it is completed.") : null,
    legal.map(([op, variants]) => legalGroup(lab, op, variants)),
    asking.map((move) => askingGroup(lab, move)),
    refused.length === 0 ? null : refusedGroup(lab, refused),
    more);
}

/** Moves by primitive, in the order of their first ones. */
function grouped(moves) {
  const groups = new Map();
  for (const move of moves) groups.set(move.op, [...(groups.get(move.op) ?? []), move]);
  return [...groups];
}

function legalGroup(lab, op, variants) {
  const calls = variants.map((move) => parts(move.text));
  const common = calls[0].filter((part) => calls.every((c) => c.includes(part)));
  const shared = calls.every((call) => call.length > common.length) ? common : [];
  return el("div.group", { key: `legal ${op}` },
    groupHead(lab, variants[0], shared),
    el("div.variants", {}, variants.map((move, n) =>
      moveButton(lab, move, calls[n].filter((part) => !shared.includes(part))))),
    lab.ui.form === op ? argumentForm(lab, variants[0], Object.keys(variants[0].args)) : null);
}

/** The arguments of a call: of sch.split(i, factors=[None, 8]) they are i and factors=[None, 8]. */
function parts(text) {
  const found = [""];
  let depth = 0;
  let quote = null;
  for (const c of text.slice(text.indexOf("(") + 1, -1)) {
    if (quote === null && (c === '"' || c === "'")) quote = c;
    else if (c === quote) quote = null;
    else if (quote === null) depth += "([{".includes(c) - ")]}".includes(c);
    if (c === "," && depth === 0 && quote === null) found.push("");
    else found[found.length - 1] += c;
  }
  return found.map((part) => part.trim()).filter((part) => part !== "");
}

function groupHead(lab, { op, says, from, args }, shared) {
  const open = lab.ui.form === op;
  return [
    el("div.head", {},
      el("code", {}, el("b", {}, op), shared.length ? el("span.soft", {}, `(${shared.join(", ")}, …)`) : null),
      from ? el("span.badge.plain", {}, `of ${from}`) : null,
      Object.keys(args).length === 0 ? null : el("button.quiet", {
        type: "button",
        "aria-expanded": String(open),
        "aria-label": `Other arguments for ${op}`,
        onclick: () => lab.openForm(open ? null : op),
      }, "other …")),
    el("p.says.soft", {}, prose(says)),
  ];
}

/** A sentence of a docstring: what is in backquotes is code. */
function prose(text) {
  return text.split("`").map((part, n) => (n % 2 ? el("code", {}, part) : part));
}

/** What a move does, with the ids of its loops: two moves may have one text. */
function moveKey({ op, args }) {
  return JSON.stringify([op, args]);
}

/** A legal move with its costs, each compared with that of the version: predicted or expected, and measured. */
function moveButton(lab, move, own) {
  const costs = costsOf(lab, move);
  return el("button.move", {
    type: "button",
    key: moveKey(move),
    title: [move.text, ...costs.flatMap((c) => c.says ?? [])].join("\n"),
    "aria-label": [move.text, ...costs.map((c) => `${c.name} ${c.time}${c.text && `, ${c.text}`}`)].join(", "),
    onclick: () => lab.apply(move),
  },
    el("code", {}, own.join(", ") || "()"),
    costs.map((c) => [
      c.name !== "predicted" ? el("span.soft.what", { key: `${c.name} what` }, c.name) : null,
      el("span.time", { key: c.name, class: c.name === "measured" ? "measured" : null }, c.time),
      el("span.change", { key: `${c.name} change`, class: c.of }, c.text),
    ]));
}

/** Why a time is expected beside a version that was measured. */
function howExpected(id, predicted, itsMeasured, itsPredicted) {
  return `expected: predicted ${seconds(predicted)}, times measured over predicted time of ${id}, ${
    seconds(itsMeasured)} over ${seconds(itsPredicted)}`;
}

/**
 * The times of a program that are known: `name`, `time`, and how it differs from the version's. Beside a measured
 * version a predicted time stands as what is expected: the model is off by about as much as it is of the version.
 */
function costsOf(lab, { predicted, expected, measured }) {
  const current = lab.current();
  const cost = (name, now, before) => now === null || now === undefined ? [] : [{
    name, time: seconds(now), ...(before === null || before === undefined ? { text: "", of: "soft" } : change(now, before)),
  }];
  return [
    ...expected === undefined
      ? cost("predicted", predicted, current.predicted)
      : cost("expected", expected, current.measured?.seconds).map((c) => ({
        ...c,
        says: howExpected(current.id, predicted, current.measured.seconds, current.predicted),
      })),
    ...cost("measured", measured, current.measured?.seconds),
  ];
}

function askingGroup(lab, move) {
  return el("div.group", { key: `asking ${move.op}` },
    groupHead(lab, move, []),
    lab.ui.form === move.op
      ? argumentForm(lab, move, [...Object.keys(move.args), ...move.needs.map((n) => n.name)])
      : null);
}

/** Fields for the arguments of a step as JSON, and what trying it says. */
function argumentForm(lab, move, names) {
  const types = new Map((move.needs ?? []).map((n) => [n.name, n.type]));
  const { named, ided } = handleNames(lab);
  const { typed } = lab.ui;
  const submit = async (form, apply) => {
    const args = {};
    for (const name of names) {
      const value = form.elements[name].value.trim();
      if (value !== "") args[name] = replaced(parsed(value), hasHandle(move.args[name]) ? ided : new Map());
    }
    if (apply) await lab.apply({ op: move.op, args });
    else {
      const trial = await lab.ask(lab.about({ do: "try", op: move.op, args }));
      if (lab.ui.typed === typed) lab.set({ trial });
    }
  };
  const shown = (name) => typed[name]
    ?? (name in move.args ? JSON.stringify(replaced(move.args[name], named)) : "");
  return el("form.arguments", {
    key: "form",
    onsubmit: (event) => { event.preventDefault(); submit(event.target, true); },
  },
    names.map((name) => el("label", { key: name }, el("span", {}, name), el("input", {
      name,
      autocomplete: "off",
      spellcheck: "false",
      placeholder: types.get(name) ?? "",
      value: shown(name),
      oninput: (event) => { typed[name] = event.target.value; },
    }))),
    el("div.row", {},
      el("button", { type: "button", onclick: (event) => submit(event.target.form, false) }, "Try"),
      el("button.primary", { type: "submit" }, "Apply")),
    el("div", { role: "status" }, lab.ui.trial ? trialText(lab, lab.ui.trial) : null));
}

/** The loops and blocks that no other has the name of: by id, and by name. */
function handleNames(lab) {
  const nodes = lab.nodes().filter((n) => n.id !== undefined);
  const count = (name) => nodes.filter((n) => n.name === name).length;
  const alone = nodes.filter((n) => count(n.name) === 1);
  return {
    named: new Map(alone.map((n) => [n.id, n.name])),
    ided: new Map(alone.map((n) => [n.name, n.id])),
  };
}

function hasHandle(value) {
  return Array.isArray(value) ? value.some(hasHandle) : /^[LB]\d+$/.test(value);
}

function replaced(value, by) {
  if (Array.isArray(value)) return value.map((part) => replaced(part, by));
  return typeof value === "string" ? (by.get(value) ?? value) : value;
}

/** JSON data; what is none is a text, so that names need no quotes. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function trialText(lab, answer) {
  if (answer.error) return errorBox(answer.error);
  const move = answer.result;
  if (!move.legal) return errorBox(move.error);
  if (move.changes === false) return el("p.soft", {}, "It would change nothing.");
  return el("p", {}, "Legal. ", costsOf(lab, move).map(({ name, time, text }) =>
    `${name[0].toUpperCase()}${name.slice(1)}: ${time}${text && `, ${text}`}. `));
}

function refusedGroup(lab, refused) {
  return el("details.refused", { key: "refused", open: lab.ui.showRefused,
    ontoggle: (event) => { lab.ui.showRefused = event.target.open; } },
    el("summary", {}, `${refused.length} refused`),
    el("ul", {}, refused.map((move) => {
      const { error } = move;
      const shown = lab.ui.refusal === moveKey(move);
      return el("li", { key: moveKey(move) },
        el("button.refusal", {
          type: "button",
          title: `${move.text}: ${error.text}`,
          "aria-expanded": String(shown),
          onclick: () => lab.set(shown
            ? { refusal: null, inTheWay: null }
            : { refusal: moveKey(move), inTheWay: error.place }),
        }, el("span.cross", { "aria-hidden": "true" }, "✕"), el("code", {}, move.text.replace(/^sch\./, "")),
          el("span.soft", {}, error.text)),
        shown ? errorBox(error) : null);
    })));
}

/** An error with what clashes and what helps; one of the lab itself is a remark. */
function errorBox(error) {
  const note = error.kind === "LabError";
  return el("div.error", { class: note ? "note" : null },
    el("p", { class: note ? "soft" : "bad" }, error.text),
    error.example ? el("p.example", {}, el("b", {}, "What clashes: "), error.example) : null,
    error.hint ? el("p", {}, el("b", {}, "Hint: "), error.hint) : null,
    error.alternatives?.length ? el("p.soft", {}, `Instead: ${error.alternatives.join(", ")}`) : null,
    error.trace ? el("details", {}, el("summary", {}, "Traceback"), el("pre", {}, error.trace)) : null);
}
