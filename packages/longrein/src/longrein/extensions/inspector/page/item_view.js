// An item's life: each form it had, from which request on, with the exact text and the reason.

const FORM_WORDS = {
  full: "shown whole", trimmed: "shortened", placeholder: "cleared to a line", folded: "folded into another line",
  summarised: "in a summary", recalled: "recalled", restored: "brought back", gone: "taken away",
};

class ItemView {
  static id = "items";
  static label = "Items";

  constructor(model) {
    this.model = model;
    this.search = element("input", { type: "search", id: "item-search", placeholder: "Search (/)", autocomplete: "off", on: {
      input: () => this.apply(),
      keydown: (event) => this.onSearchKey(event),
    } });
    this.which = element("select", { on: { change: () => this.apply() } },
      element("option", { value: "changed" }, "changed their form"), element("option", { value: "all" }, "all"),
      element("option", { value: "shown" }, "shown in the next request"), element("option", { value: "next" }, "would go next"));
    this.order = element("select", { on: { change: () => this.apply() } },
      element("option", { value: "tokens" }, "by size"), element("option", { value: "seq" }, "by time"), element("option", { value: "usd" }, "by cost"));
    this.status = element("span", { role: "status", class: "hint" });
    this.list = new VirtualList({
      label: "Items", estimate: 58,
      build: (index) => this.buildRow(this.found[index]),
      activate: (index) => this.go(this.found[index]),
    });
    this.detail = element("article", { class: "detail", tabindex: -1, "aria-label": "Life of the item" });
    this.node = element("section", {}, element("h2", {}, "The life of an item"),
      element("p", { class: "tools" }, element("label", { for: "item-search" }, "Search"), this.search,
        element("label", {}, "Which", this.which), element("label", {}, "Order", this.order), this.status),
      element("div", { class: "split" }, this.list.node, this.detail));
    if (!model.items.some((item) => item.stages.length > 1)) this.which.value = "all";
    this.apply();
    this.choose(this.found[0] ?? null);
  }

  apply(keep = false) {
    const words = this.search.value.trim().toLowerCase();
    const tests = { changed: (item) => item.stages.length > 1, all: () => true, shown: (item) => item.shown, next: (item) => item.next_goes };
    const key = this.order.value;
    this.found = this.model.items
      .filter((item) => tests[this.which.value](item) && (!words || this.matches(item, words)))
      .sort((a, b) => (key === "seq" ? a.seq - b.seq : b[key] - a[key]));
    this.status.textContent = `${count(this.found.length)} of ${counted(this.model.items.length, "item")}`;
    if (keep) this.list.clearRows();
    this.list.setLength(this.found.length, keep);
  }

  matches(item, words) {
    return [item.handle, item.kind, item.tool, item.begins].some((text) => text.toLowerCase().includes(words))
      || item.stages.some((stage) => stage.text.toLowerCase().includes(words));
  }

