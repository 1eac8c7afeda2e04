// The session's data: fields that were left out get their defaults, and rows are found by their entry.

const MODULES = ["system", "tools", "instructions", "summary", "user", "assistant", "thinking", "calls", "results", "reminders"];

const REQUEST = {
  duration_us: 0, first_token_us: 0, input: 0, cache_read: 0, cache_write: 0, missed: 0, output: 0, reasoning: 0, usd: 0,
  total_usd: 0, purpose: "turn", status: "ok", message: "", stop: "", estimated: false, break: null,
};
const ITEM = { tool: "", begins: "", shown: false, usd: 0, next_goes: false, lines: [], stages: [] };
const STAGE = { tokens: 0, text: "", why: "", left_out: 0 };
const BREAK = { detail: "", seq: 0, price_usd: 0, tokens_before: 0, tokens_after: 0 };
const ROW = {
  text: "", agent: "", handle: "", title: "", diff: [], call: "", result_of: 0, status: "", elapsed_ms: 0, bytes: 0,
  left_out: 0, images: 0,
};
const SPENT = { usd: 0, tokens: 0, requests: 0, subagents: 0, seconds: 0 };
const SUBAGENT = { parent: "", seq: 0, ended_us: 0, model: "", task: "", report: "", message: "", worktree: "", files: [] };

function completeRequest(given) {
  const request = { ...REQUEST, ...given };
  request.tokens = { ...Object.fromEntries(MODULES.map((name) => [name, 0])), ...given.tokens };
  request.total = MODULES.reduce((sum, name) => sum + request.tokens[name], 0);
  request.break = given.break ? { ...BREAK, ...given.break } : null;
  return request;
}

function completeItem(given) {
  return { ...ITEM, ...given, stages: (given.stages ?? []).map((stage) => ({ ...STAGE, ...stage })) };
}

function completeLane(given) {
  const spans = (given.spans ?? []).map((span) => ({ label: "", status: "ok", ...span }));
  return { parent: "", agent: "", status: "", ...given, spans };
}

function completeSubagent(given) {
  return { ...SUBAGENT, ...given, limit: { ...SPENT, ...given.limit }, spent: { ...SPENT, ...given.spent } };
}

/** One session: the lists of the document, complete, and tables to look things up. */
class SessionModel {
  constructor(given) {
    this.session = { branch: "", open: false, entries: 0, ...given.session };
    this.windowTokens = given.window_tokens ?? 0;
    this.usableTokens = given.usable_tokens ?? 0;
    this.watermarks = given.watermarks ?? [];
    this.pricesNote = given.prices_note ?? "";
    this.money = given.money ?? [];
    this.leftOut = { bodies: 0, bytes: 0, above_bytes: 0, subagents: 0, ...given.left_out };
    this.live = given.live ?? "";
    this.requests = (given.requests ?? []).map(completeRequest);
    this.lanes = (given.lanes ?? []).map(completeLane);
    this.items = (given.items ?? []).map(completeItem);
    this.transcript = (given.transcript ?? []).map((row) => ({ ...ROW, ...row }));
    this.subagents = (given.subagents ?? []).map(completeSubagent);
    this.files = given.files ?? [];
    this.index();
  }

  index() {
    this.rowOfEntry = new Map();
    this.rowOfHandle = new Map();
    this.transcript.forEach((row, at) => this.indexRow(row, at));
    this.itemOfHandle = new Map(this.items.map((item) => [item.handle, item]));
  }

  indexRow(row, at) {
    const key = `${row.agent}:${row.seq}`;
    if (!this.rowOfEntry.has(key)) this.rowOfEntry.set(key, at);
    if (row.handle && !row.agent && !this.rowOfHandle.has(row.handle)) this.rowOfHandle.set(row.handle, at);
  }

  /** Apply an update of the server: rows are appended, other values replace those with the same key. */
  merge(update) {
    this.session = { ...this.session, ...update.session };
    for (const given of update.transcript ?? []) {
      const row = { ...ROW, ...given };
      this.indexRow(row, this.transcript.push(row) - 1);
    }
    replaceByKey(this.requests, update.requests, "n", completeRequest);
    replaceByKey(this.lanes, update.lanes, "id", completeLane);
    replaceByKey(this.items, update.items, "handle", completeItem);
    replaceByKey(this.subagents, update.subagents, "id", completeSubagent);
    replaceByKey(this.files, update.files, "path", (file) => file);
    if (update.money?.length) this.money = update.money;
    this.itemOfHandle = new Map(this.items.map((item) => [item.handle, item]));
  }

  /**
   * Index of the row of an entry. An entry such as `Asked` has no row of its own: then the next row of the same agent
   * is meant. -1 if there is none.
   */
  rowAt(seq, agent = "") {
    const exact = this.rowOfEntry.get(`${agent}:${seq}`);
    if (exact !== undefined) return exact;
    return this.transcript.findIndex((row) => row.agent === agent && row.seq >= seq);
  }

  /** The text that a stage showed: its own, or the whole text that the transcript has. */
  stageText(item, stage) {
    if (stage.text) return { text: stage.text, leftOut: stage.left_out };
    const row = this.transcript[this.rowOfHandle.get(item.handle)];
    const isWhole = ["full", "recalled", "restored"].includes(stage.form);
    return isWhole && row ? { text: row.text, leftOut: row.left_out } : { text: "", leftOut: 0 };
  }

  get title() {
    return this.session.title || this.session.id;
  }

  /** Terms and values of the header. */
  facts() {
    const { session, requests, leftOut } = this;
    const totals = this.totals();
    return [
      ["Session", session.id], ["Model", session.model], ["Folder", session.cwd], ["Branch", session.branch],
      ["Started", session.started_us ? dateTime(session.started_us) : ""], ["Time", duration(session.ended_us - session.started_us)],
      ["Requests", count(requests.length)], ["Largest", `${compact(totals.peak)} of ${compact(this.usableTokens)} tokens`],
      ["Money", money(totals.usd)], ["From the cache", percent(totals.readShare)], ["Breaks", count(totals.breaks)],
      ["Left out", leftOut.bytes ? bytes(leftOut.bytes) : ""],
    ];
  }

  breaks() {
    return this.requests.filter((request) => request.break);
  }

  /** Breaks of the same cause and words as one row each, in the order of their first request. */
  breakGroups() {
    const groups = new Map();
    for (const request of this.breaks()) {
      const key = `${request.break.cause} ${request.break.detail}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(request);
    }
    return [...groups.values()].map((requests) => ({
      requests, first: requests[0], cause: requests[0].break,
      usd: requests.reduce((sum, request) => sum + request.break.price_usd, 0),
    }));
  }

  /** Sums over the requests of the main agent. */
  totals() {
    const sum = (key) => this.requests.reduce((total, request) => total + request[key], 0);
    const [input, read, write, output] = ["input", "cache_read", "cache_write", "output"].map(sum);
    return {
      requests: this.requests.length,
      peak: this.requests.reduce((peak, request) => Math.max(peak, request.total), 0),
      input, read, write, output,
      missed: sum("missed"),
      usd: sum("usd"),
      readShare: read / Math.max(1, input + read + write),
      breaks: this.breaks().length,
      breakUsd: this.breaks().reduce((total, request) => total + request.break.price_usd, 0),
    };
  }
}

function replaceByKey(list, given, key, complete) {
  for (const raw of given ?? []) {
    const value = complete(raw);
    const at = list.findLastIndex((one) => one[key] === value[key]);
    if (at < 0) list.push(value);
    else list[at] = value;
  }
}
