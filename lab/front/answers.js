// What the kernel answered, kept by what was asked.

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
