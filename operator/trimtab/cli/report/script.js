"use strict";
// Searching and choosing rows. Everything is readable without this: rows are in the page, this only hides some.
for (const form of document.querySelectorAll("[data-finder]")) {
  const rows = [...document.querySelectorAll("#" + form.dataset.finder + " tbody tr")];
  const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
  const search = form.querySelector("[data-search]");
  const choices = [...form.querySelectorAll("[data-column]")];
  const counter = form.querySelector("[data-counter]");
  const groups = [...document.querySelectorAll("#" + form.dataset.finder + " > details")];
  const opened = groups.map((group) => group.open);

  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, index) => {
      const fits = words.every((word) => texts[index].includes(word)) &&
        choices.every((choice) => !choice.value || row.cells[choice.dataset.column].textContent === choice.value);
      row.hidden = !fits;
      shown += fits;
    });
    groups.forEach((group, index) => {
      const some = group.querySelector("tbody tr:not([hidden])") !== null;
      group.hidden = !some;
      group.open = words.length ? some : opened[index];
    });
    counter.value = (shown === rows.length ? "" : shown + " of ") + rows.length + " " + counter.dataset.counter;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  if (search.value || choices.some((choice) => choice.value)) apply();  // a page that was reloaded keeps its fields
}

// On paper nothing can be opened.
const closed = [];
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    closed.push(details);
  }
});
addEventListener("afterprint", () => {
  for (const details of closed.splice(0)) details.open = false;
});

// A link to a group opens it.
const openTarget = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
};
addEventListener("hashchange", openTarget);
openTarget();
