// Records to start from, and what is taken out of the lab.

function recordsTab(lab) {
  const { answer, more } = pages(lab, { do: "records" },
    { name: "records", unit: "schedules", also: `${lab.runs} ${lab.opened} ${lab.state.pinned}` });
  return answered(lab, answer, "Reading the database …",
    (records) => records.length === 0
      ? el("p.soft", {}, "The database has no schedule of this program that ran.")
      : [recordsTable(lab, records), more]);
}

function recordsTable(lab, records) {
  const heads = ["schedule", "made", "time", "begin there"];
  return el("table.records", {},
    el("caption", {}, "Schedules of this program: the choice, then the fastest first, finals by their comparison"),
    el("thead", {}, el("tr", {}, heads.map((name) =>
      el("th", { scope: "col", class: name === "time" ? "num" : null }, name)))),
    el("tbody", {}, records.map((r) => el("tr", { key: r.record },
      el("th", { scope: "row" }, el("code", {}, r.id),
        r.pinned ? el("div", {}, pinnedBadge()) : null),
      el("td.made", {},
        r.decisions.length === 0 ? null : el("div.decisions", {}, r.decisions.map(({ name, value }, k) =>
          el("code", { key: k }, `${name} = ${value} `))),
        el("div", {}, r.generator, r.comparable ? null : el("span.soft", {}, ` on ${r.target}`)),
        el("span.soft.when", {}, r.created.slice(0, 16).replace("T", " "))),
      el("td.num", {}, r.text, r.failed ? el("div.bad", {}, "its numeric check failed") : null,
        r.finals ? el("div.soft", {}, r.finals) : null),
      el("td", {}, el("button", {
        type: "button",
        "aria-label": `Open schedule ${r.id}`,
        onclick: () => lab.open(r.record),
      }, "Open"))))));
}

function exportTab(lab) {
  const { ui, state } = lab;
  const asRule = ui.exported === "rule";
  const name = ui.ruleName ?? `${state.program.name.replace(/\W/g, "_")}_rule`;
  const command = asRule ? { do: "rule", name } : { do: "export" };
  const file = asRule ? `${name}.py` : `${state.program.name}_${state.version}.py`;
  return [
    el("div.row", {},
      choice("Exported as", ["script", "rule"], ui.exported, (exported) => lab.set({ exported })),
      asRule ? el("label", {}, "Name ", el("input", {
        value: name, spellcheck: "false", onchange: (event) => lab.set({ ruleName: event.target.value }),
      })) : null),
    el("p.soft", {}, asRule
      ? "A module with a sketch rule of these steps, whose sizes the search chooses: import it before tw.tune."
      : "A Python file that makes this program, step by step."),
    answered(lab, lab.need(command), "Writing …", ({ text }) => [
      el("div.row", {},
        el("button", { type: "button", onclick: () => copied(lab, text) }, "Copy"),
        el("a.button", {
          download: file,
          href: `data:text/x-python;charset=utf-8,${encodeURIComponent(text)}`,
        }, `Save as ${file}`)),
      el("pre.code.source", {}, text.trimEnd().split("\n").map((line, n) =>
        el("div.line", { key: n }, code(line), "\n"))),
    ]),
  ];
}

async function copied(lab, source) {
  try {
    await navigator.clipboard.writeText(source);
    lab.say("Copied.");
  } catch (error) {
    lab.fail({ text: `The browser does not let this page copy: ${error.message}`, hint: "select the text" });
  }
}
