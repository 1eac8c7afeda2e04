// The page: header, tabs, keys, theme, and the updates of a running session.

const VIEWS = [ContextView, CostView, TimeView, ItemView, TranscriptView, SubagentView, FileView];
const KEYS = [
  ["← →", "the tab before or after, when a tab has the focus"],
  ["1 – 8", "the tab with this number"],
  ["/", "search in the transcript or the items"],
  ["Esc", "leave the search, then go back to the tabs"],
  ["↑ ↓ Page Up, Page Down", "rows of a list; lanes of the time"],
  ["← → Home, End", "requests of a chart; spans of a lane"],
  ["Enter", "open the entry, or the whole text of a row"],
  ["t", "theme: system, dark, light"],
  ["?", "this list"],
];
const THEMES = { "": "system", dark: "dark", light: "light" };
const FILLED_MIN = 320;
const FILLED_MARGIN = 20;
const THEME_KEY = "longrein-theme";

/** Go to an entry of the transcript. */
function openEntry(seq, agent = "") {
  if (seq) location.hash = `#transcript/${encodeURIComponent(agent)}:${seq}`;
}

class App {
  constructor(data) {
    this.isFleet = Boolean(data.tasks);
    this.isList = Boolean(data.open_sessions);
    let Model = SessionModel;
    if (this.isFleet) Model = FleetModel;
    if (this.isList) Model = OpenSessionsModel;
    this.sides = (data.a && data.b ? [data.a, data.b] : [data]).map((one) => new Model(one));
    this.isComparison = this.sides.length === 2;
    this.model = this.sides[0];
    this.views = new Map();
    this.changed = new Set();
    this.shown = "";
    this.drawSides();
    this.drawTabs();
    this.drawHeader();
    this.bindKeys();
    this.setTheme(storedTheme());
    PREFERS_DARK.addEventListener("change", () => this.redraw());
    addEventListener("hashchange", () => this.follow());
    addEventListener("resize", () => this.fillWindow());
    byId("theme").addEventListener("click", () => this.nextTheme());
    byId("help").addEventListener("click", () => byId("keys").showModal());
    this.follow();
    if (this.model.live && !this.isFleet) this.listen();
  }

  /** Views of this document. */
  kinds() {
    if (this.isFleet) return [FleetView, TaskView];
    if (this.isList) return [OpenSessionsView];
    return this.isComparison ? [CompareView, ...VIEWS] : VIEWS;
  }

  drawSides() {
    const field = byId("side");
    field.hidden = !this.isComparison;
    if (!this.isComparison) return;
    this.sides.forEach((side, at) => {
      const radio = element("input", { type: "radio", name: "side", id: `side-${at}`, checked: at === 0, on: { change: () => this.chooseSide(at) } });
      append(field, [element("label", { for: `side-${at}` }, radio, `${"AB"[at]}: ${side.session.title || side.session.id}`)]);
    });
  }

  chooseSide(at) {
    this.model = this.sides[at];
    for (const view of this.views.values()) view.destroy();
    this.views.clear();
    const shown = this.shown;
    this.shown = "";
    this.drawTabs();
    this.drawHeader();
    this.select(this.kinds().some((kind) => kind.id === shown) ? shown : this.kinds()[0].id);
  }

  drawHeader() {
    const { title } = this.model;
    document.title = visible(`${title} · longrein inspect`);
    byId("title").textContent = visible(title);
    byId("facts").replaceChildren(...termList(this.model.facts()).childNodes);
  }

  drawTabs() {
    byId("tabs").replaceChildren(...this.kinds().map((kind, at) => element("button", {
      type: "button", role: "tab", id: `tab-${kind.id}`, "aria-controls": "panel", "aria-selected": "false", tabindex: -1,
      on: { click: () => this.go(kind.id), keydown: (event) => this.onTabKey(event, at) },
    }, kind.label)));
  }

