// An open receipt: its row's cells, and all that is known of it.

import { el } from "./dom.js";
import { between, moment, span } from "./format.js";
import { command, list, nodeLink } from "./list.js";

const left = (view, item) => between(view.now(), item.horizon);

/** blocked lists the nodes that need somebody. */
export const blocked = (view, items) => list(view, {
  id: "blocked", caption: "Blocked nodes, oldest first", items, key: (i) => i.receipt, label: (i) => i.node, details: (i) => details(view, view.details.get(i.receipt) ?? i, view.details.has(i.receipt)),
  columns: [
    ["Node", "wide", (i) => nodeLink(i.node)],
    ["Effect", "", (i) => i.action],
    ["Blocked for", "num", (i) => el("time", { datetime: i.since, title: moment(i.since) }, span(between(i.since, view.now())))],
    ["Why", "why", (i) => i.why],
    ["Verdict", "", (i) => verdict(view, i)],
  ],
});

function verdict(view, i) {
  if (i.proposed) return el("span", { class: "badge good", title: i.proposed.rule }, i.proposed.verdict);
  const rest = left(view, i);
  return rest > 0 ? el("span", { class: "badge" }, `in ${span(Math.ceil(rest))}`) : el("span", { class: "badge warn" }, "look at it");
}

/** inFlight lists the effects that wait for their reply. */
export const inFlight = (view, items) => list(view, {
  id: "flight", caption: "Effects in flight, oldest first", items, key: (i) => i.receipt, label: (i) => i.node, details: (i) => details(view, view.details.get(i.receipt) ?? i, view.details.has(i.receipt)),
  columns: [
    ["Node", "wide", (i) => nodeLink(i.node)],
    ["Effect", "", (i) => i.action],
    ["Sent", "num", (i) => el("time", { datetime: i.since, title: moment(i.since) }, span(between(i.since, view.now())), " ago")],
    ["Horizon", "num", (i) => (left(view, i) > 0 ? "in " + span(Math.ceil(left(view, i))) : "passed")],
  ],
});

/** outside lists the nodes that are not taken at present. */
export const outside = (view, nodes) => list(view, {
  id: "nodes", caption: "Nodes that are not taken, by name", items: nodes, key: (n) => n.node,
  columns: [
    ["Node", "wide", (n) => nodeLink(n.node)],
    ["State", "", (n) => el("span", { class: n.state === "out" ? "badge warn" : "badge" }, n.state)],
    ["Until", "num", (n) => until(view, n)],
    ["Why", "why", (n) => n.why],
    ["Take it now", "run", (n) => command(view, n.run)],
  ],
});

function until(view, n) {
  if (!moment(n.until)) return "";
  const rest = between(view.now(), n.until);
  return el("time", { datetime: n.until, title: moment(n.until) }, rest > 0 ? "in " + span(Math.ceil(rest)) : "now");
}

/** details is what somebody needs who has to decide about an open receipt; all is false while only its row is known. */
export function details(view, i, all = true) {
  const missing = !all && el("p", { class: "faint" }, view.detailsError ? `The rest could not be loaded: ${view.detailsError}` : "Loading…");
  return el("div", { class: "item" }, el("div", { class: "facts" }, situation(view, i), missing, all && looks(i), all && evidence(i), all && weights(i)), commands(view, i), ids(i));
}

function situation(view, i) {
  const rest = left(view, i);
  return [
    el("p", {}, el("strong", {}, i.status), ": ", i.why || "the reply is awaited"),
    i.proposed && el("p", { class: "proposal" }, "Proposed: ", el("strong", {}, i.proposed.verdict), `, by rule ${i.proposed.rule}: ${i.proposed.why}`),
    i.blocked && !i.proposed && el("p", {}, "No rule concludes anything from the evidence."),
    rest > 0 && el("p", {}, `The node can accept the request for another ${span(Math.ceil(rest))}.`, i.blocked && " Until then not-applied and abandon are refused."),
  ];
}

const looks = (i) => i.look?.length > 0 && [el("h4", {}, "What to look at"), el("ul", { class: "look" }, i.look.map((text) => el("li", {}, text)))];

function evidence(i) {
  if (!i.evidence?.length) return [el("h4", {}, "Evidence"), el("p", { class: "faint" }, "none yet")];
  return [el("h4", {}, "Evidence"), el("ul", { class: "evidence" }, i.evidence.map((e) =>
    el("li", {}, el("time", { datetime: e.at }, moment(e.at)), " ", el("b", {}, e.source), ": ", e.text)))];
}

/** weights is what speaks for and against each verdict; what is firm says so outright. */
function weights(i) {
  if (!i.weights?.length) return null;
  return [el("h4", {}, "For and against"), el("ul", { class: "evidence" }, i.weights.map((w) => el("li", {},
    el("span", { class: "badge " + (w.firm ? (w.for ? "good" : "bad") : "hint") }, `${w.for ? "for" : "against"} ${w.verdict}`), " ",
    el("b", {}, w.source), ": ", w.says, !w.firm && el("span", { class: "faint" }, " (a hint)"))))];
}

function commands(view, i) {
  if (!i.commands?.length) return null;
  return el("div", { class: "commands" }, el("h4", {}, "Decide"), i.commands.map((c) => el("div", { class: "choice" },
    el("p", {}, c.verdict && el("span", { class: i.proposed?.verdict === c.verdict ? "badge good" : "badge" }, c.verdict), " ", c.then), command(view, c.run))));
}

function ids(i) {
  const pid = i.incarnation?.pid ? `${i.incarnation.pid} since ${moment(i.incarnation.start * 1000)}` : "not known";
  const pairs = [["Receipt", i.receipt], ["Job", `${i.job}, claim ${i.claim}`], ["Request", i.request], ["Made", moment(i.since)],
    ["Horizon", moment(i.horizon)], ["Node's process", pid], ["Epoch", i.epoch], ["First line if applied", i.first_line]];
  return el("dl", { class: "ids" }, pairs.filter(([, value]) => value).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}
