// Two sessions side by side.

class CompareView {
  static id = "compare";
  static label = "Comparison";

  constructor(model, sides) {
    this.sides = sides;
    this.names = sides.map((side, at) => `${"AB"[at]}: ${side.session.title || side.session.id}`);
    this.context = new RequestChart(this.chartOptions("Tokens of each request", (request) => request.total, compact));
    this.cost = new RequestChart(this.chartOptions("Money in sum", (request) => request.total_usd, money));
    this.node = element("section", {}, element("h2", {}, "Side by side"), this.table(), this.context.node, this.cost.node,
      numbersTable("breaks of both", () => this.breakTable()));
  }

  chartOptions(label, value, format) {
    const length = Math.max(...this.sides.map((side) => side.requests.length));
    const values = this.sides.map((side) => Array.from({ length }, (_, at) => (side.requests[at] ? value(side.requests[at]) : null)));
    return {
      label, format, stacks: [],
      xs: Array.from({ length }, (_, at) => at + 1),
      lines: this.sides.map((_, at) => ({ label: this.names[at], color: ["series-1", "series-2"][at], values: values[at], dash: at ? [8, 4] : undefined })),
      describe: (index) => this.names.map((name, at) => [name, values[at][index] === null ? "ended" : format(values[at][index])]),
    };
  }

  table() {
    const totals = this.sides.map((side) => side.totals());
    const stages = (side, forms) => side.items.reduce((sum, item) => sum + item.stages.filter((stage) => forms.includes(stage.form)).length, 0);
    const span = (side) => side.session.ended_us - side.session.started_us;
    const hasItems = this.sides.every((side) => side.items.length);
    const rows = [
      ["Model", (side) => side.session.model, null],
      ["Requests", (_, sum) => sum.requests, count],
      ["Largest request, tokens", (_, sum) => sum.peak, count],
      ["Input from the cache, tokens", (_, sum) => sum.read, count],
      ["Written to the cache, tokens", (_, sum) => sum.write, count],
      ["Uncached input, tokens", (_, sum) => sum.input, count],
      ["Missed, tokens", (_, sum) => sum.missed, count],
      ["Share read from the cache", (_, sum) => sum.readShare, percent],
      ["Output, tokens", (_, sum) => sum.output, count],
      ["Money, paid", (_, sum) => sum.usd, money],
      ["Breaks", (_, sum) => sum.breaks, count],
      ["Price of the breaks", (_, sum) => sum.breakUsd, money],
      ["Time from first to last entry", span, duration],
      ...(hasItems ? [
        ["Items shortened or cleared", (side) => stages(side, ["trimmed", "placeholder", "folded"]), count],
        ["Recalls", (side) => stages(side, ["recalled"]), count],
      ] : []),
    ];
    const lines = rows.map(([label, value, show]) => {
      const [a, b] = this.sides.map((side, at) => value(side, totals[at]));
      const cells = show ? [show(a), show(b), difference(a, b, show)] : [a, b, a === b ? "same" : "differs"];
      return element("tr", {}, element("th", { scope: "row" }, label), cells.map((cell) => element("td", { class: "number" }, cell)));
    });
    const head = element("tr", {}, ["Figure", ...this.names, "B against A"].map((label) => element("th", { scope: "col" }, label)));
    return element("div", { class: "table" }, element("table", {}, element("caption", {}, "Figures of both"), element("thead", {}, head), element("tbody", {}, lines)));
  }

  breakTable() {
    const rows = this.sides.flatMap((side, at) => side.breaks().map((request) => ({ side: "AB"[at], request })));
    return sortableTable("Breaks of both", [
      { label: "Side", value: (row) => row.side },
      { label: "Request", value: (row) => row.request.n, number: true },
      { label: "Cause", value: (row) => breakWords(row.request.break) },
      { label: "Price", value: (row) => row.request.break.price_usd, cell: (row) => money(row.request.break.price_usd), number: true },
    ], rows, "Neither has a break.");
  }

  update() {}

  redraw() {
    this.context.redraw();
    this.cost.redraw();
  }

  destroy() {
    this.context.destroy();
    this.cost.destroy();
  }
}

/** "+1,234 (+5.0 %)" */
function difference(a, b, show) {
  if (a === b) return "same";
  const share = a && show !== percent ? ` (${b > a ? "+" : "−"}${percent(Math.abs(b / a - 1))})` : "";
  return `${b > a ? "+" : "−"}${show(Math.abs(b - a))}${share}`;
}
