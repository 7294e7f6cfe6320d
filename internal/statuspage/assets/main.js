// What the page knows, how it learns it, and what the reader does.

import { el, show, visible } from "./dom.js";
import { between, number, plural } from "./format.js";
import { blocked, inFlight, outside } from "./item.js";
import { foot, notices, numbers, state } from "./overview.js";
import { timeline } from "./timeline.js";

const [pollEvery, samplesEvery, answerWithin, staleAfter] = [3000, 10000, 20000, 12000]; // ms
const detailsAtOnce = 50;
const at = (id) => document.getElementById(id);

const view = {
  report: null, etag: null, samples: null, samplesAt: -Infinity, error: null,
  okAt: 0, skew: 0, // when the last answer came, our clock; how far the worker's clock is ahead of ours
  seenAt: Date.now(), // since when the page is visible: a hidden one asks nothing
  filter: "", open: new Set(), details: new Map(), detailsError: null, // of open receipts, by id
  pages: new Map(), copied: null, copiedHow: "",
  timeline: { node: null, answer: null, error: null, seq: null },
  now: () => Date.now() + view.skew,
  age: () => (Date.now() - view.okAt) / 1000,
  stale: () => Boolean(view.error) || Date.now() - Math.max(view.okAt, view.seenAt) > staleAfter,
  page: (id, pages) => view.pages.get(id) ?? (id === "timeline" ? pages - 1 : 0), // a timeline begins with what happened last
};

// --- Asking the worker

async function ask(path, headers = {}) {
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(answerWithin) });
  if (answer.ok || answer.status === 304) return answer;
  const text = await answer.text();
  let why = text.slice(0, 500);
  try {
    why = JSON.parse(text).error ?? why;
  } catch { /* a refusal in plain text */ }
  throw Object.assign(new Error(why), { answered: true });
}

async function askReport() {
  try {
    const answer = await ask("report.json?brief", view.etag ? { "If-None-Match": view.etag } : {});
    if (answer.status !== 304) {
      const report = await answer.json();
      [view.report, view.etag] = [report, answer.headers.get("ETag")];
    }
    view.okAt = Date.now();
    view.skew = Date.parse(answer.headers.get("Date")) + 500 - view.okAt || 0;
    view.error = null;
  } catch (e) {
    const why = e.answered ? e.message : e.name === "TimeoutError" ? "no answer in time" : "it cannot be reached";
    view.error = { answered: Boolean(e.answered), why };
  }
}

async function askSamples() {
  if (Date.now() - view.samplesAt < samplesEvery) return;
  try {
    view.samples = await (await ask("samples.json")).json();
    view.samplesAt = Date.now();
  } catch { /* the report's error says it */ }
}

/** asOf changes with the report, and once more when the horizon has surely passed. */
const asOf = (i) => view.etag + (between(i.horizon, view.now()) > 3);

/** askDetails reads what is known of the receipts whose details are open, when it is not known or the receipt has changed. */
async function askDetails() {
  const open = view.report?.items.filter((i) => view.open.has(i.receipt)) ?? [];
  const wanted = open.filter((i) => view.details.get(i.receipt)?.asOf !== asOf(i)).slice(0, detailsAtOnce);
  for (const name of view.details.keys()) if (!view.open.has(name)) view.details.delete(name);
  if (wanted.length === 0) return;
  const as = new Map(wanted.map((i) => [i.receipt, asOf(i)]));
  try {
    const { items } = await (await ask("items.json?" + wanted.map((i) => "receipt=" + encodeURIComponent(i.receipt)).join("&"))).json();
    for (const i of items) view.details.set(i.receipt, { ...i, asOf: as.get(i.receipt) });
    view.detailsError = null;
  } catch (e) {
    view.detailsError = e.answered ? e.message : "The worker cannot be reached.";
  }
  render();
}

/** askTimeline reads the chosen node's timeline again when the journal went on. */
async function askTimeline() {
  const t = view.timeline;
  const seq = view.report?.journal.seq;
  if (t.node === null || (t.answer && t.seq === seq)) return;
  try {
    t.answer = await (await ask("timeline.json?node=" + encodeURIComponent(t.node))).json();
    [t.error, t.seq] = [null, seq];
  } catch (e) {
    t.error = e.answered ? e.message : "The worker cannot be reached.";
  }
  render();
}

let timer = 0;
let asking = false;

