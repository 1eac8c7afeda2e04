// Charts by uPlot, one column for each request or task. A chart is a slider for the keyboard and for screen readers: the arrows
// move through the requests, and the numbers of the chosen one stand in a list below. A table has the same numbers.

const CHART_HEIGHT = 300;
const LONG_MARKS_MAX = 40; // more marks than that have no line down to the axis

/**
 * `options`:
 *   label        what the chart shows
 *   xs           numbers of the requests
 *   stacks       [{key, label, color, values}]: bars, the first at the bottom
 *   lines        [{label, color, values, dash}]
 *   marks        [{index, color}]: vertical lines with a triangle on top
 *   top          smallest upper end of the y axis
 *   format       value → text of an axis
 *   describe     index → [[term, value]]
 *   open         index → open the entry (Enter, click)
 *   opens        what it opens; "the entry" by default
 *   noun         of a column; "Request" by default
 */
class RequestChart {
  constructor(options) {
    this.hidden = new Set();
    this.index = -1;
    this.readout = element("div", { class: "readout" });
    this.surface = element("div", {
      class: "plot", tabindex: 0, role: "slider", "aria-label": options.label, "aria-orientation": "horizontal",
      on: { keydown: (event) => this.onKey(event) },
    });
    this.legend = element("div", { class: "legend", role: "group", "aria-label": "Shown in the chart" });
    const enter = options.open ? `, Enter opens ${options.opens ?? "the entry"}` : "";
    const hint = element("p", { class: "hint" }, `Arrow keys move${enter}. Drag to zoom, double click to zoom out.`);
    this.node = element("figure", { class: "chart", "aria-label": options.label }, element("figcaption", {}, options.label), this.legend, this.surface, this.readout, hint);
    this.resized = new ResizeObserver(() => this.resize());
    this.setOptions(options);
  }

  /** Show other numbers. The number of stacks and lines may change, so the chart is made anew. */
  setOptions(options) {
    this.options = options;
    this.plot?.destroy();
    this.plot = null;
    this.drawLegend();
    const last = options.xs.length - 1;
    this.surface.setAttribute("aria-valuemin", options.xs[0] ?? 0);
    this.surface.setAttribute("aria-valuemax", options.xs[last] ?? 0);
    if (this.surface.clientWidth) this.draw();
    this.resized.observe(this.surface);
    this.select(this.index < 0 || this.index > last ? last : this.index, false);
  }

  resize() {
    const width = this.surface.clientWidth;
    if (!width) return;
    if (!this.plot) this.draw();
    else if (this.plot.width !== width) this.plot.setSize({ width, height: CHART_HEIGHT });
  }

  drawLegend() {
    const toggles = this.options.stacks.map((stack) => {
      const toggle = element("button", { type: "button", "aria-pressed": !this.hidden.has(stack.key) }, swatch(stack.color), stack.label);
      toggle.addEventListener("click", () => {
        if (!this.hidden.delete(stack.key)) this.hidden.add(stack.key);
        toggle.setAttribute("aria-pressed", !this.hidden.has(stack.key));
        this.plot?.setData(this.columns());
      });
      return toggle;
    });
    const lines = this.options.lines.map((line) => element("span", {}, swatch(line.color, true), line.label));
    this.legend.replaceChildren(...(this.options.stacks.length > 1 ? toggles : this.options.stacks.map((stack) => element("span", {}, swatch(stack.color), stack.label))), ...lines);
  }

  /** Data in uPlot's form. A stack is drawn as bars from zero, the highest first, so that lower ones cover it. */
  columns() {
    const { xs, stacks, lines } = this.options;
    let below = new Array(xs.length).fill(0);
    const sums = stacks.map((stack) => {
      if (!this.hidden.has(stack.key)) below = below.map((sum, at) => sum + stack.values[at]);
      return below;
    });
    return [xs, ...sums.reverse(), ...lines.map((line) => line.values)];
  }

