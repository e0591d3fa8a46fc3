// The lab in a page: its state, what it asks the kernel, and one function that draws all of it.

class Lab {
  constructor(model, root) {
    this.model = model;
    this.root = root;
    this.id = `tw-lab-${Math.random().toString(36).slice(2)}`; // of all views in all windows
    this.state = model.get("state");
    this.asked = 0;
    this.runs = 0;
    this.opened = 0;
    this.waiting = new Map();
    this.answers = new Answers((command) => this.ask(command), () => this.draw());
    this.ui = {
      place: null, cursor: 0, reveal: false, folded: new Set(), shown: "tree", tab: "sliders", filter: "", stage: null, line: null,
      inTheWay: null, refusal: null, showRefused: false, form: null, trial: null, typed: {}, row: null, pages: new Map(),
      a: null, b: null, opened: new Set(["program"]), exported: "script", ruleName: null, error: null, said: "", lost: false, wide: false, packing: false,
    };
    this.handlers = [
      ["change:state", () => this.changed()],
      ["msg:custom", (message) => this.receive(message)],
      ["comm_live_update", () => this.set({ lost: true })], // until something comes after all
    ];
    for (const [name, handler] of this.handlers) model.on(name, handler);
    this.selectCostliest();
    this.draw();
    this.showVersion();
  }

  close() {
    for (const [name, handler] of this.handlers) this.model.off(name, handler);
  }

  /** The current version. */
  current() {
    return this.state.versions.find((v) => v.id === this.state.version);
  }

  /** The loops, blocks and statements of the version, as far as people asked for them. */
  tree() {
    return pages(this, this.about({ do: "tree" }), { name: "nodes", unit: "loops and blocks", first: this.state.tree });
  }

  nodes() {
    return this.tree().items;
  }

  /** The measured times there are: what depends on them is asked again when they are others. */
  times() {
    return [this.runs, ...this.state.versions.map((v) => v.measured?.seconds ?? "")].join();
  }

  /** Whether a run can begin. */
  measures() {
    return this.state.target.runs_here && !this.state.run?.running;
  }

  set(changes) {
    Object.assign(this.ui, changes);
    this.draw();
  }

  say(said) {
    this.set({ said, error: null });
  }

  fail(error) {
    this.set({ error });
  }

  /** Send a command; the promise is for its answer, `{ok, result}` or `{ok, error}`. */
  ask(command) {
    const id = `${this.id} ${++this.asked}`;
    const slow = setTimeout(() => this.draw(), 1500);
    return new Promise((resolve) => {
      this.waiting.set(id, { resolve, slow, since: Date.now() });
      this.model.send({ id, command });
    });
  }

  receive({ id, answer }) {
    this.ui.lost = false;
    const waiting = this.waiting.get(id);
    if (waiting === undefined) return;
    clearTimeout(waiting.slow);
    this.waiting.delete(id);
    waiting.resolve(answer);
  }

  /** A command about the version that is shown, whichever the kernel has come to meanwhile. */
  about(command) {
    return { ...command, version: this.state.version };
  }

  /** The answer of a command about the version that is shown, `undefined` until it is here. */
  need(command, also = "") {
    return this.answers.get(this.about(command), also);
  }

  /** Carry out a command, and show its error in place. */
  async run(command) {
    const answer = await this.ask(command);
    if (answer.error) this.fail(answer.error);
    else this.set({ error: null, said: "" });
    return answer;
  }

  async apply({ op, args }) {
    const answer = await this.ask(this.about({ do: "apply", op, args }));
    if (answer.error) {
      this.set({ error: answer.error, inTheWay: answer.error.place ?? null });
    } else {
      Object.assign(this.ui, { error: null, refusal: null, inTheWay: null });
      this.openForm(null);
    }
    return answer;
  }

  /** Move the sliders to a row of values. Figures are asked for one row at a time, the newest. */
  slide(row) {
    this.set({ row });
  }

  figures(row) {
    const command = this.about({ do: "figures", values: row });
    const busy = this.figuring && this.answers.get(this.figuring) === undefined;
    if (!busy) this.figuring = command;
    const answer = busy ? undefined : this.answers.get(command);
    if (answer !== undefined) this.last = answer;
    return answer ?? this.last;
  }

  async keep(values) {
    await this.run(this.about({ do: "slide", values }));
  }

  select(place, cursor = this.ui.cursor) {
    Object.assign(this.ui, { place, cursor, reveal: false, refusal: null, inTheWay: null });
    this.openForm(null);
  }

  /** Open the form for the arguments of a primitive: what was typed before is gone. */
  openForm(op) {
    this.set({ form: op, typed: {}, trial: null });
  }

