// The explanation of an object, and the search. Explanations are documents of `trimtab explain -o json`.

import { $, code, count, h, link, number, time } from "./dom.js";

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/;
const BYTES = /(capacity|allocatable|requested|reserved|threshold|memory|huge|daemon|resident|value)/i;
const HIDDEN = new Set(["apiVersion", "kind", "message", "summary", "actionsTotal", "podsTotal"]);
const KINDS = { node: "Node", pod: "Pod", nodegroup: "Node group", pdb: "PodDisruptionBudget", policy: "Policy" };
const TITLES = { oom: "OOM killer order", pods: "Pods", scaleDown: "Scale-down", uid: "UID" };
const LAST = ["pods", "nodes", "conditions", "resources", "oom", "labels", "history"];
const MOST = 100;

/** "scaleDown" as "Scale down". */
const title = (key) => TITLES[key] ?? (key.charAt(0).toUpperCase() + key.slice(1)).replace(/(?<=[a-z])([A-Z])/g, (letter) => ` ${letter.toLowerCase()}`);

function bytes(value) {
  if (value < 0) return `-${bytes(-value)}`;
  if (value < 1024) return String(value);
  const power = Math.min(4, Math.floor(Math.log2(value) / 10));
  return `${Number((value / 1024 ** power).toFixed(1))} ${["", "Ki", "Mi", "Gi", "Ti"][power]}`;
}

/** A value that is neither a list nor an object. */
function scalar(key, value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return BYTES.test(key) && Math.abs(value) > 4096 ? bytes(value) : number(Math.round(value * 100) / 100);
  if (key === "reason" || key === "reasons") return code(value);
  if (key === "node" || key === "target" || key === "from" || key === "to" || key === "nodes" || key === "fits" || key === "likely") return link("node", value);
  if (key === "pod" || (key === "pods" && value.includes("/"))) return value.includes("/") ? link("pod", value) : value;
  return TIME.test(value) ? time(value) : value;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const empty = (value) => value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length) || (isObject(value) && !Object.keys(value).length);

function table(rows) {
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((key) => rows.some((row) => !empty(row[key])));
  const cell = (key, value) => {
    if (isObject(value)) return key === "score" ? number(value.total) : Object.entries(value).map(([name, each]) => `${title(name)} ${each}`).join(", ");
    return Array.isArray(value) ? value.map((each, index) => [index ? "; " : "", isObject(each) ? JSON.stringify(each) : each]).flat() : scalar(key, value);
  };
  if (rows.length < 3 && keys.length > 5) return h("div", {}, rows.map((row) => render(row, 5)));  // too wide for a table
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, keys.map((key) => h("th", { scope: "col" }, title(key))))),
    h("tbody", {}, rows.slice(0, MOST).map((row) => h("tr", {}, keys.map((key) => h("td", { class: key === "message" ? "long" : "" }, cell(key, row[key]))))))));
}

function list(key, values) {
  return h("ul", { class: "values" }, values.slice(0, MOST).map((each) => h("li", {}, scalar(key, each))));
}

const more = (total, shown) => (total > shown ? h("p", { class: "soft" }, `and ${number(total - shown)} more`) : "");

/** Renders any document: scalars as facts, lists of objects as tables, objects as sections. */
export function render(document_, level = 3) {
  const facts = [], sections = [];
  const last = (key) => LAST.indexOf(key);  // -1 for keys that are not in the list
  for (const [key, value] of Object.entries(document_).sort(([one], [other]) => last(one) - last(other))) {
    if (HIDDEN.has(key) || empty(value)) continue;
    const heading = h(`h${level}`, {}, title(key), Array.isArray(value) ? h("span", { class: "number" }, ` ${number(document_[`${key}Total`] ?? value.length)}`) : "");
    if (Array.isArray(value) && isObject(value[0])) sections.push(h("section", {}, heading, table(value), more(document_[`${key}Total`] ?? value.length, Math.min(MOST, value.length))));
    else if (Array.isArray(value)) sections.push(h("section", {}, heading, list(key, value), more(value.length, MOST)));
    else if (key === "labels") sections.push(h("section", {}, heading, h("ul", { class: "labels" }, Object.entries(value).map(([name, each]) => h("li", {}, `${name}=${each}`)))));
    else if (isObject(value)) sections.push(h("section", {}, heading, render(value, Math.min(6, level + 1))));
    else facts.push(h("dt", {}, title(key)), h("dd", {}, scalar(key, value)));
  }
  const answer = typeof document_.summary === "string" ? document_.summary : document_.message;
  const sentence = answer ? h("p", { class: level === 3 ? "answer" : "note" }, answer) : "";
  return h("div", {}, sentence, facts.length ? h("dl", {}, facts) : "", sections);
}

export class Inspector {
  constructor({ onClose, onOpen }) {
    this.onClose = onClose;
    this.onOpen = onOpen;
    $("inspector-close").addEventListener("click", () => this.close());
    addEventListener("hashchange", () => this.follow());
  }

  get open() {
    return !$("inspector").hidden;
  }

  /** Opens what the fragment of the URL names: #node/NAME, #pod/NAMESPACE/NAME. */
  follow() {
    const [, kind, name] = /^#([a-z]+)\/(.+)$/.exec(location.hash) ?? [];
    if (kind) this.explain(kind, decodeURI(name));
    else if (this.open && !this.detail) this.#hide();
  }

