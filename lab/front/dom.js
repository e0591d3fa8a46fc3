// Elements as values, the function that makes the document equal to them, and numbers as texts.

const SVG = "http://www.w3.org/2000/svg";
const DRAWINGS = new Set(["svg", "path", "circle", "g"]);
/** JupyterLab leaves the keys of an element with this attribute alone; it asks the focused one only. */
const OWN_KEYS = "data-lm-suppress-shortcuts";

/** An element: a tag with classes ("button.quiet"), properties, and children. */
function el(name, props, ...children) {
  const [tag, ...classes] = name.split(".");
  const { class: more, ...others } = props ?? {};
  const all = [...classes, more].filter(Boolean).join(" ");
  return { tag, props: all ? { ...others, class: all } : others, children: kids(children) };
}

function kids(children) {
  return children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false);
}

/**
 * Make the children of `parent` those wanted. Nodes are kept, so that focus, scrolling and a slider
 * that is being dragged are too: by `key` where elements have one, by their place otherwise. A key
 * is of one element: names that people see may repeat, and are none.
 */
function patch(parent, wanted) {
  const keys = wanted.map((kid) => kid.props?.key).filter((key) => key !== undefined);
  if (new Set(keys).size < keys.length) throw new Error(`repeated keys: ${keys.join(", ")}`);
  const keyed = new Map();
  for (const node of parent.childNodes) if (node.twKey !== undefined) keyed.set(node.twKey, node);
  let place = parent.firstChild;
  for (const kid of wanted) {
    const text = typeof kid !== "object";
    const tag = text ? "#text" : kid.tag;
    const key = text ? undefined : kid.props.key;
    let node = key !== undefined ? keyed.get(key) : place?.twKey === undefined ? place : null;
    if (node?.twTag !== tag) node = create(tag, key);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
    if (!text) update(node, kid);
    else if (node.data !== String(kid)) node.data = String(kid);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function create(tag, key) {
  const node =
    tag === "#text"
      ? document.createTextNode("")
      : DRAWINGS.has(tag)
        ? document.createElementNS(SVG, tag)
        : document.createElement(tag);
  if (tag !== "#text") node.setAttribute(OWN_KEYS, "true");
  return Object.assign(node, { twTag: tag, twKey: key, twProps: {} });
}

function update(node, { props, children }) {
  const before = node.twProps;
  for (const name of Object.keys(before)) if (!(name in props)) assign(node, name, null);
  for (const [name, value] of Object.entries(props)) {
    if (before[name] !== value || name === "value") assign(node, name, value);
  }
  node.twProps = props;
  if (props.html === undefined) patch(node, children);
}

/** `html` is of this package, which escapes all texts in it. */
function assign(node, name, value) {
  if (name === "key") return;
  if (name === "html") node.innerHTML = value ?? "";
  else if (name.startsWith("on")) node[name] = value;
  else if (name === "value") {
    if (node.value !== String(value ?? "")) node.value = value ?? "";
  } else if (name === "open") node.open = Boolean(value);
  else if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}

/** A number with three digits, without zeros at its end. */
function digits(value) {
  const shown = value >= 999.5 ? value.toFixed(0) : value.toPrecision(3);
  return shown.includes(".") ? shown.replace(/\.?0+$/, "") : shown;
}

const TIMES = [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9]];

/** Seconds as people read them: 8.86 ms. */
function seconds(value) {
  const [unit, scale] = TIMES.find(([, least]) => value >= 0.9995 * least) ?? TIMES.at(-1);
  return `${digits(value / scale)} ${unit}`;
}

/** How a time differs from another one, as a factor: 1.99x faster, as `durations.format_change` writes it; empty for 0. */
function change(now, before) {
  const faster = now < before;
  const factor = faster ? before / now : now / before;
  const much = factor < 9.995 ? factor.toFixed(2) : digits(factor);
  if (!Number.isFinite(factor)) return { text: "", of: "soft" };
  if (much === "1.00") return { text: "same time", of: "soft" };
  return { text: `${much}x ${faster ? "faster" : "slower"}`, of: faster ? "good" : "bad" };
}

const WORDS =
  /(#.*$|;.*$)|("(?:[^"\\]|\\.)*")|\b(for|in|with|if|else|def|return|and|or|not|while|pass)\b|(@?\bT\.\w+(?:\.\w+)*|@tw\.script)|\b(\d[\w.]*)\b/gm;
const KINDS = ["comment", "string", "keyword", "type", "number"];

/** A line of a program or of assembly with its words marked. */
function code(line) {
  const parts = [];
  let end = 0;
  for (const match of line.matchAll(WORDS)) {
    const kind = KINDS[match.slice(1).findIndex((group) => group !== undefined)];
    if (match.index > end) parts.push(line.slice(end, match.index));
    parts.push(el(`span.${kind}`, {}, match[0]));
    end = match.index + match[0].length;
  }
  if (end < line.length) parts.push(line.slice(end));
  return parts;
}
