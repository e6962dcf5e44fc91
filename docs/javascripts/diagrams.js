// Loads Mermaid on pages with diagrams, before the theme would load it from a content delivery network.
if (document.querySelector(".mermaid")) {
  const script = new URL("mermaid.min.js", document.currentScript.src);
  document.write(`<script src="${script}"></script>`); // blocks, so that the theme finds Mermaid
}