  /** Shows an explanation; with quiet, refreshes it in place. */
  async explain(kind, name, { quiet = false } = {}) {
    const request = (this.request = {});
    if (!quiet) {
      this.#show(KINDS[kind] ?? kind, name, h("p", { class: "loading" }, "Explaining…"));
      this.onOpen?.(kind, name);
    }
    this.shown = [kind, name];
    this.detail = false;
    let content, state = "";
    try {
      const response = await fetch(`/explain?${new URLSearchParams({ kind, name })}`);
      const document_ = await response.json();
      state = JSON.stringify(document_);
      if (quiet && state === this.state) return;
      content = document_.error ? h("p", { class: "answer" }, document_.error) : render(this.#without(document_, kind));
    } catch (error) {
      content = h("p", { class: "answer bad" }, `The explanation cannot be read: ${error.message}`);
    }
    if (request !== this.request) return;
    this.state = state;
    $("inspector-body").replaceChildren(content);
  }

  /** Shows all fields of a row of a list. */
  details(kind, row) {
    this.request = this.shown = null;
    if (location.hash) history.replaceState(null, "", location.pathname);
    this.#show(kind, row.action ?? row.what ?? row.reason ?? row.name ?? "", render(row));
    this.detail = true;
  }

  /** Reads the explanation again, after the cluster has changed. */
  refresh() {
    if (this.open && this.shown) this.explain(...this.shown, { quiet: true });
  }

  close() {
    if (!this.open) return;
    if (location.hash) history.pushState(null, "", location.pathname);
    this.#hide();
  }

  #hide() {
    $("inspector").hidden = true;
    document.body.classList.remove("inspecting");
    const shown = this.shown;
    this.request = this.shown = null;
    this.detail = false;
    this.onClose?.(shown);
    if (this.before?.isConnected) this.before.focus({ preventScroll: true });
  }

  #show(kind, name, content) {
    if (!this.open) this.before = document.activeElement;
    $("inspector-kind").textContent = kind;
    $("inspector-title").textContent = h("b", {}, name).textContent;
    $("inspector-body").replaceChildren(content);
    $("inspector").hidden = false;
    $("inspector").scrollTop = 0;
    document.body.classList.add("inspecting");
    $("inspector-title").focus({ preventScroll: true });
  }

  /** Leaves out what the title says already, and feasible nodes that a table of nodes contains. */
  #without(document_, kind) {
    const { [kind]: _, ...rest } = document_;
    if (Array.isArray(rest.nodes) && rest.nodes.length > MOST) rest.nodesTotal = rest.nodes.length;
    return rest;
  }
}

// --- search -----------------------------------------------------------------------------------------------------------

const KEYS = { nodes: "node", pods: "pod", groups: "nodegroup" };

export class Search {
  constructor() {
    this.input = $("search");
    this.results = $("results");
    this.input.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.#search(), 120);
    });
    this.input.addEventListener("keydown", (event) => this.#key(event));
    this.input.addEventListener("blur", () => setTimeout(() => this.#close(), 150));
    this.results.addEventListener("pointerdown", (event) => event.preventDefault());
    this.results.addEventListener("click", () => this.#close());
    $("finder").addEventListener("submit", (event) => event.preventDefault());
  }

  async #search() {
    const text = this.input.value.trim();
    const request = (this.request = {});
    if (!text) return this.#close();
    let found;
    try {
      found = await (await fetch(`/search?${new URLSearchParams({ q: text })}`)).json();
    } catch {
      return this.#close();
    }
    if (request !== this.request) return;
    this.options = [];
    const sections = Object.entries(KEYS).filter(([key]) => found[key]?.length).map(([key, kind]) => h("div", { role: "group", "aria-label": KINDS[kind] },
      h("p", { class: "mark" }, count(found[key].length, KINDS[kind])), found[key].map((each) => this.#option(kind, each))));
    this.results.replaceChildren(...(sections.length ? sections : [h("p", { class: "empty" }, "Nothing has a name with these words.")]));
    this.results.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.#choose(0);
  }

  #option(kind, each) {
    const name = each.pod ?? each;
    const option = h("a", { role: "option", id: `result-${this.options.length}`, href: `#${kind}/${encodeURI(name)}`, tabindex: -1 }, name, each.node ? h("span", { class: "soft" }, ` on ${each.node}`) : "");
    this.options.push(option);
    return option;
  }

  #choose(index) {
    this.options.forEach((option, place) => option.setAttribute("aria-selected", String(place === index)));
    this.chosen = index;
    this.options[index]?.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", this.options[index]?.id ?? "");
  }

  #key(event) {
    if (event.key === "Escape") {
      event.stopPropagation();
      if (this.results.hidden) this.input.blur();
      this.#close();
    } else if (!this.results.hidden && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      const next = this.chosen + (event.key === "ArrowDown" ? 1 : -1);
      this.#choose((next + this.options.length) % this.options.length);
    } else if (event.key === "Enter" && !this.results.hidden) {
      this.options[this.chosen]?.click();
    }
  }

  #close() {
    this.request = null;
    this.results.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }
}
