// The lists below the heat map: pending pods, the plan, what is kept, actions in flight, history and policies.

import { $, code, count, h, link, number, time } from "./dom.js";
import { VirtualTable } from "./table.js";

const pod = (row) => (row.pod ? (row.pod.includes("/") ? row.pod : `${row.namespace}/${row.pod}`) : "");
const short = (id) => id.split("/").slice(-2).join("/");

/** The object of an action, as a link to its explanation. */
function object(row) {
  if (row.pod && row.kind !== "Node") return link("pod", pod(row));
  if (row.kind && row.kind !== "Node") return row.kind === "Pod" ? link("pod", `${row.namespace}/${row.name}`) : `${row.kind} ${[row.namespace, row.name].filter(Boolean).join("/")}`;
  if (row.machineSet && !row.node) return link("nodegroup", row.machineSet);
  if (row.nodeGroup && !row.node) return link("nodegroup", row.nodeGroup);
  if (row.group && !row.node) return link("nodegroup", short(row.group));
  return link("node", row.node || row.name);
}

/** A node without its domain, so that two nodes fit into a cell. Names of addresses are complete. */
const host = (name = "") => link("node", name, /^[^.]*[a-z][^.]*\./.test(name) ? name.split(".")[0] : name);

/** Where an action leads: a node, a size, a taint or a deadline. */
function effect(row) {
  if (row.from !== undefined && row.to !== undefined) return `${row.from} → ${row.to} nodes`;
  if (row.fromSize !== undefined || row.toSize !== undefined) return `${row.fromSize ?? "?"} → ${row.toSize ?? "?"} nodes`;
  if (row.taint) return typeof row.taint === "string" ? row.taint : `${row.taint.key}${row.taint.value ? `=${row.taint.value}` : ""}:${row.taint.effect}`;
  if (row.movesTotal !== undefined) return `${count(row.movesTotal, "pod")} to move`;
  if (row.due) return [host(row.node), " ", time(row.due)];
  if (row.node && row.target && row.node !== row.target) return [host(row.node), " → ", host(row.target)];
  return row.pod ? host(row.node) : "";
}

/** Results of recorded actions that were not done. An entry without a result has succeeded. */
const FAILURES = new Set(["Refused", "Failed"]);

const text = (title, width, cell, kind) => ({ title, width, cell, class: kind });
const message = (cell) => text("Message", "minmax(16rem, 3fr)", cell, "long");
const reason = (cell = (row) => row.reason) => text("Reason", "minmax(10rem, 1fr)", (row) => code(cell(row)));

const TABS = [
  {
    id: "pending", title: "Pending pods", empty: "Every pod has a node.",
    columns: [
      text("Pods", "minmax(12rem, 2fr)", (row) => [link("pod", row.pods[0]), row.count > 1 ? h("span", { class: "more" }, ` and ${number(row.count - 1)} more`) : ""], "name"),
      reason(),
      message((row) => (row.autoscaler ? [row.autoscaler, h("span", { class: "soft" }, ` · scheduler: ${row.message}`)] : row.message)),
      text("Pending since", "7rem", (row) => time(row.since), "when"),
    ],
    rows: (content) => [content.rows, content.rows.length, content.total],
  },
  {
    id: "plan", title: "Plan", empty: "",
    columns: [
      text("Action", "7rem", (row) => h("b", {}, row.action)), text("Object", "minmax(12rem, 2fr)", object, "name"),
      text("Effect", "minmax(9rem, 1.4fr)", effect, "flow"), reason(), message((row) => row.message),
    ],
    rows: (content) => [content.actions, content.total ?? 0, content.total ?? 0],
  },
  {
    id: "kept", title: "Kept", section: "plan", empty: "The plan leaves out no candidate.",
    columns: [
      text("Object", "minmax(12rem, 2fr)", object, "name"), text("Strategy", "minmax(8rem, 1fr)", (row) => row.strategy), reason(), message((row) => row.message),
    ],
    rows: (content) => [content.kept, content.summary.kept ?? 0, content.summary.kept ?? 0],
    chips: (content) => content.reasons,
  },
  {
    id: "activity", title: "In flight", empty: "Nothing is in flight: no eviction, scale-up or node removal is running, and no pod is terminating.",
    columns: [
      text("What", "7rem", (row) => h("b", {}, row.what)), text("Object", "minmax(12rem, 2fr)", object, "name"),
      reason(), message((row) => [row.message, row.by ? h("span", { class: "soft" }, ` · ${row.by}`) : ""]),
      text("Since", "6rem", (row) => time(row.since), "when"), text("Until", "6rem", (row) => time(row.until), "when"),
    ],
    rows: (content) => [content.rows, content.total, content.total],
  },
  {
    id: "history", title: "History", empty: "No action is recorded. HistoryRecords contain what the controllers of trimtab did.",
    columns: [
      text("Time", "6.5rem", (row) => time(row.time), "when"), text("Action", "9.5rem", (row) => h("b", { class: FAILURES.has(row.result) ? "bad" : "" }, row.action, row.result && row.result !== "Succeeded" ? ` (${row.result.toLowerCase()})` : "")),
      text("Object", "minmax(12rem, 2fr)", object, "name"), text("Effect", "minmax(9rem, 1.4fr)", effect, "flow"),
      reason((row) => row.resultReason || row.reason), message((row) => row.resultMessage || row.message),
    ],
    rows: (content) => [content.entries, content.total, content.total],
  },
  {
    id: "policies", title: "Policies", empty: "No policy is applied, so trimtab does nothing in this cluster.",
    columns: [
      text("Policy", "minmax(12rem, 2fr)", (row) => link("policy", `${row.kind}/${row.name}`), "name"), text("Mode", "7rem", (row) => row.mode),
      text("Ready", "6rem", (row) => h("span", { class: row.ready === "False" ? "bad" : "" }, row.ready)), reason(), message((row) => row.message),
      text("Next run", "6rem", (row) => time(row.nextRun), "when"),
    ],
    rows: (content) => [content, content.length, content.length],
    address: (row) => `policy/${row.kind}/${row.name}`,
  },
];

