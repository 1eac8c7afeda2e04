// The tree of subagents with their budgets.

const BUDGETS = [["usd", "money", money], ["tokens", "tokens", count], ["requests", "requests", count], ["subagents", "subagents", count], ["seconds", "time", (seconds) => duration(seconds * 1e6)]];

class SubagentView {
  static id = "subagents";
  static label = "Subagents";

  constructor(model) {
    this.model = model;
    this.node = element("section");
    this.update();
  }

  update() {
    const { subagents } = this.model;
    const known = new Set(subagents.map((one) => one.id));
    const roots = subagents.filter((one) => !known.has(one.parent));
    const total = roots.reduce((sum, one) => sum + one.spent.usd, 0);
    const title = element("h2", {}, "Subagents and their budgets");
    if (!subagents.length) return this.node.replaceChildren(title, element("p", { class: "empty" }, "This session started no subagent."));
    const children = (id) => subagents.filter((one) => one.parent === id);
    const branch = (list) => element("ul", { class: "tree" }, list.map((one) => element("li", {}, this.card(one), children(one.id).length ? branch(children(one.id)) : null)));
    this.node.replaceChildren(title, element("p", {}, `${counted(subagents.length, "subagent")}, ${money(total)} in sum.`), branch(roots));
  }

  card(one) {
    const time = one.ended_us ? duration(one.ended_us - one.started_us) : "";
    return element("article", { class: "card", "aria-label": visible(`Subagent ${one.id}`) },
      element("h3", {}, one.id, " ", element("span", { class: `chip state-${one.state}` }, one.state), " ", one.description),
      element("p", { class: "facts" }, [one.kind, one.model, time].filter(Boolean).map((word) => element("span", {}, word)),
        element("span", {}, "started at ", entryLink(one.seq, one.parent)), this.firstRow(one)),
      one.message ? element("p", { class: "warning" }, one.message) : null,
      element("ul", { class: "budgets" }, BUDGETS.map((budget) => this.budget(one, ...budget)).filter(Boolean)),
      one.worktree ? element("p", { class: "hint" }, `worktree ${one.worktree}`) : null,
      one.task ? disclosure("Task", () => textBlock(one.task)) : null,
      one.report ? disclosure("Report", () => textBlock(one.report)) : null,
      one.files.length ? disclosure(`${counted(one.files.length, "file")} changed`, () => element("ul", {}, one.files.map((path) => element("li", {}, path)))) : null);
  }

  firstRow(one) {
    const row = this.model.transcript.find((each) => each.agent === one.id);
    return row ? element("a", { href: `#transcript/${encodeURIComponent(one.id)}:${row.seq}` }, "its transcript") : null;
  }

  budget(one, key, label, show) {
    const [spent, limit] = [one.spent[key], one.limit[key]];
    if (!spent && !limit) return null;
    const words = limit ? `${label}: ${show(spent)} of ${show(limit)}` : `${label}: ${show(spent)}, no limit`;
    const meter = limit ? element("meter", { min: 0, max: limit, value: Math.min(spent, limit), high: 0.9 * limit, optimum: 0, "aria-label": words }) : null;
    return element("li", {}, words, " ", meter);
  }

  redraw() {}

  destroy() {}
}
