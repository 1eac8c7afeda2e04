// Session time to pixels. Long waits can be drawn short, so that a night between two messages does not hide the work.

const LONG_WAIT_US = 60e6;
const DRAWN_WAIT_US = 10e6;

/** Gaps of more than a minute in which no model and no tool was at work. A background task may run on. */
function longWaits(spans, startUs, endUs) {
  const busy = spans.filter((span) => span.kind === "model" || span.kind === "tool").sort((a, b) => a.start_us - b.start_us);
  const gaps = [];
  let until = startUs;
  for (const span of busy) {
    if (span.start_us - until > LONG_WAIT_US) gaps.push({ start: until, end: span.start_us });
    until = Math.max(until, span.end_us);
  }
  if (endUs - until > LONG_WAIT_US) gaps.push({ start: until, end: endUs });
  return gaps;
}

/** A scale of the whole session: `drawn(us)` is the place of a time on an axis from 0 to `length`. */
class TimeScale {
  constructor(startUs, endUs, gaps) {
    this.start = startUs;
    this.knots = [{ us: startUs, at: 0 }];
    for (const gap of gaps) {
      this.addKnot(gap.start, gap.start - this.knots.at(-1).us);
      this.addKnot(gap.end, DRAWN_WAIT_US);
    }
    this.addKnot(endUs, Math.max(1, endUs - this.knots.at(-1).us));
    this.length = this.knots.at(-1).at;
  }

  addKnot(us, drawn) {
    this.knots.push({ us, at: this.knots.at(-1).at + drawn });
  }

  drawn(us) {
    return this.between(us, "us", "at");
  }

  time(at) {
    return this.between(at, "at", "us");
  }

  between(value, from, to) {
    let [low, high] = [0, this.knots.length - 2];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.knots[middle][from] <= value) low = middle;
      else high = middle - 1;
    }
    const [left, right] = [this.knots[low], this.knots[low + 1]];
    const share = right[from] > left[from] ? (value - left[from]) / (right[from] - left[from]) : 0;
    return left[to] + Math.min(1, Math.max(0, share)) * (right[to] - left[to]);
  }
}

/** Put spans that overlap onto rows of their own: the row of each span, and the number of rows. */
function stackSpans(spans) {
  const ends = [];
  const rows = spans.map((span) => {
    let row = ends.findIndex((end) => end <= span.start_us);
    if (row < 0) row = ends.length;
    ends[row] = Math.max(span.end_us, span.start_us + 1);
    return row;
  });
  return { rows, height: Math.max(1, ends.length) };
}
