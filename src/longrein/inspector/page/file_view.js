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

  touches(file) {
    const link = (touch) => element("span", { class: `touch ${touch.kind}` }, `${touch.kind} by ${touch.by} `, entryLink(touch.seq, touch.agent));
    const [first, rest] = [file.touches.slice(0, TOUCHES_SHOWN), file.touches.slice(TOUCHES_SHOWN)];
    return [spaced(first.map(link)), rest.length ? disclosure(`${count(rest.length)} more`, () => element("div", {}, spaced(rest.map(link)))) : null];
  }

  redraw() {}

  destroy() {}
}

/** Elements with a blank after each, where a line may break. */
function spaced(elements) {
  return elements.map((one) => [one, " "]);
}