/** What the plan's list says without actions. */
function planText(plan) {
  if (plan.state === "planning") return "Planning…";
  if (plan.state === "failed") return `Planning failed: ${plan.message}`;
  return plan.policies ? "There is nothing to do: the applied policies find no action for this cluster." : "No policy is applied, so there is no plan.";
}

export class Tabs {
  constructor(onOpen) {
    this.content = {};
    this.onOpen = onOpen;
    this.tables = new Map();
    this.buttons = new Map(TABS.map((tab) => [tab.id, h("button", { type: "button", role: "tab", id: `tab-${tab.id}`, "aria-controls": "panel", onclick: () => this.open(tab.id) })]));
    $("tabs").replaceChildren(...this.buttons.values());
    $("tabs").addEventListener("keydown", (event) => this.#key(event));
    this.open("pending");
  }

  open(id) {
    this.current = TABS.find((tab) => tab.id === id);
    if (!this.tables.has(id)) this.tables.set(id, new VirtualTable(this.current.columns, { label: this.current.title, empty: this.current.empty, onOpen: (row) => this.#details(row) }));
    $("panel").replaceChildren(this.tables.get(id).element);
    $("panel").setAttribute("aria-labelledby", `tab-${id}`);
    const button = this.buttons.get(id);
    $("tabs").scrollLeft = Math.max(0, button.offsetLeft - ($("tabs").clientWidth - button.offsetWidth) / 2);
    this.#show();
  }

  update(sections) {
    Object.assign(this.content, sections);
    this.#show(sections);
  }

  #show(changed = null) {
    for (const tab of TABS) {
      const content = this.content[tab.section ?? tab.id];
      const [rows, total, number_] = content ? tab.rows(content) : [[], 0, 0];
      const button = this.buttons.get(tab.id);
      const current = tab === this.current;
      button.replaceChildren(tab.title, " ", h("span", { class: "number" }, number(number_)));
      button.setAttribute("aria-selected", String(current));
      button.tabIndex = current ? 0 : -1;
      if (!current || !content || (changed && !(tab.section ?? tab.id in changed) && !((tab.section ?? tab.id) in changed))) continue;
      const table = this.tables.get(tab.id);
      table.show(rows, total, tab.id === "plan" ? planText(content) : tab.empty);
      const omitted = tab.id === "plan" && content.omitted.length ? [h("span", { class: "soft" }, `Not included: ${content.omitted.join("; ")} (see trimtab plan)`)] : [];
      const chips = (tab.chips?.(content) ?? []).slice(0, 12).map(([name, times]) => h("button", { type: "button", class: "chip", onclick: () => this.#filter(table, name) }, code(name), ` ${number(times)}`));
      table.extra.replaceChildren(...omitted, ...chips);
    }
  }

  /** Explains the object of a row if the list has explanations, and shows the fields of the row otherwise. */
  #details(row) {
    const { address, title } = this.current;
    if (address) location.hash = `#${encodeURI(address(row))}`;
    else this.onOpen(title, row);
  }

  #filter(table, word) {
    table.filter.value = table.filter.value === word ? "" : word;
    table.filter.dispatchEvent(new Event("input"));
  }

  #key(event) {
    const ids = TABS.map((tab) => tab.id);
    const at = ids.indexOf(this.current.id);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: ids.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.open(ids[(to + ids.length) % ids.length]);
    this.buttons.get(this.current.id).focus();
  }
}
