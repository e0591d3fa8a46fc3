// What the kernel answered, kept by what was asked, and answers that come in pages.

/**
 * Answers by commands. A command names the version that it is about, so that its answer stays true
 * when another version is shown. `also` is what else it depends on: when that is another, it is
 * asked again, and the answer there is stands until the new one is here.
 */
class Answers {
  constructor(ask, arrived) {
    this.ask = ask;
    this.arrived = arrived;
    this.kept = new Map();
  }

  /** The answer of a command, `undefined` until it is here. */
  get(command, also = "") {
    const key = JSON.stringify(command);
    let entry = this.kept.get(key);
    if (entry?.also !== also) {
      if (this.kept.size > MOST_KEPT) this.kept.clear();
      entry = { also, answer: entry?.answer };
      this.kept.set(key, entry);
      this.ask(command).then((answer) => {
        entry.answer = answer;
        this.arrived();
      });
    }
    return entry.answer;
  }

  /** Errors are no knowledge: what failed is asked again when it is needed again. */
  forgetErrors() {
    for (const [key, { answer }] of this.kept) if (answer?.error) this.kept.delete(key);
  }
}

const MOST_KEPT = 200;

/**
 * What a command answers page by page, as far as people asked for it: `answer` has the `items` that
 * are here, or why there is none, and `more` is the way to the others. `first` is the first page
 * where it is known, and a page has its items by `name`.
 */
function pages(lab, command, { name, unit, first, also }) {
  const key = JSON.stringify(command);
  const wanted = lab.ui.pages.get(key) ?? 1;
  const items = [];
  let total = 0;
  let answer;
  for (let page = 0; page < wanted; page++) {
    answer = page === 0 && first ? { result: first } : lab.answers.get({ ...command, start: items.length }, also);
    if (!answer?.result) break;
    items.push(...answer.result[name]);
    ({ total } = answer.result);
  }
  const more = total <= items.length ? null : el("div.soft.more", {},
    answer?.error ? errorBox(answer.error) : null,
    `The first ${items.length} of ${total} ${unit}. `,
    el("button", {
      type: "button",
      disabled: answer === undefined,
      "aria-label": `More ${unit}`,
      onclick: () => {
        lab.answers.forgetErrors();
        lab.ui.pages.set(key, answer.error ? wanted : wanted + 1);
        lab.draw();
      },
    }, "More"));
  return { answer: items.length > 0 || answer?.result ? { result: items } : answer, items, more };
}