  onTabKey(event, at) {
    const kinds = this.kinds();
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: kinds.length - 1 }[event.key];
    if (to === undefined) return;
    const kind = kinds[(to + kinds.length) % kinds.length];
    this.go(kind.id);
    byId(`tab-${kind.id}`).focus();
    event.preventDefault();
  }

  /** Show a view by its address, so that "back" works. */
  go(id) {
    location.hash = `#${id}`;
  }

  /** Show what the address names: `#context`, `#transcript/a398:12`, `#items/r412`. */
  follow() {
    const [id, target] = location.hash.slice(1).split("/", 2);
    const kinds = this.kinds();
    const view = this.select(kinds.some((kind) => kind.id === id) ? id : kinds[0].id);
    if (target !== undefined && view.show) view.show(decoded(target));
  }

  select(id) {
    const kind = this.kinds().find((one) => one.id === id);
    if (!this.views.has(id)) this.views.set(id, new kind(this.model, this.sides));
    const view = this.views.get(id);
    if (this.shown !== id) {
      this.shown = id;
      for (const tab of byId("tabs").children) {
        const isChosen = tab.id === `tab-${id}`;
        tab.setAttribute("aria-selected", isChosen);
        tab.tabIndex = isChosen ? 0 : -1;
      }
      const panel = byId("panel");
      panel.setAttribute("aria-labelledby", `tab-${id}`);
      panel.replaceChildren(view.node);
      this.refresh();
      this.fillWindow();
      view.redraw();
    }
    return view;
  }

  /** Let the scrolling parts of the view end at the lower edge of the window. */
  fillWindow() {
    for (const part of byId("panel").querySelectorAll(".list, .detail")) {
      const top = part.getBoundingClientRect().top + scrollY;
      part.style.height = `${Math.max(FILLED_MIN, innerHeight - top - FILLED_MARGIN)}px`;
    }
  }

  /** Draw the shown view again if its data have changed. */
  refresh() {
    if (this.changed.delete(this.shown)) this.views.get(this.shown).update();
  }

  redraw() {
    this.views.get(this.shown)?.redraw();
  }

  bindKeys() {
    byId("key-list").replaceChildren(...termList(KEYS).childNodes);
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
      const isTyping = event.target.matches("input[type=search], select");
      if (event.key === "Escape") byId(`tab-${this.shown}`).focus();
      else if (isTyping) return;
      else if (event.key === "/") this.startSearch();
      else if (event.key === "?") byId("keys").showModal();
      else if (event.key === "t") this.nextTheme();
      else if (/^[1-9]$/.test(event.key) && this.kinds()[event.key - 1]) this.go(this.kinds()[event.key - 1].id);
      else return;
      event.preventDefault();
    });
  }

  /** Focus the search of the view, or of the transcript where the view has none. */
  startSearch() {
    const hasSearch = this.views.get(this.shown).focusSearch;
    const id = hasSearch || !this.kinds().includes(TranscriptView) ? this.shown : "transcript";
    if (id !== this.shown) this.go(id);
    this.select(id).focusSearch?.();
  }

  nextTheme() {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length];
    storeTheme(next);
    this.setTheme(next);
  }

  setTheme(name) {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    byId("theme").textContent = `Theme: ${THEMES[name]}`;
    this.redraw();
  }

  /** Take the updates of a running session. They are drawn at most once a frame. */
  listen() {
    const path = this.model.live;
    const source = new EventSource(path.includes("?") ? path : path + location.search);
    const say = (text) => (byId("live").textContent = text);
    source.addEventListener("open", () => say("live"));
    source.addEventListener("error", () => say(source.readyState === EventSource.CLOSED ? "not live any more" : "connecting again …"));
    source.addEventListener("update", (event) => this.merge(JSON.parse(event.data)));
    source.addEventListener("reload", () => location.reload());
    source.addEventListener("end", () => {
      source.close();
      say("longrein inspect has ended");
    });
  }

  merge(update) {
    this.model.merge(update);
    for (const id of this.views.keys()) this.changed.add(id);
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.drawHeader();
      this.refresh();
    });
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A page of a file may have no storage: then the theme lasts as long as the page. */
function storedTheme() {
  try {
    const name = localStorage.getItem(THEME_KEY) ?? "";
    return name in THEMES ? name : "";
  } catch {
    return "";
  }
}

function storeTheme(name) {
  try {
    localStorage.setItem(THEME_KEY, name);
  } catch {
    // nothing is kept
  }
}

new App(JSON.parse(byId("data").textContent));
document.documentElement.dataset.ready = Math.round(performance.now());
