// The tasks of a fleet: distributions of money, time and breaks, failures by cause, and a table of all tasks.

const FLEET_TASK = {
  cause: "", message: "", usd: 0, seconds: 0, input: 0, cache_read: 0, output: 0, attempts: 0, reward: null, session: "",
  breaks: [], missing: "",
};
const OUTCOMES = ["done", "failed", "running", "waiting"];
const ENDED_COLORS = { done: "read", failed: "missed" };
const BREAK_COLORS = {
  cleared: "series-1", summarised: "summary", prefix: "series-2", rewound: "reminders", restored: "series-3", expired: "series-5",
  provider: "missed",
};
const MESSAGES_SHOWN = 3;
const UNKNOWN = -Infinity; // sorts before every known figure

class FleetModel {
  constructor(given) {
    this.title = `Fleet ${given.fleet}`;
    this.fleet = given.fleet;
    this.startedUs = given.started_us;
    this.spentUsd = given.spent_usd ?? 0;
    this.capUsd = given.cap_usd ?? null;
    this.live = given.live ?? false;
    this.tasks = given.tasks.map((task) => ({ ...FLEET_TASK, ...task }));
    this.ended = this.tasks.filter((task) => task.attempts && task.outcome in ENDED_COLORS);
  }

  facts() {
    const outcomes = OUTCOMES.map((name) => [name, this.tasks.filter((task) => task.outcome === name).length]);
    const cap = this.capUsd === null ? "" : ` of ${money(this.capUsd)}`;
    const read = total(this.tasks, (task) => task.input);
    return [
      ["Started", dateTime(this.startedUs)], ["Tasks", count(this.tasks.length)],
      ...outcomes.map(([name, size]) => [name, size ? count(size) : ""]), ["Money", money(this.spentUsd) + cap],
      ["From the cache", read ? percent(total(this.tasks, (task) => task.cache_read) / read) : ""],
      ["Breaks", count(total(this.tasks, (task) => task.breaks.length))],
    ];
  }

  /** Address of the page of the task's session; "" in a file and where there is no session. */
  address(task) {
    return this.live && task.session && !task.missing ? `/${encodeURIComponent(task.session)}${location.search}` : "";
  }
}

class FleetView {
  static id = "fleet";
  static label = "Fleet";

  constructor(model) {
    this.model = model;
    const read = model.ended.filter((task) => task.session && !task.missing);
    this.charts = [
      this.byOutcome("Money of each task, the most expensive first", (task) => task.usd, money),
      this.byOutcome("Time of each task, the longest first", (task) => task.seconds, axisTime),
      this.chart("Breaks of the cache in each task, most first", read, (task) => task.breaks.length, oneDigit, Object.entries(BREAK_COLORS).map(([cause, color]) => ({
        key: cause, label: cause, color, value: (task) => task.breaks.filter((one) => one === cause).length,
      })).filter((stack) => read.some(stack.value))),
    ];
    this.node = element("section", {}, element("h2", {}, "The tasks of the fleet"),
      model.live ? element("p", { class: "hint" }, "Reload the page to see how the fleet has gone on.") : null,
      this.figures(read), this.failures(), this.charts.map((chart) => chart.node));
  }

  byOutcome(label, value, format) {
    const stacks = Object.entries(ENDED_COLORS).map(([name, color]) => ({
      key: name, label: name, color, value: (task) => (task.outcome === name ? value(task) : 0),
    }));
    return this.chart(label, this.model.ended, value, format, stacks);
  }

  /** A column for each task, the largest first: that is the distribution, and each column can be opened. */
  chart(label, given, value, format, stacks) {
    const tasks = sortedBy(given, value, true);
    return new RequestChart({
      label, format, noun: "Task", lines: [],
      xs: tasks.map((_, at) => at + 1),
      stacks: stacks.map((stack) => ({ ...stack, values: tasks.map(stack.value) })),
      describe: (index) => [["id", tasks[index].id], ...taskFigures(tasks[index])],
      open: this.model.live ? (index) => index >= 0 && openSession(this.model.address(tasks[index])) : undefined,
      opens: "the session",
    });
  }

  figures(read) {
    const { ended } = this.model;
    const seconds = (value) => duration(value * 1e6);
    const rows = [
      ["Money", ended, (task) => task.usd, money], ["Time", ended, (task) => task.seconds, seconds],
      ["Tokens read", ended, (task) => task.input, count], ["Tokens written", ended, (task) => task.output, count],
      ["Share from the cache", ended.filter((task) => task.input), cacheShare, percent], ["Breaks of the cache", read, (task) => task.breaks.length, oneDigit],
      ["Attempts", ended, (task) => task.attempts, oneDigit],
    ].filter(([, tasks]) => tasks.length);
    if (!rows.length) return element("p", { class: "empty" }, "No task has ended yet.");
    const lines = rows.map(([label, tasks, value, show]) => {
      const values = tasks.map(value).sort((a, b) => a - b);
      const sum = show === percent ? "" : show(total(values, (one) => one));
      const shares = [0, 0.1, 0.5, 0.9, 1].map((share) => show(quantile(values, share)));
      return element("tr", {}, element("th", { scope: "row" }, label),
        [count(values.length), sum, show(total(values, (one) => one) / values.length), ...shares].map((cell) => element("td", { class: "number" }, cell)));
    });
    const head = ["Figure", "Tasks", "Sum", "Mean", "Smallest", "10 %", "Median", "90 %", "Largest"];
    return element("div", { class: "table" }, element("table", {}, element("caption", {}, "Figures of the tasks that have ended"),
      element("thead", {}, element("tr", {}, head.map((label, at) => element("th", { scope: "col", class: at > 0 && "number" }, label)))), element("tbody", {}, lines)));
  }

