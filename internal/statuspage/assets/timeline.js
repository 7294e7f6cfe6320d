// One node's timeline.

import { el } from "./dom.js";
import { moment, number } from "./format.js";
import { details } from "./item.js";
import { list } from "./list.js";

/** timeline shows what the journal keeps of a node, in the order in which it happened. */
export function timeline(view) {
  const { node, answer, error } = view.timeline;
  const out = [
    el("p", {}, el("a", { href: "#", class: "back" }, "← All nodes")),
    el("h2", { id: "timeline-title", tabindex: "-1" }, node),
  ];
  if (error) out.push(el("p", { class: "notice bad" }, error));
  if (!answer) return error ? out : [...out, el("p", { class: "faint" }, "Loading…")];
  for (const i of answer.open ?? []) {
    out.push(el("section", { class: i.blocked ? "open-item blocked" : "open-item", "data-key": i.receipt },
      el("h3", {}, i.blocked ? "Blocked: " : "In flight: ", i.action), details(view, i)));
  }
  const entries = answer.entries ?? [];
  if (entries.length === 0) return [...out, el("p", { class: "faint" }, "The journal keeps nothing of this node.")];
  return [...out, list(view, {
    id: "timeline", caption: "What happened, in order", items: entries, key: (_, n) => "entry " + n, // several can happen in one change
    columns: [
      ["Time", "num", (e) => el("time", { datetime: e.at }, moment(e.at))],
      ["Seq", "num", (e) => number(e.seq)],
      ["What", "", (e) => el("span", { class: "kind" }, e.kind)],
      ["Effect", "", (e) => e.action],
      ["Status", "", (e) => e.status],
      ["By", "", (e) => e.by],
      ["Text", "why", (e) => e.text],
    ],
  })];
}
