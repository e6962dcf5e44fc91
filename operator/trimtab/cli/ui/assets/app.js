// Receives the state of the cluster as server-sent events, and shows it.

import { $, code, count, h, number, setClock, time } from "./dom.js";
import { HeatMap, STATES } from "./heatmap.js";
import { Inspector, Search } from "./inspector.js";
import { Tabs } from "./tabs.js";

const THEMES = { auto: ["◐", "Theme: as the system"], light: ["☀", "Theme: light"], dark: ["☾", "Theme: dark"] };
const REFRESH = 3000;

const sections = {};
const map = new HeatMap($("heat"), (name) => (location.hash = `#node/${encodeURI(name)}`));
const inspector = new Inspector({
  onOpen: (kind, name) => map.select(kind === "node" ? name : ""),
  onClose: (shown) => {
    map.select("");
    if (shown?.[0] === "node") map.focus(shown[1]);
  },
});
const tabs = new Tabs((title, row) => inspector.details(title, row));
new Search();
let shown = false, refreshed = 0, last = "";

// --- updates ----------------------------------------------------------------------------------------------------------

const events = new EventSource("/events");
events.onmessage = (event) => {
  const { kind, time: at, content, loading } = JSON.parse(event.data);
  if (loading) return pill("wait", "Loading", loading);
  setClock(at);
  last = at;
  if (kind === "state") map.clear();
  Object.assign(sections, content.sections);
  map.apply(content.rows, content.gone, content.sections.groups);
  tabs.update(content.sections);
  cards();
  connection(at);
  if (!shown) {
    shown = true;
    document.body.classList.add("loaded");
    performance.mark("first-state");
    inspector.follow();
  }
  if (Date.now() - refreshed > REFRESH) {
    refreshed = Date.now();
    inspector.refresh();
  }
};
events.onerror = () => {
  const ended = events.readyState === EventSource.CLOSED;
  pill("bad", "Disconnected");
  stale(true);
  const known = last ? ["This page shows the last known state, of ", time(last), ". "] : [];
  banner(ended
    ? ["trimtab ui was restarted, or has too many pages open. ", ...known, "Open the URL that ", h("code", {}, "trimtab ui"), " has printed last."]
    : ["trimtab ui does not respond. ", ...known, "It reconnects by itself."]);
};

function connection(at) {
  const { connection: { ok, message, since }, live, time: loaded, warnings, source } = sections.head;
  $("source").textContent = source;
  $("source").title = source;
  document.title = `trimtab · ${source}`;
  if (!live) pill("file", "Saved cluster", `as of ${loaded}`);
  else if (ok) pill("good", "Live", `last change ${at}`);
  else pill("bad", "Disconnected");
  stale(live && !ok);
  const notes = warnings.map((each) => h("p", {}, each));
  if (!ok) notes.unshift(h("p", {}, "The API server does not respond, so this page shows the last known state", since ? [" of ", time(since)] : "", ". It reconnects by itself. ", h("span", { class: "soft" }, message)));
  banner(notes);
}

function pill(state, text, title = "") {
  $("live").className = `pill ${state}`;
  $("live").textContent = text;
  $("live").title = title;
}

/** Shows whether the page may be outdated. */
const stale = (is) => document.body.classList.toggle("stale", is);

function banner(content) {
  $("banner").hidden = !content.length;
  $("banner").replaceChildren(...content);
}

function cards() {
  const { head, plan, activity } = sections;
  const states = [...map.rows.values()].map((row) => row[STATES]);
  const having = (word) => states.filter((each) => each.includes(word)).length;
  const ready = states.filter((each) => each.startsWith("ready")).length;
  const unready = states.length - ready;
  const planned = plan.total ?? 0;
  const summary = Object.entries(plan.summary).filter(([name, value]) => value && name !== "kept").map(([name, value]) => `${number(value)} ${name}`).join(", ");
  const found = [
    [number(states.length), "nodes", unready ? `${number(unready)} not ready` : "all ready", unready ? "warn" : ""],
    [number(head.pods), "pods", head.pods && states.length ? `${number(Math.round(head.pods / states.length))} per node` : ""],
    [number(head.pending), "pending pods", head.pending ? "see the reasons" : "every pod has a node", head.pending ? "warn" : "", "pending"],
    [plan.state === "planning" ? "…" : number(planned), "planned actions", plan.state === "failed" ? "planning failed" : summary || "nothing to do", plan.state === "failed" ? "warn" : "", "plan"],
    [number(activity.total), "in flight", activity.total ? "see the actions" : "nothing is running", "", "activity"],
    [number(having("unneeded")), "unneeded nodes", having("removing") ? `${having("removing")} being removed` : "none is being removed"],
  ];
  $("cards").replaceChildren(...found.map(([value, name, note, kind, tab]) => {
    const content = [h("b", {}, value), h("span", {}, name), h("small", {}, note)];
    return h("li", { class: kind }, tab ? h("a", { href: `#${tab}`, onclick: (event) => { event.preventDefault(); tabs.open(tab); $("lists").scrollIntoView({ block: "start" }); } }, content) : content);
  }));
}

// --- theme and keys ---------------------------------------------------------------------------------------------------

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("trimtab-theme", name);
  [$("theme").textContent, $("theme").title] = THEMES[name];
  $("theme").setAttribute("aria-label", THEMES[name][1]);
}
theme(document.documentElement.dataset.theme);
$("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  theme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
});

addEventListener("keydown", (event) => {
  const typing = event.target.matches("input[type=search], select, textarea");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else inspector.close();
  } else if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    $("search").focus();
    $("search").select();
  }
});
