// Files that the session read or changed, and who touched them.

const TOUCHES_SHOWN = 12;

class FileView {
  static id = "files";
  static label = "Files";

  constructor(model) {
    this.model = model;
    this.node = element("section");
    this.update();
  }

  update() {
    const { files } = this.model;
    const table = sortableTable("Files that the session read or changed", [
      { label: "File", value: (file) => file.path },
      { label: "Reads", value: (file) => file.reads, number: true, cell: (file) => count(file.reads) },
      { label: "Changes", value: (file) => file.changes, number: true, cell: (file) => count(file.changes) },
      { label: "Changed by", value: (file) => file.by.join(", ") },
      { label: "Entries", value: (file) => file.touches.length, cell: (file) => this.touches(file) },
    ], [...files].sort((a, b) => b.changes - a.changes || b.reads - a.reads), "No file was read or changed.");
    this.node.replaceChildren(element("h2", {}, "Files, and who touched them"), table);
  }

  /** Links to the entries, changes first, one line for each who did it. */
  touches(file) {
    const groups = new Map();
    for (const touch of [...file.touches].sort((a, b) => (a.kind < b.kind ? -1 : a.kind > b.kind ? 1 : 0))) {
      const name = `${touch.kind === "change" ? "changed" : "read"} by ${touch.by}: `;
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(entryLink(touch.seq, touch.agent ?? ""));
    }
    return [...groups].map(([name, links]) => {
      const [first, rest] = [links.slice(0, TOUCHES_SHOWN), links.slice(TOUCHES_SHOWN)];
      const more = rest.length ? disclosure(`${count(rest.length)} more`, () => element("div", {}, spaced(rest))) : null;
      return element("div", { class: "touches" }, name, spaced(first), more);
    });
  }

  redraw() {}

  destroy() {}
}

/** Elements with a blank after each, where a line may break. */
function spaced(elements) {
  return elements.map((one) => [one, " "]);
}
