// The context over time: a stacked bar by module for each request, the window, the watermarks and the breaks.

const BREAK_CAUSES = {
  cleared: "old items were shortened",
  summarised: "a summary took the place of a span",
  prefix: "the system text, the tools or the static context changed",
  rewound: "the conversation was rewound",
  restored: "content was brought back",
  expired: "the cache's lifetime was over",
  provider: "the provider did not read what it had been sent",
};

const BREAK_LINKS_MAX = 8;

function breakWords(found) {
  return found.cause + (found.detail ? ` (${found.detail})` : "");
}

/** Link to an entry of the transcript. */
function entryLink(seq, agent = "") {
  if (!seq) return "";
  return element("a", { href: `#transcript/${encodeURIComponent(agent)}:${seq}` }, agent ? `${agent} r${seq}` : `r${seq}`);
}

class ContextView {
  static id = "context";
  static label = "Context";

  constructor(model) {
    this.model = model;
    this.chart = new RequestChart(this.chartOptions());
    this.fit = element("input", { type: "checkbox", id: "whole-window", checked: this.showsWindow() });
    this.fit.addEventListener("change", () => this.chart.setOptions(this.chartOptions()));
    const whole = element("label", { for: "whole-window" }, this.fit, "Show the whole window");
    this.details = element("div");
    this.node = element("section", {}, element("h2", {}, "The context over time"), element("p", {}, whole), this.chart.node, this.details);
    this.chart.setOptions(this.chartOptions());
    this.fillDetails();
  }

  /** The window is shown from the beginning if the session has used a quarter of it. */
  showsWindow() {
    return this.model.totals().peak >= this.model.windowTokens / 4;
  }

  chartOptions() {
    const { model } = this;
    const xs = model.requests.map((request) => request.n);
    const flat = (value) => xs.map(() => value);
    const top = this.fit?.checked ? model.windowTokens : 0;
    const peak = Math.max(top, model.totals().peak);
    const limits = [
      { label: `window ${compact(model.windowTokens)}`, color: "window", value: model.windowTokens },
      { label: `usable ${compact(model.usableTokens)}`, color: "usable", value: model.usableTokens, dash: [8, 4] },
      ...model.watermarks.map((mark) => ({ label: `watermark ${compact(mark)}`, color: "watermark", value: mark, dash: [3, 4] })),
    ];
    return {
      label: "Tokens of each request by module",
      xs,
      stacks: MODULES.map((name) => ({ key: name, label: name, color: name, values: model.requests.map((request) => request.tokens[name]) })),
      lines: limits.filter((limit) => limit.value && limit.value <= peak * 1.05).map((limit) => ({ ...limit, values: flat(limit.value) })),
      marks: model.requests.flatMap((request, index) => (request.break ? [{ index, color: "break" }] : [])),
      top,
      format: compact,
      describe: (index) => this.describe(index),
      open: (index) => openEntry(model.requests[index]?.seq),
    };
  }

  describe(index) {
    const request = this.model.requests[index];
    const share = this.model.usableTokens ? ` (${percent(request.total / this.model.usableTokens)} of the usable window)` : "";
    return [
      ["total", count(request.total) + share],
      ...MODULES.filter((name) => request.tokens[name]).map((name) => [name, count(request.tokens[name])]),
      ["purpose", request.purpose === "turn" ? "" : request.purpose],
      ["state", request.status === "ok" ? "" : `${request.status} ${request.message}`.trim()],
      ["break", request.break ? `${breakWords(request.break)}, ${money(request.break.price_usd)}` : ""],
    ];
  }

  fillDetails() {
    const { model } = this;
    const totals = model.totals();
    const heading = element("h3", {}, `Breaks of the cache: ${count(totals.breaks)}, ${money(totals.breakUsd)} in sum`);
    const times = (group) => (group.requests.length > 1 ? ` × ${count(group.requests.length)}` : "");
    const entries = (group) => group.requests.slice(0, BREAK_LINKS_MAX).flatMap((request) => [entryLink(request.break.seq || request.seq), " "]);
    const rest = (group) => (group.requests.length > BREAK_LINKS_MAX ? "…" : "");
    const range = (group, key) => {
      const values = group.requests.map((request) => request.break[key]);
      const [least, most] = [Math.min(...values), Math.max(...values)];
      return least === most ? count(most) : `${count(least)} to ${count(most)}`;
    };
    const table = sortableTable("Breaks, equal ones in one row", [
      { label: "First request", value: (group) => group.first.n, number: true },
      { label: "Cause", value: (group) => breakWords(group.cause), cell: (group) => [element("b", {}, breakWords(group.cause) + times(group)), " ", BREAK_CAUSES[group.cause.cause] ?? ""] },
      { label: "Price in sum", value: (group) => group.usd, cell: (group) => money(group.usd), number: true },
      { label: "Tokens before", value: (group) => group.cause.tokens_before, cell: (group) => range(group, "tokens_before"), number: true },
      { label: "Tokens after", value: (group) => group.cause.tokens_after, cell: (group) => range(group, "tokens_after"), number: true },
      { label: "Entries", value: (group) => group.first.break.seq || group.first.seq, cell: (group) => [...entries(group), rest(group)] },
    ], model.breakGroups(), "No break: everything that was sent could be read from the cache.");
    const numbers = numbersTable("tokens of each request by module", () => sortableTable("Tokens by module", [
      { label: "Request", value: (request) => request.n, cell: (request) => [String(request.n), " ", entryLink(request.seq)], number: true },
      { label: "total", value: (request) => request.total, cell: (request) => count(request.total), number: true },
      ...MODULES.map((name) => ({ label: name, value: (request) => request.tokens[name], cell: (request) => count(request.tokens[name]), number: true })),
    ], model.requests, "No request yet."));
    this.details.replaceChildren(heading, table, numbers);
  }

  update() {
    this.chart.setOptions(this.chartOptions());
    this.fillDetails();
  }

  redraw() {
    this.chart.redraw();
  }

  destroy() {
    this.chart.destroy();
  }
}
