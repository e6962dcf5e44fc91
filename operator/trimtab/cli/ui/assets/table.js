// A table that creates only the rows that are visible, so that thousands of rows cost as much as thirty.

import { h, number } from "./dom.js";

const SPARE = 6;

export class VirtualTable {
  /** columns: [{title, width, cell(row), class}]; empty: the text for a table without rows; onOpen(row). */
  constructor(columns, { label, empty, onOpen }) {
    this.columns = columns;
    this.emptyText = empty;
    this.onOpen = onOpen;
    this.rows = [];
    this.all = [];
    this.total = 0;
    this.cached = new Map();
    this.filter = h("input", { type: "search", placeholder: "Filter", "aria-label": `Filter: ${label}`, maxlength: 100 });
    this.filter.addEventListener("input", () => this.#apply());
    this.counter = h("output", {});
    this.extra = h("div", { class: "chips" });
    this.body = h("div", { class: "rows", role: "rowgroup" });
    this.head = h("div", { class: "row head", role: "row" }, columns.map((each) => h("span", { role: "columnheader", class: each.class }, each.title)));
    const short = !columns.some((each) => each.class === "flow");
    this.scroller = h("div", { class: short ? "scroller short" : "scroller", tabindex: 0, role: "table", "aria-label": label }, this.head, this.body);
    this.empty = h("p", { class: "empty" });
    this.element = h("div", { class: "table" }, h("div", { class: "tools" }, this.filter, this.counter, this.extra), this.scroller, this.empty);
    this.scroller.style.setProperty("--columns", columns.map((each) => each.width).join(" "));
    this.scroller.addEventListener("scroll", () => this.#paint(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.#move(event));
    new ResizeObserver(() => this.#paint(true)).observe(this.scroller);
  }

  /** Shows rows; total is their number in the cluster, of which the server may have sent an excerpt. */
  show(rows, total = rows.length, empty = this.emptyText) {
    this.all = rows;
    this.total = total;
    this.emptyText = empty;
    this.texts = null;
    this.#apply();
  }

  #apply() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length) {
      this.texts ??= this.all.map((row) => JSON.stringify(row).toLowerCase());
      this.rows = this.all.filter((_, index) => words.every((word) => this.texts[index].includes(word)));
    } else this.rows = this.all;
    const shown = this.rows.length === this.total ? number(this.total) : `${number(this.rows.length)} of ${number(this.total)}`;
    this.counter.value = this.total ? shown : "";
    this.empty.textContent = this.all.length ? "No row contains all these words." : this.emptyText;
    this.empty.hidden = this.rows.length > 0;
    this.scroller.hidden = this.rows.length === 0;
    this.filter.hidden = this.all.length < 2;
    this.scroller.setAttribute("aria-rowcount", this.rows.length + 1);
    this.#paint(true);
  }

  #paint(fresh = false) {
    if (fresh) {
      this.cached.clear();
      this.height = parseFloat(getComputedStyle(this.scroller).getPropertyValue("--row")) || 44;
    }
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / this.height) - SPARE);
    const last = Math.min(this.rows.length, first + Math.ceil((this.scroller.clientHeight || 600) / this.height) + 2 * SPARE);
    const wanted = [];
    for (let index = first; index < last; index++) wanted.push(this.cached.get(index) ?? this.#row(index));
    this.cached = new Map(wanted.map((row, place) => [first + place, row]));
    this.body.style.height = `${this.rows.length * this.height}px`;
    const focused = document.activeElement?.closest?.(".row")?.ariaRowIndex;
    this.body.replaceChildren(...wanted);
    if (fresh && focused) this.cached.get(Number(focused) - 2)?.focus({ preventScroll: true });
  }

  #row(index) {
    const data = this.rows[index];
    const row = h("div", { class: "row", role: "row", tabindex: -1, "aria-rowindex": index + 2 },
      this.columns.map((each) => h("span", { role: "cell", class: each.class, "data-title": each.title }, each.cell(data))));
    row.style.top = `${index * this.height}px`;
    row.addEventListener("click", (event) => event.target.closest("a") || this.onOpen?.(data));
    return row;
  }

  #move(event) {
    const at = Number(event.target.closest?.(".row[tabindex]")?.ariaRowIndex ?? 1) - 2;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.height) - 1);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: this.rows.length - 1 }[event.key];
    if (event.key === "Enter" && at >= 0 && !event.target.closest("a")) this.onOpen?.(this.rows[at]);
    if (to === undefined || !this.rows.length) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(this.rows.length - 1, to));
    const top = next * this.height;
    const view = this.scroller.clientHeight - this.head.offsetHeight;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top + this.height > this.scroller.scrollTop + view) this.scroller.scrollTop = top + this.height - view;
    this.#paint();
    this.cached.get(next)?.focus({ preventScroll: true });
  }
}