  onSearchKey(event) {
    if (event.key === "ArrowDown" || event.key === "Enter") this.list.show(this.list.current, { focus: true });
    else if (event.key === "Escape" && this.search.value) {
      this.search.value = "";
      this.apply();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  buildRow(item) {
    const last = item.stages.at(-1);
    const now = last ? `${FORM_WORDS[last.form] ?? last.form}, ${compact(last.tokens)}` : "";
    return element("div", { class: "item", "aria-label": visible(`${item.handle} ${item.kind} ${item.tool}`.trim()), "aria-current": item === this.item ? "true" : null, on: { click: () => this.go(item) } },
      element("p", { class: "facts" }, element("a", { href: `#items/${encodeURIComponent(item.handle)}` }, item.handle), element("span", { class: "kind" }, item.kind), item.tool,
        element("span", {}, `${compact(item.tokens)} tokens`), element("span", {}, now)),
      element("p", { class: "title" }, item.begins));
  }

  go(item) {
    location.hash = `#items/${encodeURIComponent(item.handle)}`;
  }

  /** Show the life of an item in the right half. */
  choose(item) {
    const before = this.item;
    this.item = item;
    for (const one of [before, item]) {
      const at = this.found.indexOf(one);
      if (at >= 0) this.list.refresh(at);
    }
    if (!item) return this.detail.replaceChildren(element("p", { class: "empty" }, "Choose an item."));
    const state = item.shown ? (item.next_goes ? "shown; the next compaction would take it" : "shown in the next request") : "not shown any more";
    this.detail.replaceChildren(
      element("h3", {}, `${item.handle} · ${item.kind} ${item.tool}`),
      element("p", {}, item.begins),
      termList([
        ["Born", `request ${item.born_request}`], ["Size at birth", `${count(item.tokens)} tokens`], ["State", state],
        ["Cost of carrying it", item.usd ? money(item.usd) : ""], ["Transcript", this.model.rowOfHandle.has(item.handle) ? entryLink(item.seq) : ""],
      ], { class: "figures" }),
      this.strip(item), element("ol", { class: "stages" }, item.stages.map((stage, at) => this.stage(item, stage, at))), this.lineFates(item) ?? "");
  }

  /** The life as a strip: the width of a part is its time in requests, its height the tokens. */
  strip(item) {
    const last = Math.max(this.model.requests.at(-1)?.n ?? 1, item.stages.at(-1)?.request ?? 1);
    const most = Math.max(1, ...item.stages.map((stage) => stage.tokens));
    const strip = element("div", { class: "strip", role: "img", "aria-label": `From request ${item.born_request} to ${last}: ` + item.stages.map((stage) => `${FORM_WORDS[stage.form] ?? stage.form} with ${count(stage.tokens)} tokens from request ${stage.request}`).join(", ") });
    item.stages.forEach((stage, at) => {
      const end = item.stages[at + 1]?.request ?? last + 1;
      const part = element("span", { class: `form-${stage.form}` });
      part.style.flexGrow = Math.max(0.01, end - stage.request);
      part.style.height = `${Math.max(6, (100 * stage.tokens) / most)}%`;
      strip.append(part);
    });
    return strip;
  }

  stage(item, stage, at) {
    const before = item.stages[at - 1];
    const size = before && before.tokens !== stage.tokens ? `${count(before.tokens)} → ${count(stage.tokens)} tokens` : `${count(stage.tokens)} tokens`;
    const { text, leftOut } = this.model.stageText(item, stage);
    const isShown = !["folded", "summarised", "gone"].includes(stage.form);
    const nothing = isShown ? "The text is not in this page." : "Nothing of it was shown.";
    return element("li", {},
      element("h4", {}, `Request ${stage.request}: ${FORM_WORDS[stage.form] ?? stage.form}`, " ", element("span", { class: "hint" }, size, " ", entryLink(stage.seq))),
      stage.why ? element("p", {}, `Why: ${stage.why}`) : null,
      text ? textBlock(text, { tabindex: 0, role: "region", "aria-label": `Text from request ${stage.request}` }) : element("p", { class: "empty" }, nothing),
      leftOut ? element("p", { class: "hint" }, `${bytes(leftOut)} left out in the middle`) : null);
  }

  lineFates(item) {
    if (!item.lines.length) return null;
    return disclosure("Why its lines would stay or go if it were cleared now", () => sortableTable("Lines", [
      { label: "Line", value: (fate) => fate.line, cell: (fate) => element("code", {}, fate.line) },
      { label: "Fate", value: (fate) => (fate.stays ? "stays" : "goes") },
      { label: "Chance that it is needed", value: (fate) => fate.chance, cell: (fate) => percent(fate.chance), number: true },
      { label: "Why", value: (fate) => fate.why },
    ], item.lines, ""));
  }

  /** Show the item with a handle. */
  show(handle) {
    const item = this.model.itemOfHandle.get(handle);
    if (!item) return announce(`No item ${handle}.`);
    if (!this.found.includes(item)) {
      this.search.value = "";
      this.which.value = "all";
      this.apply();
    }
    this.list.show(this.found.indexOf(item));
    this.choose(item);
    this.detail.focus({ preventScroll: true });
  }

  focusSearch() {
    this.search.focus();
    this.search.select();
  }

  update() {
    this.apply(true);
    if (this.item) this.choose(this.model.itemOfHandle.get(this.item.handle) ?? null);
    else this.choose(this.found[0] ?? null);
  }

  redraw() {}

  destroy() {
    this.list.destroy();
  }
}