  draw() {
    const { stacks, lines, top, format } = this.options;
    const bars = uPlot.paths.bars({ size: [0.92, 60] });
    const axis = { stroke: () => color("muted"), grid: { stroke: () => color("grid"), width: 1 }, ticks: { stroke: () => color("grid"), width: 1 } };
    const config = {
      width: this.surface.clientWidth,
      height: CHART_HEIGHT,
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
      scales: {
        x: { time: false, range: (_, low, high) => [low - 0.5, high + 0.5] },
        y: { range: (_, low, high) => [0, Math.max(high, top ?? 0) * 1.05 || 1] },
      },
      axes: [
        { ...axis, label: this.options.noun ?? "Request", labelSize: 20, size: 36, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] },
        { ...axis, size: 70, values: (_, ticks) => ticks.map(format) },
      ],
      series: [
        {},
        ...[...stacks].reverse().map((stack) => ({ paths: bars, fill: () => color(stack.color), points: { show: false } })),
        ...lines.map((line) => ({ stroke: () => color(line.color), width: 1.5, dash: line.dash, points: { show: false } })),
      ],
      hooks: { setCursor: [(plot) => this.onCursor(plot)], draw: [(plot) => this.drawMarks(plot)] },
    };
    this.plot = new uPlot(config, this.columns(), this.surface);
    this.plot.over.addEventListener("click", () => this.options.open?.(this.index));
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot;
    const size = 5 * devicePixelRatio;
    const placed = (this.options.marks ?? []).map((mark) => ({ ...mark, x: Math.round(plot.valToPos(this.options.xs[mark.index], "x", true)) }));
    const inSight = placed.filter(({ x }) => x >= bbox.left && x <= bbox.left + bbox.width);
    const lineHeight = inSight.length > LONG_MARKS_MAX ? 0 : bbox.height;
    ctx.save();
    for (const { x, ...mark } of inSight) {
      ctx.strokeStyle = ctx.fillStyle = color(mark.color);
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + lineHeight);
      ctx.stroke();
      ctx.beginPath();
      ctx.moveTo(x - size, bbox.top);
      ctx.lineTo(x + size, bbox.top);
      ctx.lineTo(x, bbox.top + 1.6 * size);
      ctx.fill();
    }
    ctx.restore();
  }

  onCursor(plot) {
    const { idx, left } = plot.cursor;
    if (left >= 0 && idx !== null && idx !== undefined && idx !== this.index) this.select(idx, false);
  }

  /** Make a request the chosen one. */
  select(index, moveCursor = true) {
    this.index = index;
    const rows = index < 0 ? [] : this.options.describe(index);
    const noun = this.options.noun ?? "Request";
    const name = index < 0 ? "Nothing to show yet" : `${noun} ${this.options.xs[index]}`;
    this.surface.setAttribute("aria-valuenow", this.options.xs[index] ?? 0);
    this.surface.setAttribute("aria-valuetext", [name, ...rows.map(([term, value]) => `${term} ${value}`)].join(", "));
    this.readout.replaceChildren(element("strong", {}, name), termList(rows, { class: "figures" }));
    if (moveCursor && this.plot && index >= 0) {
      const left = this.plot.valToPos(this.options.xs[index], "x");
      this.plot.setCursor({ left, top: 10 }, false);
    }
  }

  onKey(event) {
    const last = this.options.xs.length - 1;
    if (last < 0) return;
    const page = Math.max(1, Math.round(last / 10));
    const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: page, PageDown: -page, Home: -last, End: last };
    if (event.key === "Enter") this.options.open?.(this.index);
    else if (event.key in moves) this.select(Math.min(last, Math.max(0, this.index + moves[event.key])));
    else return;
    event.preventDefault();
  }

  redraw() {
    this.drawLegend();
    this.plot?.redraw(false);
  }

  destroy() {
    this.resized.disconnect();
    this.plot?.destroy();
  }
}

/** A sample of a colour in a legend. */
function swatch(name, isLine = false) {
  return element("i", { class: `swatch ${isLine ? "line " : ""}color-${name}`, "aria-hidden": "true" });
}

/** The numbers of a chart as a table, filled when it is opened. */
function numbersTable(label, build) {
  return disclosure(`Table: ${label}`, build);
}
