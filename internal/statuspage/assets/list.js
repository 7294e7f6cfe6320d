// A table of many rows, of which one page is in the document.

import { el, visible } from "./dom.js";
import { number } from "./format.js";

const perPage = 100;

/**
 * list shows the rows of one page. columns: [title, class, cell(item)]; key(item, n) names a row, no two alike; details(item), if there are any,
 * fill the row below it while it is open.
 */
export function list(view, { id, caption, columns, items, key, details, label }) {
  const pages = Math.max(1, Math.ceil(items.length / perPage));
  const page = Math.min(view.page(id, pages), pages - 1);
  const part = items.slice(page * perPage, (page + 1) * perPage);
  const body = part.flatMap((item, n) => {
    const name = key(item, page * perPage + n);
    const open = details && view.open.has(name);
    const cells = columns.map(([title, style, cell]) => el("td", { role: "cell", class: style, "data-title": title || null }, el("div", {}, cell(item))));
    if (details) cells.unshift(toggle(name, open, label(item)));
    const row = el("tr", { role: "row", "data-key": name, class: open ? "is-open" : null }, cells);
    if (!open) return [row];
    const below = el("td", { role: "cell", colspan: columns.length + 1 }, details(item));
    return [row, el("tr", { role: "row", class: "details", "data-key": "details " + name, id: "d-" + name }, below)];
  });
  const heads = columns.map(([title, style]) => el("th", { role: "columnheader", scope: "col", class: style }, title));
  if (details) heads.unshift(el("th", { role: "columnheader", scope: "col", class: "turn" }, el("span", { class: "unseen" }, "Details")));
  return [
    el("table", { role: "table", id: id + "-table", class: details ? "opens" : null, "aria-rowcount": items.length + 1 },
      el("caption", { class: "unseen" }, caption),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads)),
      el("tbody", { role: "rowgroup" }, body)),
    pages > 1 && pager(id, page, pages, items.length),
  ];
}

function toggle(name, open, label) {
  const button = el("button", { type: "button", class: "turn", "data-do": "toggle", "data-name": name, "aria-expanded": open ? "true" : "false",
    "aria-controls": open ? "d-" + name : null, "aria-label": "Details of " + visible(label) }, open ? "▾" : "▸");
  return el("td", { role: "cell", class: "turn" }, button);
}

function pager(id, page, pages, total) {
  const turn = (to, text, name) => el("button", { type: "button", "data-do": "page", "data-name": id, "data-page": to, "aria-label": name,
    "aria-disabled": to < 0 || to >= pages || to === page ? "true" : null }, text);
  return el("nav", { class: "pager", "aria-label": "Pages" },
    turn(0, "«", "First page"), turn(page - 1, "‹", "Page before"),
    el("span", {}, `${number(page * perPage + 1)}–${number(Math.min(total, (page + 1) * perPage))} of ${number(total)}`),
    turn(page + 1, "›", "Next page"), turn(pages - 1, "»", "Last page"));
}

/** command is something to type, with a button that copies it; with characters that a terminal might obey it has none. */
export function command(view, run) {
  const shown = visible(run);
  if (shown !== run) return el("div", { class: "command" }, el("code", {}, run), el("span", { class: "bad" }, "has unprintable characters: not to be copied"));
  const copied = view.copied === run;
  return el("div", { class: "command" }, el("code", {}, run.split(/( +)/).map((word) => el("span", { class: "word" }, word))),
    el("button", { type: "button", "data-do": "copy", "data-run": run, class: copied ? "done" : null, "aria-label": "Copy: " + run }, copied ? view.copiedHow : "Copy"));
}

/** nodeLink leads to a node's timeline. */
export const nodeLink = (node) => el("a", { class: "node", href: "#node=" + encodeURIComponent(node.toWellFormed?.() ?? node) }, node);
