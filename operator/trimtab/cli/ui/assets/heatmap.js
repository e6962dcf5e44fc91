// The nodes as a heat map: one cell a node, darker the fuller, marked by its state.

import { $, count, h, number } from "./dom.js";

export const NAME = 0, GROUP = 1, ZONE = 2, CPU = 3, MEMORY = 4, PODS = 5, POD_COUNT = 6, STATES = 7;

const MEASURES = [
  ["cpu", "cpu", (row) => row[CPU]],
  ["memory", "memory", (row) => row[MEMORY]],
  ["pods", "pods", (row) => row[PODS]],
  ["fullest", "fullest", (row) => Math.max(row[CPU] ?? 0, row[MEMORY] ?? 0, row[PODS] ?? 0)],
];

export const STATE_NAMES = {
  ready: "ready", booting: "booting", notReady: "not ready", removing: "being removed", unneeded: "unneeded",
  cordoned: "cordoned", tainted: "tainted",
};

const SIZES = [[60, 46], [250, 30], [1000, 18], [2500, 14], [Infinity, 11]];
const TEXT_FITS = 30;

/** The color step of a percentage: 0 to 9 up to 100 percent, 10 above, as in the HTML report. */
export const step = (value) => (value === null ? "none" : value > 100 ? 10 : Math.min(9, Math.floor(value / 10)));

const percent = (value) => (value === null ? "none" : `${Math.round(value)} %`);

