// What there is to know of the current version, a tab each.

const TABS = {
  sliders: ["Sizes", slidersTab],
  assembly: ["Assembly", assemblyTab],
  lowering: ["Lowering", loweringTab],
  roofline: ["Roofline", rooflineTab],
  compare: ["Compare", compareTab],
  records: ["Records", recordsTab],
  export: ["Export", exportTab],
};

function tabsPane(lab) {
  const { ui } = lab;
  const names = Object.keys(TABS);
  const step = { ArrowRight: 1, ArrowLeft: -1 };
  const keys = (event) => {
    const ends = { Home: 0, End: names.length - 1 };
    const here = names.indexOf(ui.tab);
    const to = ends[event.key] ?? here + (step[event.key] ?? 0);
    if (!(event.key in step) && !(event.key in ends)) return;
    event.preventDefault();
    lab.openTab(names[(to + names.length) % names.length]);
    lab.root.querySelector("[role=tab][aria-selected=true]").focus();
  };
  return el("section.pane.tabs", { "aria-label": "Figures" },
    el("div.tabbar", {}, el("div.tablist", { role: "tablist", "aria-label": "Figures", onkeydown: keys }, names.map((name) =>
      el("button", {
        key: name,
        type: "button",
        role: "tab",
        id: `${lab.id}-tab-${name}`,
        "aria-selected": String(name === ui.tab),
        "aria-controls": `${lab.id}-panel`,
        tabindex: name === ui.tab ? 0 : -1,
        onclick: () => lab.openTab(name),
      }, TABS[name][0]))),
    el("button.quiet", {
      type: "button",
      "aria-pressed": String(ui.wide),
      "aria-label": "Use the whole width",
      title: "Use the whole width",
      onclick: () => lab.set({ wide: !ui.wide }),
    }, "⤢")),
    el("div.panel.scroll", {
      key: ui.tab,
      role: "tabpanel",
      id: `${lab.id}-panel`,
      tabindex: 0,
      "aria-labelledby": `${lab.id}-tab-${ui.tab}`,
    }, TABS[ui.tab][1](lab)));
}

/** What an answer has: a note while it is awaited, its error, or what `shown` makes of its result. */
function answered(lab, answer, waiting, shown) {
  if (answer === undefined) return el("p.soft.wait", {}, waiting);
  if (!answer.error) return shown(answer.result);
  return [errorBox(answer.error), answer.error.kind === "LabError" ? null : el("button", {
    type: "button",
    onclick: () => {
      lab.answers.forgetErrors();
      lab.draw();
    },
  }, "Try again")];
}
