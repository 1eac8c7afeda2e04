// The transcript of all agents, by time: search, diffs, and long texts folded. Only the rows in sight are in the page.

const FOLDED_LINES = 8;
const FOLDED_CHARS = 900;
const DIFF_LINES = 14;
const SEARCH_DELAY_MS = 120;

class TranscriptView {
  static id = "transcript";
  static label = "Transcript";

  constructor(model) {
    this.model = model;
    this.open = new Set();
    this.found = null;
    this.search = element("input", { type: "search", id: "transcript-search", placeholder: "Search (/)", autocomplete: "off", on: {
      input: () => this.searchSoon(),
      keydown: (event) => this.onSearchKey(event),
    } });
    this.kind = this.choice("Kind", (row) => row.kind);
    this.agent = this.choice("Agent", (row) => row.agent || "main");
    this.status = element("span", { role: "status", class: "hint" });
    this.list = new VirtualList({
      label: "Transcript", estimate: 90,
      build: (index) => this.buildRow(this.rowIndex(index)),
      activate: (index) => this.toggle(this.rowIndex(index)),
    });
    const { leftOut } = model;
    const note = leftOut.bodies ? `${counted(leftOut.bodies, "text")} above ${bytes(leftOut.above_bytes)} shortened by ${bytes(leftOut.bytes)} in all; \`longrein export\` has them whole.` : "";
    const agents = leftOut.subagents ? `The logs of ${counted(leftOut.subagents, "subagent")} are not in this page.` : "";
    this.node = element("section", {}, element("h2", {}, "Transcript"),
      element("p", { class: "tools" }, element("label", { for: "transcript-search" }, "Search"), this.search, this.kind.node, this.agent.node, this.status),
      note || agents ? element("p", { class: "warning" }, [note, agents].filter(Boolean).join(" ")) : null, this.list.node);
    this.apply();
  }

  /** A choice among the values of a column. */
  choice(label, value) {
    const values = [...new Set(this.model.transcript.map(value))].sort();
    const select = element("select", { on: { change: () => this.apply() } },
      element("option", { value: "" }, "all"), values.map((one) => element("option", { value: one }, one)));
    return { node: element("label", {}, label, select), select, value };
  }

  rowIndex(index) {
    return this.found ? this.found[index] : index;
  }

  searchSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.apply(), SEARCH_DELAY_MS);
  }

  /** Show the rows that match the search and the choices. */
  apply(keep = false) {
    const words = this.search.value.trim();
    const choices = [this.kind, this.agent].filter((choice) => choice.select.value);
    this.pattern = words ? new RegExp(words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu") : null;
    this.found = null;
    if (words || choices.length) {
      this.found = [];
      this.model.transcript.forEach((row, at) => {
        if (choices.every((choice) => choice.value(row) === choice.select.value) && this.matches(row)) this.found.push(at);
      });
    }
    const all = this.model.transcript.length;
    this.status.textContent = this.found ? `${count(this.found.length)} of ${count(all)} rows` : counted(all, "row");
    this.list.setLength(this.found ? this.found.length : all, keep);
  }

  matches(row) {
    if (!this.pattern) return true;
    return this.hasWords(row.text) || this.hasWords(row.title) || row.diff.some((line) => this.hasWords(line.text));
  }

  /** True if a text has what is searched. */
  hasWords(text) {
    if (!this.pattern) return false;
    this.pattern.lastIndex = 0;
    return this.pattern.test(text);
  }

  onSearchKey(event) {
    if (event.key === "Enter") {
      clearTimeout(this.timer);
      this.apply();
    } else if (event.key === "ArrowDown") this.list.show(this.list.current, { focus: true });
    else if (event.key === "Escape" && this.search.value) this.clear();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  clear() {
    this.search.value = this.kind.select.value = this.agent.select.value = "";
    this.apply();
  }

  toggle(at) {
    if (!this.open.delete(at)) this.open.add(at);
    this.list.refresh(this.found ? this.found.indexOf(at) : at);
  }

  buildRow(at) {
    const row = this.model.transcript[at];
    const name = row.agent ? `${row.agent} r${row.seq}` : `r${row.seq}`;
    const state = row.status && row.status !== "ok" ? element("b", { class: "state" }, row.status) : null;
    const failed = row.kind === "failure" || (row.kind === "result" && state !== null);
    const life = row.handle && !row.agent && this.model.itemOfHandle.has(row.handle)
      ? element("a", { href: `#items/${encodeURIComponent(row.handle)}` }, "life of this item") : null;
    const size = row.bytes > 2000 ? element("span", {}, bytes(row.bytes)) : null;
    const facts = [
      element("span", { class: "kind" }, row.kind), element("span", {}, row.author),
      element("a", { href: `#transcript/${encodeURIComponent(row.agent)}:${row.seq}` }, name),
      element("time", {}, dateTime(row.at_us)), state, row.elapsed_ms ? element("span", {}, duration(row.elapsed_ms * 1000)) : null, size, life,
      row.result_of ? element("span", {}, "of ", entryLink(row.result_of, row.agent)) : null,
    ];
    const body = element("div", { class: "body" }, row.title ? element("p", { class: "title" }, this.marked(row.title)) : null, this.diffOf(row, at), this.textOf(row, at));
    if (row.images) body.append(element("p", { class: "hint" }, `${row.images === 1 ? "1 picture or document" : `${count(row.images)} pictures or documents`} not shown here`));
    const depth = row.agent ? row.agent.split(".").length : 0;
    return element("div", { class: `row author-${row.author} depth-${Math.min(4, depth)} ${failed ? "failed" : ""}`, "aria-label": visible(`${row.kind} by ${row.author}, ${name}`) },
      element("p", { class: "facts" }, facts), body);
  }

  textOf(row, at) {
    if (!row.text || (row.diff.length && !this.open.has(at) && !this.hasWords(row.text))) return null;
    const isOpen = this.open.has(at);
    const shown = isOpen ? row.text : this.excerpt(row.text);
    const parts = [textBlock("", {})];
    append(parts[0], [this.marked(shown)]);
    const hidden = row.text.length - shown.length;
    if (hidden > 0 || isOpen) parts.push(this.foldButton(at, isOpen ? "Show less" : `Show all (${extent(row.text)})`, isOpen));
    if (row.left_out) parts.push(element("p", { class: "hint" }, `${bytes(row.left_out)} left out in the middle`));
    return parts;
  }

  /** What is shown of a folded text: its beginning, or the place of the first match. */
  excerpt(text) {
    const start = beginning(text);
    if (!this.pattern || start.length === text.length) return start;
    this.pattern.lastIndex = 0;
    const match = this.pattern.exec(text);
    if (!match || match.index + match[0].length <= start.length) return start;
    const from = Math.max(0, text.lastIndexOf("\n", match.index - 100));
    return "…" + text.slice(Math.max(from, match.index - 300), match.index + FOLDED_CHARS / 2);
  }

  diffOf(row, at) {
    if (!row.diff.length) return null;
    const isOpen = this.open.has(at);
    const lines = isOpen ? row.diff : row.diff.slice(0, DIFF_LINES);
    const names = { "+": "added", "-": "removed", "@": "heading", " ": "same" };
    const shown = textBlock("", { class: "diff" });
    for (const line of lines) {
      shown.append(element("span", { class: names[line.sign] ?? "same" }, line.sign === "@" ? "" : line.sign, this.marked(line.text), "\n"));
    }
    const hidden = row.diff.length - lines.length;
    const needsButton = hidden > 0 || row.text;
    return [shown, needsButton && !isOpen ? this.foldButton(at, hidden > 0 ? `Show all (${counted(row.diff.length, "line")})` : "Show the text", false) : null];
  }

  foldButton(at, label, isOpen) {
    return element("button", { type: "button", class: "fold", "aria-expanded": isOpen, on: { click: () => this.toggle(at) } }, label);
  }

  /** Text with the places that match the search marked. */
  marked(text) {
    if (!this.pattern) return [text];
    const parts = [];
    let end = 0;
    this.pattern.lastIndex = 0;
    for (const match of text.matchAll(this.pattern)) {
      parts.push(text.slice(end, match.index), element("mark", {}, match[0]));
      end = match.index + match[0].length;
    }
    return [...parts, text.slice(end)];
  }

  /** Show an entry, named as `agent:seq`. The search is cleared if it hides the entry. */
  show(target) {
    const [, agent, seq] = /^(.*):(\d+)$/.exec(target) ?? [];
    const at = seq === undefined ? -1 : this.model.rowAt(Number(seq), agent);
    if (at < 0) return announce("This entry is not in the transcript.");
    if (this.found && !this.found.includes(at)) this.clear();
    this.list.show(this.found ? this.found.indexOf(at) : at, { align: "top", focus: true });
  }

  focusSearch() {
    this.search.focus();
    this.search.select();
  }

  update() {
    const follow = this.list.isAtEnd;
    this.apply(true);
    if (follow) this.list.show(this.list.length - 1);
  }

  redraw() {}

  destroy() {
    clearTimeout(this.timer);
    this.list.destroy();
  }
}

/** The first lines of a text. */
function beginning(text) {
  let end = -1;
  for (let line = 0; line < FOLDED_LINES; line += 1) {
    end = text.indexOf("\n", end + 1);
    if (end < 0) break;
  }
  const cut = Math.min(end < 0 ? text.length : end, FOLDED_CHARS);
  return text.length - cut < 80 && end < 0 ? text : text.slice(0, cut);
}

/** How much a text is: lines, or bytes if it is one long line. */
function extent(text) {
  const lines = text.split("\n").length;
  return lines > 1 ? counted(lines, "line") : `${count(text.length)} characters`;
}