export class HeatMap {
  constructor(root, onOpen) {
    this.root = root;
    this.rows = new Map();
    this.cells = new Map();
    this.groups = [];
    this.measure = MEASURES.find(([name]) => name === localStorage.getItem("trimtab-measure")) ?? MEASURES[0];
    this.grouping = localStorage.getItem("trimtab-grouping");
    this.highlighted = null;
    this.#controls();
    root.addEventListener("click", (event) => this.#with(event, onOpen));
    root.addEventListener("keydown", (event) => this.#key(event, onOpen));
    root.addEventListener("pointerover", (event) => this.#tip(event.target.closest(".cell")));
    root.addEventListener("pointerleave", () => this.#tip(null));
    root.addEventListener("focusin", (event) => this.#focus(event.target.closest(".cell")));
    root.addEventListener("focusout", () => this.#tip(null));
  }

  /** Applies changed rows and names of removed nodes. Groups are a map from name to size limits. */
  apply(rows, gone, groups) {
    let rebuild = !this.cells.size || gone.length > 0;
    if (groups) this.limits = new Map(groups.map((each) => [each.name, each]));
    for (const row of rows) {
      const old = this.rows.get(row[NAME]);
      rebuild ||= !old || old[GROUP] !== row[GROUP] || old[ZONE] !== row[ZONE];
      this.rows.set(row[NAME], row);
    }
    for (const name of gone) this.rows.delete(name);
    if (rebuild || groups) this.#rebuild();
    else for (const row of rows) this.#paint(this.cells.get(row[NAME]), row);
    this.#legend();
  }

  clear() {
    this.rows.clear();
    this.cells.clear();
  }

  /** Moves the focus to the cell of a node, and returns whether there is one. */
  focus(name) {
    const cell = this.cells.get(name);
    cell?.focus();
    return Boolean(cell);
  }

  select(name) {
    this.root.querySelector(".cell.selected")?.classList.remove("selected");
    this.cells.get(name)?.classList.add("selected");
  }

  #controls() {
    for (const [name, title] of MEASURES) {
      const input = h("input", { type: "radio", name: "measure", value: name, id: `measure-${name}` });
      input.checked = name === this.measure[0];
      input.addEventListener("change", () => {
        this.measure = MEASURES.find((each) => each[0] === name);
        localStorage.setItem("trimtab-measure", name);
        for (const [node, cell] of this.cells) this.#paint(cell, this.rows.get(node));
      });
      $("measure").append(input, h("label", { for: `measure-${name}` }, title));
    }
    $("grouping").addEventListener("change", (event) => {
      this.grouping = event.target.value;
      localStorage.setItem("trimtab-grouping", this.grouping);
      this.#rebuild();
    });
  }

  #rebuild() {
    const focused = document.activeElement?.closest?.("#heat .cell")?.dataset.name;
    const grouped = [...this.rows.values()].some((row) => row[GROUP]);
    const grouping = this.grouping ?? (grouped ? "group" : "zone");
    $("grouping").value = grouping;
    const column = { group: GROUP, zone: ZONE }[grouping];
    const groups = new Map();
    for (const row of this.rows.values()) {
      const key = column === undefined ? "" : row[column];
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(row);
    }
    if (grouping === "group") for (const [name, group] of this.limits ?? []) if (!groups.has(name) && group.upcoming) groups.set(name, []);
    const size = SIZES.find(([most]) => this.rows.size <= most)[1];
    this.root.style.setProperty("--cell", `${size}px`);
    this.root.classList.toggle("numbers", size >= TEXT_FITS);
    const old = this.cells;
    this.cells = new Map();
    const names = [...groups.keys()].sort((a, b) => (!a) - (!b) || a.localeCompare(b));
    this.root.replaceChildren(...names.map((name) => this.#group(name, groups.get(name), grouping, old)));
    if (!this.rows.size) this.root.replaceChildren(h("p", { class: "empty" }, "The cluster has no nodes."));
    this.order = [...this.cells.values()];
    const current = this.cells.get(focused ?? this.current) ?? this.order[0];
    if (current) current.tabIndex = 0;
    if (focused) current?.focus({ preventScroll: true });
  }

  #group(name, rows, grouping, old) {
    rows.sort((a, b) => (a[NAME] < b[NAME] ? -1 : 1));
    const cells = rows.map((row) => {
      const cell = old.get(row[NAME]) ?? h("div", { role: "option", class: "cell", tabindex: -1, "data-name": row[NAME] });
      cell.tabIndex = -1;
      this.cells.set(row[NAME], cell);
      this.#paint(cell, row);
      return cell;
    });
    const namespaces = new Set([...this.rows.values()].map((row) => row[GROUP].split("/")[0]).filter(Boolean));
    const title = (namespaces.size === 1 && grouping === "group" ? name.split("/").pop() : name) || (grouping ? `no ${grouping === "zone" ? "zone" : "node group"}` : "all nodes");
    const limits = grouping === "group" ? this.limits?.get(name) : undefined;
    const facts = [count(rows.length, "node")];
    if (limits) facts.push(`min ${limits.minimum}`, `max ${limits.maximum}`);
    if (limits && limits.target !== rows.length) facts.push(`target ${limits.target}`);
    if (limits?.upcoming) facts.push(`${limits.upcoming} upcoming`);
    if (limits?.paused) facts.push("paused");
    const heading = h("h3", { title: name }, h("span", { class: "name" }, title), " ", h("span", { class: "facts", title: limits?.paused }, facts.join(" · ")));
    return h("div", { role: "group", class: "group", "aria-label": `${title}, ${facts.join(", ")}` }, heading, h("div", { class: "cells" }, cells));
  }

  #paint(cell, row) {
    const value = this.measure[2](row);
    const states = row[STATES].split(" ");
    const dim = this.highlighted && !states.includes(this.highlighted) ? " dim" : "";
    cell.className = `cell h${step(value)} ${row[STATES]}${dim}${cell.classList.contains("selected") ? " selected" : ""}`;
    cell.textContent = value === null ? "–" : Math.round(value);
    cell.setAttribute("aria-label", `${row[NAME]}, ${this.measure[1]} ${percent(value)}, ${states.map((each) => STATE_NAMES[each]).join(", ")}`);
  }

  #legend() {
    const numbers = {};
    for (const row of this.rows.values()) for (const state of row[STATES].split(" ")) numbers[state] = (numbers[state] ?? 0) + 1;
    const scale = h("div", { class: "scale" }, h("span", {}, "0 %"),
      [...Array(11).keys()].map((index) => h("span", { class: `swatch h${index}`, title: index === 10 ? "above 100 % of allocatable" : `${10 * index} to ${10 * index + 10} % of allocatable` })),
      h("span", {}, "above 100 %"));
    const states = Object.entries(STATE_NAMES).filter(([state]) => numbers[state]).map(([state, title]) =>
      h("button", { type: "button", class: "state", "aria-pressed": String(this.highlighted === state), title: `Highlight nodes that are ${title}`, onclick: () => this.#highlight(state) },
        h("span", { class: `swatch ${state}` }), `${title} ${number(numbers[state])}`));
    const focused = document.activeElement?.closest?.("#legend .state")?.textContent;
    $("legend").replaceChildren(scale, h("div", { class: "states", role: "group", "aria-label": "Highlight nodes by state" }, states));
    if (focused) states.find((each) => each.textContent === focused)?.focus();
  }

  #highlight(state) {
    this.highlighted = this.highlighted === state ? null : state;
    for (const [name, cell] of this.cells) this.#paint(cell, this.rows.get(name));
    this.#legend();
  }

  #with(event, onOpen) {
    const cell = event.target.closest(".cell");
    if (cell) onOpen(cell.dataset.name);
  }

  #focus(cell) {
    if (!cell) return;
    for (const each of this.root.querySelectorAll('.cell[tabindex="0"]')) each.tabIndex = -1;
    cell.tabIndex = 0;
    this.current = cell.dataset.name;
    if (cell.matches(":focus-visible")) this.#tip(cell);
  }

  #key(event, onOpen) {
    const at = this.order?.indexOf(document.activeElement) ?? -1;
    if (at < 0) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onOpen(this.order[at].dataset.name);
      return;
    }
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: this.order.length - 1 }[event.key] ?? this.#vertical(event.key, at);
    if (to === null) return;
    event.preventDefault();
    this.order[Math.max(0, Math.min(this.order.length - 1, to))].focus();
  }

  /** The index of the cell above or below: the nearest one in the next row of cells. */
  #vertical(key, at) {
    const direction = { ArrowDown: 1, ArrowUp: -1 }[key];
    if (!direction) return null;
    const box = (index) => this.order[index]?.getBoundingClientRect();
    const { top, left } = box(at);
    let row = null, best = at;
    for (let index = at + direction; this.order[index]; index += direction) {
      const other = box(index);
      if (Math.abs(other.top - top) < 2) continue;
      if (row !== null && Math.abs(other.top - row) > 2) break;
      if (row === null || Math.abs(other.left - left) < Math.abs(box(best).left - left)) best = index;
      row = other.top;
    }
    return best;
  }

  #tip(cell) {
    const tip = $("tip"), row = cell && this.rows.get(cell.dataset.name);
    tip.hidden = !row;
    if (!row) return;
    const place = [row[GROUP], row[ZONE]].filter(Boolean).join(", ");
    tip.replaceChildren(h("b", {}, row[NAME]), h("span", {}, row[STATES].split(" ").map((each) => STATE_NAMES[each]).join(", ")),
      h("span", {}, `cpu ${percent(row[CPU])} · memory ${percent(row[MEMORY])} · ${count(row[POD_COUNT], "pod")}`), place ? h("span", { class: "soft" }, place) : "");
    const box = cell.getBoundingClientRect(), size = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(innerWidth - size.width - 8, box.left + box.width / 2 - size.width / 2))}px`;
    tip.style.top = `${box.top > size.height + 12 ? box.top - size.height - 8 : box.bottom + 8}px`;
  }
}
