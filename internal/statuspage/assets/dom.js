// Elements from data. Everything that nodes and helpers said passes through text(), and nothing here parses markup.

const unprintable = /[\p{C}\p{Zl}\p{Zp}]/gu;

/** visible shows control, direction and other unseen characters as \u202e, so that a name cannot pose as another. */
export function visible(value) {
  return String(value ?? "").replace(unprintable, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
}

const svgTags = new Set(["svg", "path", "rect", "line", "polyline", "title"]);

/** el makes an element. Attributes that are null or false are left out; children are elements, values to show, lists or null. */
export function el(tag, attributes, ...children) {
  const e = svgTags.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) e.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    e.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return e;
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);

/** show makes an element's content what is wanted, by changing as little as possible: focus, selection and scroll stay. */
export function show(parent, ...wanted) {
  const list = wanted.flat(Infinity).filter(Boolean).map((w) => (w instanceof Node ? w : document.createTextNode(visible(w))));
  const keys = new Set(list.map(keyOf).filter((k) => k !== null));
  const kept = new Map();
  for (const node of [...parent.childNodes]) {
    const key = keyOf(node);
    if (key === null) continue;
    if (keys.has(key)) kept.set(key, node);
    else node.remove();
  }
  let at = parent.firstChild;
  for (const want of list) {
    const key = keyOf(want);
    const have = key !== null ? kept.get(key) : at && keyOf(at) === null ? at : null;
    if (!have) {
      parent.insertBefore(want, at);
      continue;
    }
    if (have === at) at = at.nextSibling;
    else parent.insertBefore(have, at);
    alter(have, want);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alter(have, want) {
  if (have.isEqualNode(want)) return;
  if (have.nodeName !== want.nodeName) {
    have.replaceWith(want);
    return;
  }
  if (have.nodeType === Node.TEXT_NODE) {
    if (have.data !== want.data) have.data = want.data;
    return;
  }
  for (const { name } of [...have.attributes]) {
    if (!want.hasAttribute(name)) have.removeAttribute(name);
  }
  for (const { name, value } of want.attributes) {
    if (have.getAttribute(name) !== value) have.setAttribute(name, value);
  }
  show(have, [...want.childNodes]);
}
