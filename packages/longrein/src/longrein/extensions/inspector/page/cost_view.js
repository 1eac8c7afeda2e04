// The cache and the money: read, written and missed tokens, and the price of each request.

class CostView {
  static id = "cost";
  static label = "Cache and cost";

  constructor(model) {
    this.model = model;
    this.cache = new RequestChart(this.cacheOptions());
    this.price = new RequestChart(this.priceOptions());
    this.sum = new RequestChart(this.sumOptions());
    this.summary = element("div");
    this.paid = element("div");
    this.tables = element("div");
    this.node = element("section", {},
      element("h2", {}, "The cache and the cost"), this.summary, this.paid, this.cache.node, this.price.node, this.sum.node,
      this.tables);
    this.fill();
  }

  charts() {
    return [this.cache, this.price, this.sum];
  }

  cacheOptions() {
    const { requests } = this.model;
    const fresh = requests.map((request) => Math.max(0, request.input + request.cache_write - request.missed));
    return {
      ...this.common("Input tokens of each request: read from the cache, new, or missed", requests),
      stacks: [
        { key: "read", label: "read from the cache", color: "read", values: requests.map((request) => request.cache_read) },
        { key: "new", label: "new (written to the cache or not)", color: "written", values: fresh },
        { key: "missed", label: "missed: sent before, paid again", color: "missed", values: requests.map((request) => request.missed) },
      ],
      format: compact,
    };
  }

  priceOptions() {
    const { requests } = this.model;
    return {
      ...this.common("Money of each request", requests),
      stacks: [{ key: "usd", label: "money of the request", color: "money", values: requests.map((request) => request.usd) }],
      format: money,
    };
  }

  sumOptions() {
    const { requests } = this.model;
    return {
      ...this.common("Money in sum", requests),
      stacks: [],
      lines: [{ label: "this session", color: "money", values: requests.map((request) => request.total_usd) }],
      format: money,
    };
  }

  common(label, requests) {
    return {
      label,
      xs: requests.map((request) => request.n),
      lines: [],
      marks: requests.flatMap((request, index) => (request.break ? [{ index, color: "break" }] : [])),
      describe: (index) => this.describe(requests[index]),
      open: (index) => openEntry(requests[index]?.seq),
    };
  }

  describe(request) {
    const sent = request.input + request.cache_read + request.cache_write;
    return [
      ["read", `${count(request.cache_read)} (${percent(request.cache_read / Math.max(1, sent))})`],
      ["written", count(request.cache_write)],
      ["uncached", count(request.input)],
      ["missed", count(request.missed)],
      ["output", count(request.output) + (request.reasoning ? `, of it reasoning ${count(request.reasoning)}` : "")],
      ["money", money(request.usd)],
      ["in sum", money(request.total_usd)],
      ["counts", request.estimated ? "estimated: the provider named none" : ""],
      ["break", request.break ? `${breakWords(request.break)}, ${money(request.break.price_usd)}` : ""],
    ];
  }

  fill() {
    const totals = this.model.totals();
    this.summary.replaceChildren(termList([
      ["Money", money(totals.usd)],
      ["Read from the cache", `${compact(totals.read)} tokens, ${percent(totals.readShare)} of the input`],
      ["Written", `${compact(totals.write)} tokens`],
      ["Uncached input", `${compact(totals.input)} tokens`],
      ["Missed", `${compact(totals.missed)} tokens`],
      ["Output", `${compact(totals.output)} tokens`],
    ], { class: "figures" }), element("p", { class: "hint" }, this.model.pricesNote));
    this.paid.replaceChildren(this.moneyTable());
    this.tables.replaceChildren(numbersTable("cache and money of each request", () => this.requestTable()));
  }

  moneyTable() {
    const column = (label, key) => ({ label, value: (row) => row[key], cell: (row) => count(row[key]), number: true });
    return sortableTable("Money paid, by model and purpose", [
      { label: "Purpose", value: (row) => row.purpose },
      { label: "Model", value: (row) => row.model },
      column("Requests", "requests"), column("Input", "input"), column("From the cache", "cache_read"), column("Output", "output"),
      { label: "Money", value: (row) => row.usd, cell: (row) => money(row.usd), number: true },
    ], this.model.money, "Nothing was paid yet.");
  }

  requestTable() {
    const column = (label, key, show = count) => ({ label, value: (request) => request[key], cell: (request) => show(request[key]), number: true });
    return sortableTable("Cache and money by request", [
      { label: "Request", value: (request) => request.n, cell: (request) => [String(request.n), " ", entryLink(request.seq)], number: true },
      column("Read", "cache_read"), column("Written", "cache_write"), column("Uncached", "input"), column("Missed", "missed"),
      column("Output", "output"), column("Money", "usd", money), column("In sum", "total_usd", money),
      column("Time", "duration_us", duration),
    ], this.model.requests, "No request yet.");
  }

  update() {
    this.cache.setOptions(this.cacheOptions());
    this.price.setOptions(this.priceOptions());
    this.sum.setOptions(this.sumOptions());
    this.fill();
  }

  redraw() {
    for (const chart of this.charts()) chart.redraw();
  }

  destroy() {
    for (const chart of this.charts()) chart.destroy();
  }
}
