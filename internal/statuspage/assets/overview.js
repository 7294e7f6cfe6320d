// The worker's state, its numbers and their plots.

import { el } from "./dom.js";
import { between, duration, moment, number, plural, span } from "./format.js";

/** state is the line beside the name. */
export function state(view) {
  const { report } = view;
  if (!report) return [view.error ? el("span", { class: "pill bad" }, "no answer") : "Loading…"];
  const w = report.worker;
  const paused = report.journal.paused;
  const [style, word] = view.stale() ? ["bad", view.error?.answered ? "error" : "no answer"] : !w ? ["bad", "no worker"] : paused && w.state === "running" ? ["warn", "paused"]
    : [{ running: "good", stopped: "bad" }[w.state] ?? "warn", w.state];
  const out = [el("span", { class: "pill " + style }, word)];
  if (!w) return out;
  out.push(el("ul", { class: "strip" },
    el("li", {}, el("b", {}, number(w.busy)), ` of ${plural(w.lanes, "lane")} at work`),
    el("li", {}, el("b", {}, number(w.queue)), " queued"),
    w.parked > 0 && el("li", {}, el("b", {}, number(w.parked)), " waiting without a lane"),
    el("li", { class: w.connected ? null : "bad" }, w.connected ? "broker connected" : "broker not connected"),
    el("li", {}, w.standby ? "stands by" : "leads, or no election")));
  return out;
}

/** notices are what somebody should know before anything else. Each is [class, text]. */
export function notices(view) {
  const out = [];
  const { report, error } = view;
  if (report && view.stale()) {
    const what = error?.answered ? `The worker answers with an error: ${error.why}` : `The worker no longer answers: ${error?.why ?? "it takes long"}.`;
    out.push(["bad", `${what} What is shown is ${span(view.age())} old.`]);
  } else if (!report && error) out.push(["bad", `There is no report yet: ${error.why}`]);
  const w = report?.worker;
  if (!report) return out;
  if (!w) out.push(["bad", "No worker runs: this is what the journal says."]);
  const p = report.journal.paused;
  if (p) out.push(["warn", `Paused by ${p.by} for ${span(between(p.at, view.now()))}: ${p.reason}`]);
  if (w && !w.connected) out.push(["bad", "The worker has no connection to the broker."]);
  if (w?.standby) out.push(["warn", `Stands by: ${w.standby}`]);
  if (w?.gate && !p) out.push(["warn", `No new work is taken: ${w.gate}`]);
  if (w?.state === "settling") out.push(["warn", "The worker settles what an earlier one left; it takes no work yet."]);
  if (w?.state === "stopping") out.push(["warn", "The worker is stopping: effects in flight end, nothing new begins."]);
  if (w?.state === "stopped") out.push(["bad", "The worker has stopped and only answers."]);
  return out;
}

/** numbers are plots and counts. */
export function numbers(view) {
  const { report, samples } = view;
  return [
    el("h2", {}, "Last hour"), throughput(samples), latency(samples),
    el("h2", {}, "Jobs"), counts(report.counts.jobs),
    el("h2", {}, "Jobs ended"), counts(report.counts.results),
    el("h2", {}, "Receipts"), counts({
      ...report.counts.receipts, "settled by evidence": report.counts.settled_by_evidence,
      "settled by verdict": report.counts.settled_by_verdict, "jobs requeued": report.counts.requeues,
    }),
  ];
}

const counts = (all) => el("dl", { class: "counts" }, Object.entries(all).map(([name, n]) =>
  el("div", { class: n ? null : "zero" }, el("dt", {}, name), el("dd", {}, number(n)))));

const hour = 360; // samples
const [width, height] = [360, 56];

/** The newest sample is at the right edge, so that a young worker's plot grows from there. */
const place = (list, n) => hour - list.length + n;

function throughput(samples) {
  const list = samples?.samples ?? [];
  const perMinute = Array(hour / 6).fill(0);
  list.slice(-hour).forEach((s, n, all) => (perMinute[Math.floor(place(all, n) / 6)] += s.ended));
  const most = Math.max(...perMinute);
  const bars = perMinute.map((n, i) => n > 0 && el("rect", { class: "bar", x: i * 6 + 0.5, width: 5, y: height - (n / most) * (height - 2), height: (n / most) * (height - 2) },
    el("title", {}, `${59 - i} min ago: ${plural(n, "job")}`)));
  const ended = perMinute.reduce((sum, n) => sum + n, 0);
  return figure("Jobs ended per minute", list.length ? `${number(ended)} in all, most ${number(most)} a minute` : "no full interval yet", bars);
}

function latency(samples) {
  const list = (samples?.samples ?? []).slice(-hour);
  const top = Math.max(0, ...list.map((s) => s.commit_max_ms));
  const y = (ms) => height - 1 - (top ? ms / top : 0) * (height - 3);
  const line = (field, style) => runs(list).map((run) => el("polyline", { class: style, "vector-effect": "non-scaling-stroke",
    points: run.flatMap((n) => [0, 1].map((end) => `${place(list, n) + end},${y(list[n][field]).toFixed(1)}`)).join(" ") }));
  const last = list.findLast((s) => s.commits > 0);
  const text = last ? `median ${duration(last.commit_p50_ms)} now, longest ${duration(top)} in the hour` : "no commit yet";
  return figure("Commit time: median and longest", text, [line("commit_max_ms", "line max"), line("commit_p50_ms", "line p50")]);
}

/** runs are the stretches without a quiet interval: a line through zero would say that commits took no time. */
function runs(list) {
  const out = [];
  list.forEach((s, n) => {
    if (s.commits === 0) return;
    if (n > 0 && list[n - 1].commits > 0) out.at(-1).push(n);
    else out.push([n]);
  });
  return out;
}

const figure = (title, text, marks) => el("figure", {}, el("figcaption", {}, el("b", {}, title), el("span", {}, text)),
  el("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${text}` }, marks));

/** foot says which worker and which journal this is. */
export function foot(view) {
  const { worker: w, journal: j } = view.report;
  return [
    w && el("span", {}, `Worker ${w.version}, pid ${w.pid}, epoch ${w.epoch}, up ${span(between(w.started, view.now()))}`),
    el("span", {}, `Journal ${j.path}, sequence ${number(j.seq)}`),
    el("span", {}, `As of ${moment(view.okAt + view.skew)}`),
  ];
}