  /** Others write to the database too: its records are read again with each opening. */
  openTab(tab) {
    this.opened++;
    this.answers.forgetErrors();
    this.set({ tab });
  }

  fold(id) {
    if (!this.ui.folded.delete(id)) this.ui.folded.add(id);
    this.draw();
  }

  focusRow(cursor) {
    this.set({ cursor });
    this.root.querySelector(`[data-at="${cursor}"]`)?.focus();
  }

  /** Select the nest that takes longest. Pages of the tree up to it are asked for. */
  selectCostliest() {
    const { costliest, tree } = this.state;
    Object.assign(this.ui, { place: costliest?.place ?? null, cursor: costliest?.node ?? 0, reveal: true });
    const key = JSON.stringify(this.about({ do: "tree" }));
    const needed = costliest === null ? 1 : 1 + Math.floor(costliest.node / tree.nodes.length);
    this.ui.pages.set(key, Math.max(needed, this.ui.pages.get(key) ?? 1));
  }

  /** In another version, what was selected stays; else what a step made new is, or the costliest nest. */
  selectAgain(shown, before) {
    const { parent, steps } = this.current();
    const nodes = this.nodes();
    const stepped = parent === shown.id && steps === shown.steps + 1;
    const at = [
      nodes.findIndex((n) => n.id !== undefined && n.id === this.ui.place),
      stepped ? nodes.findIndex((n) => n.id !== undefined && !before.has(n.id)) : -1,
    ].find((index) => index >= 0);
    if (at === undefined) this.selectCostliest();
    else Object.assign(this.ui, { place: nodes[at].id, cursor: at });
  }

  /** Begin at the schedule of a record, as the lab opens: at the nest that takes longest. */
  async open(record) {
    const { error } = await this.run({ do: "open", record });
    if (error) return;
    this.selectCostliest();
    this.openForm(null);
  }

  /** The kernel has another state: see `selectAgain` for the place. */
  changed() {
    const before = new Set(this.nodes().map((n) => n.id));
    const shown = this.current();
    const ran = this.state.run?.running;
    this.state = this.model.get("state");
    this.ui.lost = false;
    if (ran && !this.state.run.running) {
      this.runs++;
      this.answers.forgetErrors();
    }
    if (this.state.version !== shown.id) {
      this.answers.forgetErrors();
      this.selectAgain(shown, before);
      Object.assign(this.ui, { row: null, inTheWay: null, refusal: null, form: null, typed: {}, trial: null, stage: null, line: null });
      this.last = undefined;
    }
    this.draw();
    if (this.state.version !== shown.id) this.showVersion();
  }

  /** Scroll the list of versions, and nothing around it, to the current one. */
  showVersion() {
    const here = this.root.querySelector(".version[aria-current]");
    scrollToRow(here, here.closest(".graph"));
  }

  /** Scroll the program to what is selected, once that is there and the page has a size. */
  showPlace() {
    const here = this.root.querySelector(`.tree [data-at="${this.ui.cursor}"], .program .line.hot`);
    if (here === null || here.offsetHeight === 0) return;
    scrollToRow(here, here.closest(".tree, .code"));
    this.ui.reveal = false;
  }

  draw() {
    const focused = this.root.contains(document.activeElement) ? document.activeElement : null;
    patch(this.root, [view(this)]);
    if (this.ui.reveal) this.showPlace();
    if (focused === null || document.activeElement === focused) return;
    const kept = focused.isConnected ? focused : this.root.querySelector("[data-fallback]");
    kept?.focus({ preventScroll: true });
  }
}

/** Scroll a list, and nothing around it, to one of its rows. */
function scrollToRow(row, list) {
  const top = row.getBoundingClientRect().top - list.getBoundingClientRect().top;
  if (top < 0 || top + row.offsetHeight > list.clientHeight) list.scrollTop += top - list.clientHeight / 2;
}

function view(lab) {
  return el("div.frame", {},
    headPane(lab),
    noticePane(lab),
    el("div.panes", { class: lab.ui.wide ? "wide-tabs" : null },
      el("div.side", {}, programPane(lab), versionsPane(lab)), movesPane(lab), tabsPane(lab)));
}