  failures() {
    const { tasks } = this.model;
    const groups = grouped(tasks.filter((task) => task.outcome === "failed"), (task) => task.cause);
    const rows = [...groups].map(([cause, failed]) => ({ cause, failed, usd: total(failed, (task) => task.usd), seconds: total(failed, (task) => task.seconds) }));
    return sortableTable("Failures by cause", [
      { label: "Cause", value: (row) => row.cause },
      { label: "Tasks", value: (row) => row.failed.length, number: true },
      { label: "Of all tasks", value: (row) => row.failed.length / tasks.length, cell: (row) => percent(row.failed.length / tasks.length), number: true },
      { label: "Money", value: (row) => row.usd, cell: (row) => money(row.usd), number: true },
      { label: "Time", value: (row) => row.seconds, cell: (row) => duration(row.seconds * 1e6), number: true },
      { label: "Messages", value: (row) => grouped(row.failed, (task) => task.message).size, cell: (row) => commonMessages(row.failed) },
    ], sortedBy(rows, (row) => row.failed.length, true), "No task has failed.");
  }

  update() {}

  redraw() {
    for (const chart of this.charts) chart.redraw();
  }

  destroy() {
    for (const chart of this.charts) chart.destroy();
  }
}

class TaskView {
  static id = "tasks";
  static label = "Tasks";

  constructor(model) {
    this.model = model;
    const column = (label, value, show = count) => ({ label, value, cell: (task) => (value(task) === UNKNOWN ? "" : show(value(task))), number: true });
    const hint = model.live ? "A click on a task opens its session." : "The command in the last column opens a session; longrein fleet inspect --live has a link for each.";
    this.node = element("section", {}, element("h2", {}, "All tasks"), element("p", { class: "hint" }, hint), sortableTable("Tasks of the fleet", [
      { label: "Task", value: (task) => task.id, cell: (task) => this.link(task) },
      { label: "Outcome", value: (task) => task.outcome, cell: (task) => element("span", { class: `chip state-${task.outcome}` }, task.outcome) },
      { label: "Cause", value: (task) => task.cause, cell: (task) => [task.cause, task.message ? `: ${task.message}` : ""] },
      column("Money", (task) => task.usd, money), column("Time", (task) => task.seconds, (seconds) => duration(seconds * 1e6)),
      column("Tokens read", (task) => task.input), column("Written", (task) => task.output),
      column("From the cache", (task) => (task.input ? cacheShare(task) : UNKNOWN), percent),
      column("Breaks", (task) => (task.session && !task.missing ? task.breaks.length : UNKNOWN)),
      { label: "Causes of breaks", value: breakCauses },
      column("Attempts", (task) => task.attempts), column("Reward", (task) => task.reward ?? UNKNOWN, String),
      { label: "Session", value: (task) => task.missing || task.session, cell: (task) => this.session(task) },
    ], model.tasks, "This fleet has no tasks."));
  }

  link(task) {
    const href = this.model.address(task);
    return href ? element("a", { href }, task.id) : task.id;
  }

  session(task) {
    if (task.missing) return `${task.missing} (${task.session})`;
    return task.session && element("code", {}, this.model.live ? task.session : `longrein inspect ${task.session}`);
  }

  update() {}

  redraw() {}

  destroy() {}
}

function openSession(address) {
  if (address) location.assign(address);
}

function taskFigures(task) {
  return [
    ["outcome", task.outcome], ["cause", task.cause], ["money", money(task.usd)], ["time", duration(task.seconds * 1e6)],
    ["read", `${count(task.input)} tokens`], ["from the cache", task.input ? percent(cacheShare(task)) : ""],
    ["breaks", breakCauses(task)], ["session", task.missing],
  ];
}

function cacheShare(task) {
  return task.cache_read / task.input;
}

/** "cleared × 2, expired" */
function breakCauses(task) {
  return [...grouped(task.breaks, (cause) => cause)].map(([cause, all]) => times(cause, all.length)).join(", ");
}

/** The most common messages, a line for each. */
function commonMessages(tasks) {
  const groups = sortedBy([...grouped(tasks.filter((task) => task.message), (task) => task.message)], ([, all]) => all.length, true);
  const lines = groups.slice(0, MESSAGES_SHOWN).map(([message, all]) => element("div", {}, times(message, all.length)));
  const left = groups.length - lines.length;
  return left ? [...lines, element("div", { class: "hint" }, `and ${counted(left, "other message")}`)] : lines;
}

function times(word, size) {
  return size > 1 ? `${word} × ${count(size)}` : word;
}

/** Seconds as text that fits beside an axis. */
function axisTime(seconds) {
  return seconds < 60 ? duration(seconds * 1e6) : `${oneDigit(seconds / 60)} min`;
}

function oneDigit(value) {
  return value >= 1000 ? count(value) : value.toFixed(1).replace(".0", "");
}

function total(rows, value) {
  return rows.reduce((sum, row) => sum + value(row), 0);
}

/** Rows by key, in the order of the first of each. */
function grouped(rows, key) {
  const groups = new Map();
  for (const row of rows) {
    if (!groups.has(key(row))) groups.set(key(row), []);
    groups.get(key(row)).push(row);
  }
  return groups;
}

/** The value below which a share of the sorted values lies, between two of them by their distance. */
function quantile(values, share) {
  const at = share * (values.length - 1);
  const below = values[Math.floor(at)];
  return below + (at % 1) * (values[Math.ceil(at)] - below);
}
