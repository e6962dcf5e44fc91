"use strict";
// Loaded before the page is painted, so that a chosen theme does not flash.
document.documentElement.dataset.theme = localStorage.getItem("trimtab-theme") || "auto";