function headPane(lab) {
  const { program, kernels, target, database, can_undo, can_redo } = lab.state;
  const { id } = lab.current();
  const act = (label, command, enabled = true, why = null, done = null) => el("button", {
    type: "button",
    disabled: !enabled,
    title: why,
    onclick: async () => {
      const { error, result } = await lab.run(command);
      if (!error && done) lab.say(done(result));
    },
  }, label);
  return el("header.head", {},
    el("div.title", {},
      el("h2", {}, program.name), " ",
      el("span.soft", {}, program.shape)),
    kernels.length === 0 ? null : el("p.soft", {},
      `Unscheduled, it is built as ${kernels.length} kernels: ${kernels.join(", ")}. `,
      "To open one: ", el("code", {}, `tw.lab(tw.kernels(func, target)["${kernels[0]}"], target)`)),
    el("div.where.soft", {}, el("span", {}, target.text), database ? el("span", {}, database) : null),
    el("div.actions", { role: "group", "aria-label": `Actions on ${id}` },
      act("Undo", { do: "undo" }, can_undo),
      act("Redo", { do: "redo" }, can_redo),
      el("span.gap"),
      act("Measure", { do: "measure", versions: [id] }, lab.measures(), target.why_not),
      el("button", {
        type: "button",
        "aria-expanded": String(lab.ui.packing),
        onclick: () => lab.set({ packing: !lab.ui.packing }),
      }, "Pack …"),
      act("Pin", { do: "pin", version: id }, true, "Builds of this program take this version",
        (pinned) => `Builds of this program take ${pinned.version} now, schedule ${pinned.id}.`),
      act("Unpin", { do: "unpin" }, true, "Builds of this program take the fastest version again",
        ({ unpinned }) => unpinned ? "No version is pinned now." : "No version was pinned.")),
    lab.ui.packing ? packForm(lab, id) : null);
}

/** Asks for the folder that a version is compiled into, to be measured on another machine. */
function packForm(lab, id) {
  return el("form.pack", {
    onsubmit: async (event) => {
      event.preventDefault();
      const folder = event.target.elements.folder.value.trim();
      const { error } = await lab.run({ do: "pack", versions: [id], folder });
      if (!error) lab.set({ packing: false });
    },
  },
    el("label", {}, `New folder for ${id}, to be measured on another machine `, el("input", {
      name: "folder", required: true, spellcheck: "false", placeholder: `${lab.state.program.name}_${id}`,
    })),
    el("button.primary", { type: "submit", disabled: Boolean(lab.state.run?.running) }, "Pack"));
}

/** What goes on, what went wrong, and whether anybody listens. */
function noticePane(lab) {
  const { ui, state } = lab;
  const late = [...lab.waiting.values()].some((w) => Date.now() - w.since > 1400);
  return el("div.notices", {},
    el("div", { role: "alert" },
      ui.lost ? el("div.error", {}, el("p.bad", {}, "The kernel of this lab has ended. Run the cell again."),
        el("p.soft", {}, "What was measured is in the database.")) : null,
      ui.error ? el("div.dismissible", {}, errorBox(ui.error), el("button.quiet", {
        type: "button", "aria-label": "Dismiss the error", onclick: () => lab.set({ error: null, inTheWay: null }),
      }, "✕")) : null,
      state.run?.error ? errorBox(state.run.error) : null),
    el("div", { role: "status" },
      runNote(lab, state.run),
      late && !ui.lost ? el("p.soft", {}, "Waiting for the kernel: another cell may be running.") : null,
      ui.said ? el("p.soft", {}, ui.said) : null));
}

function ended(versions, says) {
  if (says === "cancelled" || says === "failed") return `The run of ${versions.join(", ")}: ${says}.`;
  return `${versions.join(", ")}: ${says}`;
}

/** Which versions of a run that came to its end have times, and why others have none. */
function results(lab, { versions }) {
  const failed = lab.state.versions.filter((v) => versions.includes(v.id) && v.problem);
  const timed = versions.filter((id) => !failed.some((v) => v.id === id));
  return [
    timed.length ? el("p.soft", {}, `${timed.join(", ")} measured.`) : null,
    failed.map((v) => el("p.bad", { key: v.id }, `${v.id} has no time. ${v.problem}`)),
  ];
}

function runNote(lab, run) {
  if (run === null) return null;
  const versions = run.versions.join(", ");
  return [
    run.running ? el("p.run", {}, el("span.spinner", { "aria-hidden": "true" }), `${versions}: ${run.says}`, " ", el("button", {
      type: "button", onclick: () => lab.run({ do: "cancel" }),
    }, "Cancel")) : run.says === "done" ? results(lab, run) : el("p.soft", {}, ended(run.versions, run.says)),
    run.unsaved ? el("p.bad", {}, `${run.unsaved} writes wait for the database; they are tried again until it takes them.`) : null,
  ];
}

export default {
  render({ model, el: place }) {
    place.classList.add("tw", "tw-lab");
    place.dataset.lmSuppressShortcuts = "true"; // keys are the lab's, not JupyterLab's
    const lab = new Lab(model, place);
    return () => lab.close();
  },
};
