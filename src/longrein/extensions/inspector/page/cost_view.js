// The cache and the money: read, written and missed tokens, the price of each request, and other policies on this session.

// The replay of the session as it was, which the other replays are compared with.
const OWN_NAME = "longrein";
const POLICY_COLORS = ["series-1", "series-2", "series-3", "series-4", "series-5"];

class CostView {
  static id = "cost";
  static label = "Cache and cost";

  constructor(model) {
    this.model = model;
    this.cache = new RequestChart(this.cacheOptions());
    this.price = new RequestChart(this.priceOptions());
    this.sum = new RequestChart(this.sumOptions());
    this.policies = model.policies.length ? new RequestChart(this.policyOptions()) : null;
    this.summary = element("div");
    this.paid = element("div");
    this.tables = element("div");
    this.node = element("section", {},
      element("h2", {}, "The cache and the cost"), this.summary, this.paid, this.cache.node, this.price.node, this.sum.node,
      element("h3", {}, "What this session costs under plain policies, by replay"), this.policies?.node, this.tables);
    this.fill();
  }

  charts() {
    return [this.cache, this.price, this.sum, this.policies].filter(Boolean);
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

  amount(value) {
    return this.model.costUnit === "usd" ? money(value) : `${compact(value)} tokens`;
  }

  policyOptions() {
    const { policies } = this.model;
    const longest = Math.max(...policies.map((policy) => policy.cumulative.length));
    const padded = (policy) => Array.from({ length: longest }, (_, at) => policy.cumulative[at] ?? null);
    return {
      label: "Cost in sum under each policy by replay, without recalls",
      noun: "Replayed request",
      xs: Array.from({ length: longest }, (_, at) => at + 1),
      stacks: [],
      lines: policies.map((policy, at) => ({ label: policy.name, color: POLICY_COLORS[at % POLICY_COLORS.length], values: padded(policy) })),
      format: (value) => this.amount(value),
      describe: (index) => policies.map((policy) => [policy.name, this.amount(policy.cumulative[index] ?? 0)]),
    };
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
    this.tables.replaceChildren(element("p", { class: "hint" }, this.policyNote()), this.policyTable(), numbersTable("cache and money of each request", () => this.requestTable()));
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

  /** Replays compare with each other: they know no misses, no failed requests and none of the provider's counts. */
  policyNote() {
    const { costUnit, policies } = this.model;
    if (!policies.length) return "";
    const paid = costUnit === "usd" ? `${money(this.model.totals().usd)} were paid for the requests of this session. ` : "";
    return `${paid}The rows below are replays, which take each cache hit for granted: compare them with each other, not with what was paid. "${OWN_NAME}" is this session as it was.`;
  }

  policyTable() {
    const { policies } = this.model;
    const own = policies.find((policy) => policy.name === OWN_NAME);
    const against = (policy) => (own?.with_recalls ? policy.with_recalls / own.with_recalls - 1 : 0);
    return sortableTable("Policies, replayed on this session", [
      { label: "Policy", value: (policy) => policy.name },
      { label: "Cost", value: (policy) => policy.cost, cell: (policy) => this.amount(policy.cost), number: true },
      { label: "With recalls", value: (policy) => policy.with_recalls, cell: (policy) => this.amount(policy.with_recalls), number: true },
      { label: "Against longrein", value: against, cell: (policy) => (policy === own || !own ? "" : `${against(policy) > 0 ? "+" : ""}${percent(against(policy))}`), number: true },
      { label: "Recalls", value: (policy) => policy.recalls, cell: (policy) => policy.recalls.toFixed(1), number: true },
      { label: "Still shown of what was needed", value: (policy) => policy.kept, cell: (policy) => percent(policy.kept), number: true },
      { label: "Peak tokens", value: (policy) => policy.peak_tokens, cell: (policy) => count(policy.peak_tokens), number: true },
      { label: "Requests that do not fit", value: (policy) => policy.misfits, number: true, cell: (policy) => count(policy.misfits) },
    ], policies, "This session was not replayed under other policies.");
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