async function poll() {
  if (asking || document.hidden) return;
  asking = true;
  clearTimeout(timer);
  await askReport();
  render();
  if (!view.error) {
    await Promise.all([askSamples(), askDetails(), askTimeline()]);
    render();
  }
  asking = false;
  timer = setTimeout(poll, pollEvery);
}

// --- Showing

/** words is what the filter looks at. */
function words(one) {
  return visible([one.node, one.action, one.status, one.state, one.why, one.receipt, one.job, one.request, one.proposed?.verdict, one.proposed?.rule].join(" ")).toLowerCase();
}

function chosen(all) {
  const terms = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
  return terms.length ? all.filter((one) => terms.every((term) => (one.words ??= words(one)).includes(term))) : all;
}

function section(id, title, all, table, none) {
  const some = chosen(all);
  show(at(id), el("h2", { id: id + "-title" }, title, " ", el("span", { class: "count" }, some.length === all.length ? number(all.length) : `${number(some.length)} of ${number(all.length)}`)),
    some.length ? table(view, some) : el("p", { class: "faint" }, all.length ? "Nothing here matches the filter." : none));
  at(id).classList.toggle("some", all.length > 0);
}

let announced = "";

function announce(told, needed) {
  const text = told.map(([, text]) => text.replace(/\d+ (s|min|h|d)\b ?/g, "")).join(" ") + needed;
  if (text === announced) return; // an age that grows is no news
  announced = text;
  at("announce").textContent = visible([...told.map(([, text]) => text), needed].join(" "));
}

function render() {
  const told = notices(view);
  show(at("notices"), told.map(([style, text]) => el("p", { class: "notice " + style }, text)));
  show(at("state"), state(view));
  document.body.classList.toggle("stale", Boolean(view.report) && view.stale());
  const onTimeline = view.timeline.node !== null;
  at("timeline").hidden = !onTimeline;
  at("overview").hidden = at("search").hidden = onTimeline;
  if (onTimeline) show(at("timeline"), timeline(view));
  if (!view.report) return;
  const { items, nodes } = view.report;
  const needy = items.filter((i) => i.blocked);
  document.title = (view.stale() ? "(!) " : needy.length ? `(${needy.length}) ` : "") + "provctl";
  announce(told, ` ${plural(needy.length, "node")} blocked.`);
  show(at("foot"), foot(view));
  if (onTimeline) return;
  section("blocked", "Blocked", needy, blocked, "Nothing is blocked.");
  section("flight", "In flight", items.filter((i) => !i.blocked), inFlight, "No effect waits for its reply.");
  section("nodes", "Held and out", nodes, outside, "No node is held or out.");
  show(at("numbers"), numbers(view));
}

// --- What the reader does

const doing = {
  toggle({ name }) {
    if (!view.open.delete(name)) view.open.add(name);
    askDetails();
  },
  page({ name, page }, button) {
    if (button.getAttribute("aria-disabled")) return;
    view.pages.set(name, Number(page));
  },
  async copy({ run }, button) {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(run);
      view.copiedHow = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      view.copiedHow = "Press Ctrl+C";
    }
    view.copied = run;
    at("announce").textContent = view.copiedHow;
    setTimeout(() => {
      if (view.copied === run) view.copied = null;
      render();
    }, 4000);
  },
};

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-do]");
  if (!button) return;
  await doing[button.dataset.do](button.dataset, button);
  render();
});

at("search").addEventListener("submit", (event) => event.preventDefault());
at("filter").addEventListener("input", (event) => {
  view.filter = event.target.value;
  for (const id of ["blocked", "flight", "nodes"]) view.pages.delete(id);
  render();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
  event.preventDefault();
  at("filter").focus();
});

let scrolled = 0;

/** follow shows what the address names: #node=NAME is that node's timeline. */
function follow() {
  const match = /^#node=(.+)$/.exec(location.hash);
  let node = null;
  try {
    node = match && decodeURIComponent(match[1]);
  } catch { /* not an encoded name: the overview */ }
  if (node === view.timeline.node) return;
  if (view.timeline.node === null) scrolled = scrollY;
  view.timeline = { node, answer: null, error: null, seq: null };
  view.pages.delete("timeline");
  render();
  scrollTo(0, node === null ? scrolled : 0);
  if (node === null) return;
  at("timeline-title").focus({ preventScroll: true });
  askTimeline();
}

addEventListener("hashchange", follow);
document.addEventListener("visibilitychange", () => {
  view.seenAt = Date.now();
  poll();
});
setInterval(() => document.hidden || render(), 1000);
follow();
poll();
