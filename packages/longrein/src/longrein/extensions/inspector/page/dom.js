// Elements and text. Every text of a session becomes a text node: nothing here parses HTML.

/** Characters that cannot be seen or that move the cursor: the table of `longrein_context.events.escape`. */
const UNSEEN =
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const JOINER_OR_SELECTOR = /[\u200c\u200d\ufe0e\ufe0f]/;

/** Write invisible characters as `\x1b` or `\u202e`. Joiners within words of a script and emoji are kept. */
function visible(text) {
  return text.replace(UNSEEN, (char, at) => {
    if (JOINER_OR_SELECTOR.test(char) && at > 0 && text[at - 1] >= "\u0600") return char;
    const code = char.codePointAt(0);
    if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
    return code < 0x10000 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0");
  });
}

/**
 * Create an element.
 * `attributes`: `on` is a table of listeners, `class` and all others are attributes; false and null are left out.
 * `children`: elements, or strings that become text nodes.
 */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (key.startsWith("aria-") && typeof value === "boolean") {
      made.setAttribute(key, String(value));
    } else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(key, value === true ? "" : String(value));
    }
  }
  return append(made, children);
}

/** Append elements and strings, lists of them included; null and "" are left out. */
function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    parent.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
  return parent;
}

function byId(id) {
  return document.getElementById(id);
}

/** Say something to a screen reader without moving the focus. */
function announce(text) {
  byId("announcer").textContent = visible(text);
}

/** A list of terms and values; rows without a value are left out. */
function termList(rows, attributes = {}) {
  const shown = rows.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return element("dl", attributes, shown.map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value))));
}

const TABLE_PAGE = 300;

/**
 * A table whose columns sort by a click on their head.
 * `columns`: {label, value(row) for sorting, cell(row) for showing (default: value), number: true for right alignment}.
 * Rows beyond the first 300 are added by a button, so that a long table opens at once.
 */
function sortableTable(caption, columns, rows, emptyText) {
  if (!rows.length) return element("p", { class: "empty" }, emptyText);
  const body = element("tbody");
  const more = element("button", { type: "button", class: "more", on: { click: () => addRows() } });
  let sorted = rows;
  let drawn = 0;
  const addRows = () => {
    for (const row of sorted.slice(drawn, drawn + TABLE_PAGE)) {
      body.append(element("tr", {}, columns.map((column, at) => tableCell(column, row, at))));
    }
    drawn = Math.min(sorted.length, drawn + TABLE_PAGE);
    more.hidden = drawn >= sorted.length;
    more.textContent = `Show more (${count(sorted.length - drawn)} left)`;
  };
  const heads = columns.map((column) => element("th", { scope: "col", class: column.number && "number" }));
  heads.forEach((head, at) => {
    const sort = () => {
      const direction = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", direction);
      sorted = sortedBy(rows, columns[at].value, direction === "descending");
      body.replaceChildren();
      drawn = 0;
      addRows();
    };
    head.append(element("button", { type: "button", on: { click: sort } }, columns[at].label));
  });
  addRows();
  const table = element("table", {}, element("caption", {}, caption), element("thead", {}, element("tr", {}, heads)), body);
  return element("div", { class: "table" }, table, more);
}

function tableCell(column, row, at) {
  const shown = (column.cell ?? column.value)(row);
  return element(at === 0 ? "th" : "td", { scope: at === 0 && "row", class: column.number && "number" }, shown);
}

function sortedBy(rows, key, descending) {
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [left, right] = [key(a), key(b)];
    return sign * (typeof left === "string" ? left.localeCompare(right) : left - right);
  });
}

/** A text in its exact form. */
function textBlock(text, attributes = {}) {
  return element("pre", { dir: "auto", ...attributes }, text);
}

/** A part of the page that is filled when it is first opened. */
function disclosure(summary, build) {
  const made = element("details", {}, element("summary", {}, summary));
  made.addEventListener("toggle", () => made.open && made.childElementCount === 1 && append(made, [build()]), { once: false });
  return made;
}

/** The resolved value of a colour of app.css, for a canvas. */
function color(name) {
  const key = `${currentScheme()} ${name}`;
  if (!color.known.has(key)) {
    const probe = byId("announcer");
    probe.style.color = `var(--${name})`;
    color.known.set(key, getComputedStyle(probe).color);
    probe.style.color = "";
  }
  return color.known.get(key);
}
color.known = new Map();

const PREFERS_DARK = matchMedia("(prefers-color-scheme: dark)");

/** "dark" or "light", after the switch and the system's preference. */
function currentScheme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen;
  return PREFERS_DARK.matches ? "dark" : "light";
}
