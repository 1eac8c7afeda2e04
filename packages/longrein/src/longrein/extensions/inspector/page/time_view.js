// Time: a lane for the main agent, each subagent and each background task, on one axis.

const SPAN_HEIGHT = 16;
const LANE_GAP = 10;
const AXIS_HEIGHT = 24;
const STACKED_MAX = 8;
const LANES_MAX = 300;
const SPAN_KINDS = { model: "model", tool: "tool", run: "background task runs", wait: "waiting for the user" };

class TimeView {
  static id = "time";
  static label = "Time";

  constructor(model) {
    this.model = model;
    this.selected = { lane: 0, span: 0 };
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.names = element("div", { class: "lane-names", "aria-hidden": "true" });
    this.surface = element("div", { class: "lanes", tabindex: 0, role: "slider", "aria-label": "Spans of all lanes", on: {
      keydown: (event) => this.onKey(event),
      pointermove: (event) => this.onPointer(event),
      pointerdown: (event) => (this.dragFrom = this.placeAt(event)),
      pointerup: (event) => this.onPointerUp(event),
      dblclick: () => this.zoomTo(0, this.scale.length),
      wheel: (event) => this.onWheel(event),
    } }, this.canvas);
    this.readout = element("div", { class: "readout" });
    this.summary = element("div");
    this.tables = element("div");
    this.short = element("input", { type: "checkbox", id: "short-waits", checked: true, on: { change: () => this.reset() } });
    const button = (label, act) => element("button", { type: "button", on: { click: act } }, label);
    const tools = element("p", { class: "tools" },
      element("label", { for: "short-waits" }, this.short, "Draw waits of more than a minute short"),
      button("Zoom in", () => this.zoomBy(0.5)), button("Zoom out", () => this.zoomBy(2)), button("Whole session", () => this.zoomTo(0, this.scale.length)));
    const legend = element("div", { class: "legend" }, Object.entries(SPAN_KINDS).map(([kind, label]) => element("span", {}, swatch(kind), label)), element("span", {}, swatch("break"), "failed, denied or cut"));
    const hint = element("p", { class: "hint" }, "Left and right: spans of a lane. Up and down: lanes. Enter or click opens the entry. + and − zoom; drag to zoom, double click to zoom out.");
    this.node = element("section", {}, element("h2", {}, "Where the time went"), this.summary, tools, legend,
      element("div", { class: "lane-box" }, this.names, this.surface), this.readout, hint, this.tables);
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.surface);
    this.reset();
  }

  /** Take the lanes of the model and show the whole session. */
  reset() {
    const { model } = this;
    this.lanes = model.lanes.slice(0, LANES_MAX).map((lane) => {
      const spans = [...lane.spans].sort((a, b) => a.start_us - b.start_us);
      const stacked = stackSpans(spans);
      return { ...lane, spans, rows: stacked.rows.map((row) => row % STACKED_MAX), height: Math.min(STACKED_MAX, stacked.height) };
    });
    let y = AXIS_HEIGHT;
    for (const lane of this.lanes) {
      lane.top = y;
      y += lane.height * SPAN_HEIGHT + LANE_GAP;
    }
    this.height = y;
    const spans = this.lanes.flatMap((lane) => lane.spans);
    const start = Math.min(model.session.started_us, ...spans.slice(0, 1).map((span) => span.start_us));
    const end = spans.reduce((latest, span) => Math.max(latest, span.end_us), model.session.ended_us);
    this.gaps = longWaits(spans, start, end);
    this.scale = new TimeScale(start, end, this.short.checked ? this.gaps : []);
    this.view = { from: 0, to: this.scale.length };
    this.names.replaceChildren(...this.lanes.map((lane) => this.nameOf(lane)));
    this.names.style.height = `${this.height}px`;
    this.fillSummary();
    this.fillTables();
    this.select(this.selected.lane, this.selected.span);
  }

  nameOf(lane) {
    const depth = lane.id === "main" ? 0 : lane.id.split(".").length;
    const name = element("div", { title: visible(`${lane.id} ${lane.label}`) }, element("b", {}, lane.id), " ", lane.label);
    name.style.top = `${lane.top}px`;
    name.style.paddingLeft = `${depth * 0.8}rem`;
    return name;
  }

  fillSummary() {
    const main = this.lanes.find((lane) => lane.kind === "main");
    const sum = (kind) => (main?.spans ?? []).filter((span) => span.kind === kind).reduce((total, span) => total + span.end_us - span.start_us, 0);
    const all = this.model.session.ended_us - this.model.session.started_us;
    this.summary.replaceChildren(termList([
      ["From first to last entry", duration(all)],
      ["Model", duration(sum("model"))],
      ["Tools (in sum)", duration(sum("tool"))],
      ["Waiting for the user", duration(sum("wait"))],
      ["Lanes", count(this.model.lanes.length) + (this.model.lanes.length > LANES_MAX ? `, the first ${LANES_MAX} drawn` : "")],
    ], { class: "figures" }));
  }

  fillTables() {
    const lanes = numbersTable("lanes", () => sortableTable("Lanes", [
      { label: "Lane", value: (lane) => lane.id },
      { label: "Name", value: (lane) => lane.label },
      { label: "Kind", value: (lane) => lane.kind },
      { label: "Started by", value: (lane) => lane.parent },
      { label: "State", value: (lane) => lane.status },
      ...["model", "tool", "wait", "run"].map((kind) => {
        const total = (lane) => lane.spans.reduce((sum, span) => sum + (span.kind === kind ? span.end_us - span.start_us : 0), 0);
        return { label: kind, value: total, cell: (lane) => duration(total(lane)), number: true };
      }),
    ], this.model.lanes, "No lane."));
    const spans = numbersTable("spans", () => sortableTable("Spans", [
      { label: "Lane", value: (row) => row.lane.id },
      { label: "Kind", value: (row) => row.span.kind },
      { label: "What", value: (row) => row.span.label },
      { label: "Start", value: (row) => row.span.start_us, cell: (row) => dateTime(row.span.start_us), number: true },
      { label: "Time", value: (row) => row.span.end_us - row.span.start_us, cell: (row) => duration(row.span.end_us - row.span.start_us), number: true },
      { label: "State", value: (row) => row.span.status },
      { label: "Entry", value: (row) => row.span.seq, cell: (row) => entryLink(row.span.seq, row.lane.agent) },
    ], this.model.lanes.flatMap((lane) => lane.spans.map((span) => ({ lane, span }))), "No span."));
    this.tables.replaceChildren(lanes, spans);
  }

  pixel(us) {
    const { from, to } = this.view;
    return ((this.scale.drawn(us) - from) / (to - from)) * this.width;
  }

  draw() {
    this.width = this.surface.clientWidth;
    if (!this.width) return;
    const ratio = devicePixelRatio;
    this.canvas.width = this.width * ratio;
    this.canvas.height = Math.min(32_000, this.height * ratio);
    this.canvas.style.height = `${this.height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "11px system-ui, sans-serif";
    this.drawAxis(context);
    this.lanes.forEach((lane, at) => this.drawLane(context, lane, at));
    this.drawSelection(context);
  }

  drawAxis(context) {
    context.fillStyle = color("stripe");
    for (const gap of this.short.checked ? this.gaps : []) {
      const [left, right] = [this.pixel(gap.start), this.pixel(gap.end)];
      if (right < 0 || left > this.width) continue;
      context.fillRect(left, AXIS_HEIGHT - 6, right - left, this.height);
    }
    context.fillStyle = color("muted");
    context.strokeStyle = color("grid");
    const ticks = Math.max(2, Math.floor(this.width / 130));
    for (let tick = 0; tick <= ticks; tick += 1) {
      const x = (tick / ticks) * this.width;
      const us = this.scale.time(this.view.from + (tick / ticks) * (this.view.to - this.view.from));
      context.textAlign = tick === 0 ? "left" : tick === ticks ? "right" : "center";
      context.fillText(clockTime(us), x, 12);
      context.beginPath();
      context.moveTo(x, 16);
      context.lineTo(x, this.height);
      context.stroke();
    }
  }

  drawLane(context, lane) {
    lane.spans.forEach((span, at) => {
      const [left, right] = [this.pixel(span.start_us), this.pixel(span.end_us)];
      if (right < 0 || left > this.width) return;
      const width = Math.max(1, right - left);
      const y = lane.top + lane.rows[at] * SPAN_HEIGHT;
      context.fillStyle = color(span.kind);
      context.fillRect(left, y, width, SPAN_HEIGHT - 3);
      if (span.status !== "ok" && span.status !== "open") {
        context.fillStyle = color("break");
        context.fillRect(left, y + SPAN_HEIGHT - 7, width, 4);
      }
      if (width > 60 && span.kind !== "wait") {
        context.fillStyle = color("on-span");
        context.textAlign = "left";
        const room = Math.floor(width / 6.5) - 1;
        context.fillText(visible(span.label || span.kind).slice(0, room), Math.max(0, left) + 5, y + 10);
      }
    });
  }

  drawSelection(context) {
    const lane = this.lanes[this.selected.lane];
    const span = lane?.spans[this.selected.span];
    if (!span) return;
    const left = this.pixel(span.start_us);
    context.strokeStyle = color("text");
    context.lineWidth = 2;
    const y = lane.top + lane.rows[this.selected.span] * SPAN_HEIGHT;
    context.strokeRect(left - 1, y - 1, Math.max(3, this.pixel(span.end_us) - left + 2), SPAN_HEIGHT - 1);
  }

  select(laneAt, spanAt) {
    const lane = this.lanes[Math.max(0, Math.min(laneAt, this.lanes.length - 1))];
    const span = lane?.spans[Math.max(0, Math.min(spanAt, lane.spans.length - 1))];
    this.selected = { lane: this.lanes.indexOf(lane), span: span ? lane.spans.indexOf(span) : 0 };
    const rows = span ? [
      ["kind", SPAN_KINDS[span.kind]], ["what", span.label], ["start", dateTime(span.start_us)],
      ["time", duration(span.end_us - span.start_us)], ["state", span.status],
    ] : [];
    const name = lane ? `${lane.id} ${lane.label}`.trim() : "Nothing to show yet";
    this.surface.setAttribute("aria-valuenow", this.selected.span + 1);
    this.surface.setAttribute("aria-valuemin", 1);
    this.surface.setAttribute("aria-valuemax", lane?.spans.length ?? 1);
    this.surface.setAttribute("aria-valuetext", visible([name, ...rows.map(([term, value]) => `${term} ${value}`)].join(", ")));
    this.readout.replaceChildren(element("strong", {}, name), span ? entryLink(span.seq, lane.agent) : "", termList(rows, { class: "figures" }));
    this.draw();
  }

  /** Bring the selected span into sight. */
  reveal() {
    const span = this.lanes[this.selected.lane]?.spans[this.selected.span];
    if (!span) return;
    const [left, right] = [this.scale.drawn(span.start_us), this.scale.drawn(span.end_us)];
    const size = this.view.to - this.view.from;
    if (left < this.view.from || right > this.view.to) this.zoomTo((left + right - size) / 2, (left + right + size) / 2);
  }

  zoomTo(from, to) {
    const size = Math.min(this.scale.length, Math.max(1000, to - from));
    const start = Math.min(Math.max(0, from), this.scale.length - size);
    this.view = { from: start, to: start + size };
    this.draw();
  }

  zoomBy(factor, center = 0.5) {
    const { from, to } = this.view;
    const [middle, size] = [from + (to - from) * center, (to - from) * factor];
    this.zoomTo(middle - size * center, middle + size * (1 - center));
  }

  placeAt(event) {
    const box = this.surface.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /** The span under a point, with three pixels of tolerance. */
  spanAt({ x, y }) {
    const laneAt = this.lanes.findIndex((lane) => y >= lane.top && y < lane.top + lane.height * SPAN_HEIGHT);
    const lane = this.lanes[laneAt];
    if (!lane) return null;
    const row = Math.floor((y - lane.top) / SPAN_HEIGHT);
    const distance = (span) => Math.max(this.pixel(span.start_us) - x, x - this.pixel(span.end_us), 0);
    let best = null;
    lane.spans.forEach((span, at) => {
      const far = distance(span);
      if (lane.rows[at] === row && far <= 3 && (best === null || far < best.far)) best = { far, lane: laneAt, span: at };
    });
    return best;
  }

  onPointer(event) {
    const found = this.spanAt(this.placeAt(event));
    if (found && (found.lane !== this.selected.lane || found.span !== this.selected.span)) this.select(found.lane, found.span);
  }

  onPointerUp(event) {
    const [from, to] = [this.dragFrom?.x, this.placeAt(event).x];
    this.dragFrom = null;
    if (from === undefined) return;
    if (Math.abs(to - from) < 5) {
      const found = this.spanAt(this.placeAt(event));
      if (found) this.open(found.lane, found.span);
      return;
    }
    const at = (x) => this.view.from + (x / this.width) * (this.view.to - this.view.from);
    this.zoomTo(at(Math.min(from, to)), at(Math.max(from, to)));
  }

  onWheel(event) {
    if (event.ctrlKey) this.zoomBy(event.deltaY > 0 ? 1.25 : 0.8, this.placeAt(event).x / this.width);
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const shift = (event.deltaX / this.width) * (this.view.to - this.view.from);
      this.zoomTo(this.view.from + shift, this.view.to + shift);
    } else return;
    event.preventDefault();
  }

  onKey(event) {
    const { lane, span } = this.selected;
    const last = (this.lanes[lane]?.spans.length ?? 1) - 1;
    const moves = { ArrowLeft: [lane, span - 1], ArrowRight: [lane, span + 1], Home: [lane, 0], End: [lane, last] };
    if (event.key in moves) this.select(...moves[event.key]);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") this.selectInLane(lane + (event.key === "ArrowUp" ? -1 : 1));
    else if (event.key === "+" || event.key === "=") this.zoomBy(0.5);
    else if (event.key === "-") this.zoomBy(2);
    else if (event.key === "Enter") return this.open(lane, span);
    else return;
    this.reveal();
    event.preventDefault();
  }

  /** Select the span of another lane that begins nearest to the selected one. */
  selectInLane(laneAt) {
    const now = this.lanes[this.selected.lane]?.spans[this.selected.span]?.start_us ?? 0;
    const lane = this.lanes[laneAt];
    if (!lane) return;
    const far = lane.spans.map((span) => Math.abs(span.start_us - now));
    this.select(laneAt, Math.max(0, far.indexOf(far.reduce((least, value) => Math.min(least, value), Infinity))));
  }

  open(laneAt, spanAt) {
    const lane = this.lanes[laneAt];
    openEntry(lane?.spans[spanAt]?.seq, lane?.agent);
  }

  update() {
    const before = this.view;
    const wasWhole = before.from === 0 && before.to >= this.scale.length;
    this.reset();
    if (!wasWhole) this.zoomTo(before.from, before.to);
  }

  redraw() {
    this.draw();
  }

  destroy() {
    this.resized.disconnect();
  }
}
