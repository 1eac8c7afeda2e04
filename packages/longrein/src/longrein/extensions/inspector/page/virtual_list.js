// A scrolling list of rows of any height that holds only the rows in sight. Arrow keys move the focus.

const ROWS_BEYOND = 4;

/**
 * `options`: label, estimate (height of a row in pixels before it is measured), build(index) → element, and
 * activate(index), which is called on Enter.
 */
class VirtualList {
  constructor(options) {
    this.options = options;
    this.heights = [];
    this.tops = [0];
    this.rows = new Map();
    this.current = 0;
    this.sizer = element("div", { class: "sizer" });
    this.node = element("div", { class: "list", role: "feed", "aria-label": options.label, on: {
      scroll: () => this.draw(),
      keydown: (event) => this.onKey(event),
      focusin: (event) => this.onFocus(event),
    } }, this.sizer);
    this.width = 0;
    this.resized = new ResizeObserver(() => this.onResize());
    this.resized.observe(this.node);
  }

  get length() {
    return this.heights.length;
  }

  /** Show `length` rows; `keep` if the rows that were there are the same ones. */
  setLength(length, keep = false) {
    if (!keep) {
      this.heights = [];
      this.clearRows();
      this.current = 0;
    }
    while (this.heights.length < length) this.heights.push(this.options.estimate);
    this.heights.length = length;
    this.place();
    this.draw();
  }

  clearRows() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
  }

  place() {
    this.tops = new Float64Array(this.heights.length + 1);
    for (let at = 0; at < this.heights.length; at += 1) this.tops[at + 1] = this.tops[at] + this.heights[at];
    this.sizer.style.height = `${this.tops[this.heights.length]}px`;
  }

  /** Index of the row at a height, by binary search. */
  indexAt(y) {
    let [low, high] = [0, Math.max(0, this.length - 1)];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  draw() {
    const height = this.node.clientHeight;
    if (!height) return;
    for (let round = 0; round < 4; round += 1) {
      const anchor = this.indexAt(this.node.scrollTop);
      const offset = this.node.scrollTop - this.tops[anchor];
      const first = Math.max(0, anchor - ROWS_BEYOND);
      const last = Math.min(this.length - 1, this.indexAt(this.node.scrollTop + height) + ROWS_BEYOND);
      this.keepRows(first, last);
      if (!this.measure()) break;
      this.place();
      const scrollTop = this.tops[anchor] + offset;
      if (Math.abs(scrollTop - this.node.scrollTop) > 0.5) this.node.scrollTop = scrollTop;
    }
    for (const [index, row] of this.rows) row.style.transform = `translateY(${this.tops[index]}px)`;
  }

  /** Hold the rows from `first` to `last`, and the one with the focus. */
  keepRows(first, last) {
    for (const [index, row] of this.rows) {
      if ((index < first || index > last) && !row.contains(document.activeElement)) {
        row.remove();
        this.rows.delete(index);
      }
    }
    for (let index = first; index <= last; index += 1) {
      if (!this.rows.has(index)) this.addRow(index);
    }
  }

  addRow(index) {
    const row = this.options.build(index);
    row.dataset.index = index;
    row.setAttribute("role", "article");
    row.setAttribute("tabindex", index === this.current ? 0 : -1);
    row.setAttribute("aria-posinset", index + 1);
    row.setAttribute("aria-setsize", this.length);
    let after = null; // the next row in the order of the page, so that Tab and screen readers read in order
    for (const [other, node] of this.rows) {
      if (other > index && (after === null || other < Number(after.dataset.index))) after = node;
    }
    this.sizer.insertBefore(row, after);
    this.rows.set(index, row);
  }

  /** Read the heights of the rows; true if one has changed. */
  measure() {
    let changed = false;
    for (const [index, row] of this.rows) {
      const height = row.offsetHeight;
      if (height && Math.abs(height - this.heights[index]) > 0.5) {
        this.heights[index] = height;
        changed = true;
      }
    }
    return changed;
  }

  /** Build a row again. */
  refresh(index) {
    const old = this.rows.get(index);
    if (!old) return;
    const hadFocus = old.contains(document.activeElement);
    this.rows.delete(index);
    old.remove();
    this.addRow(index);
    this.draw();
    if (hadFocus) this.rows.get(index).focus({ preventScroll: true });
  }

  /** Scroll so that a row is at the top (`align` "top") or just in sight, and make it the current one. */
  show(index, { align = "nearest", focus = false } = {}) {
    if (index < 0 || index >= this.length) return;
    this.rows.get(this.current)?.setAttribute("tabindex", -1);
    this.current = index;
    for (let round = 0; round < 3; round += 1) {
      const [top, bottom] = [this.tops[index], this.tops[index + 1]];
      const view = this.node.clientHeight;
      if (align === "top" || top < this.node.scrollTop || bottom - top > view) this.node.scrollTop = top;
      else if (bottom > this.node.scrollTop + view) this.node.scrollTop = bottom - view;
      this.draw();
    }
    const row = this.rows.get(index);
    row?.setAttribute("tabindex", 0);
    if (focus) row?.focus({ preventScroll: true });
  }

  get isAtEnd() {
    return this.node.scrollTop + this.node.clientHeight >= this.node.scrollHeight - 4;
  }

  onFocus(event) {
    const row = event.target.closest("[data-index]");
    if (!row) return;
    this.rows.get(this.current)?.setAttribute("tabindex", -1);
    this.current = Number(row.dataset.index);
    row.setAttribute("tabindex", 0);
  }

  onKey(event) {
    if (event.target !== this.node && !event.target.matches("[data-index]")) return;
    const page = Math.max(1, this.indexAt(this.node.scrollTop + this.node.clientHeight) - this.indexAt(this.node.scrollTop) - 1);
    const moves = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -this.length, End: this.length };
    if (event.key === "Enter") this.options.activate?.(this.current);
    else if (event.key in moves) {
      const to = Math.min(this.length - 1, Math.max(0, this.current + moves[event.key]));
      this.show(to, { focus: true });
    } else return;
    event.preventDefault();
  }

  onResize() {
    if (this.node.clientWidth === this.width) return this.draw();
    this.width = this.node.clientWidth;
    this.draw();
  }

  destroy() {
    this.resized.disconnect();
  }
}
