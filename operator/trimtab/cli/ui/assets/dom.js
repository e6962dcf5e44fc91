// Builds elements. Every text becomes a text node: names and messages in a cluster are chosen by tenants.

const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Replaces control characters and characters that reorder text. */
export const plain = (text) => String(text).replace(CONTROLS, "\ufffd");

/** Creates an element: h("p", {class: "note"}, "text", child). Properties that begin with "on" are listeners. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : plain(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === "") continue;
    element.append(child instanceof Node ? child : plain(child));
  }
  return element;
}

export const $ = (id) => document.getElementById(id);
export const number = (value) => Number(value).toLocaleString("en");
export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

/** The code of a reason. Its sentence is the message next to it. */
export const code = (reason) => (reason ? h("code", { class: "reason" }, reason) : "");

// --- times: relative, and absolute on hover ------------------------------------------------------------------------

let offset = 0;

/** Sets the clock of the server, which differs from the browser's if the port is forwarded. */
export function setClock(time) {
  offset = Date.parse(time) - Date.now();
}

export function relative(at) {
  const seconds = Math.round((Date.parse(at) - Date.now() - offset) / 1000);
  const age = Math.abs(seconds);
  const text = age < 60 ? `${age} s` : age < 5400 ? `${Math.round(age / 60)} min` : age < 172800 ? `${Math.round(age / 3600)} h` : `${Math.round(age / 86400)} d`;
  return seconds > 0 ? `in ${text}` : age < 2 ? "now" : `${text} ago`;
}

export const time = (at) => (at ? h("time", { datetime: at, title: absolute(at) }, relative(at)) : "");

const absolute = (at) => `${new Date(at).toLocaleString()} (${at})`;

setInterval(() => {
  for (const each of document.querySelectorAll("time")) each.textContent = relative(each.dateTime);
}, 5000);

// --- names of objects, which open their explanation ----------------------------------------------------------------

/** A link to the explanation of an object. The fragment makes it work with the back button and in new tabs. */
export const link = (kind, name, text = name) => (name ? h("a", { class: "object", href: `#${kind}/${encodeURI(name)}`, title: text === name ? null : name }, text) : "");
