// The sessions that are open: a table with a link to the live page of each.

class OpenSessionsModel {
  constructor(given) {
    this.title = "Open sessions";
    this.live = given.live ?? "";
    this.merge(given);
  }

  /** Take the whole list. */
  merge(given) {
    this.sessions = given.open_sessions;
  }

  facts() {
    const { sessions } = this;
    const waiting = sessions.filter((one) => one.state === "asks").length;
    return [["Open", count(sessions.length)], ["Waiting for an answer", count(waiting)], ["Money", money(total(sessions, (one) => one.usd))]];
  }
}

class OpenSessionsView {
  static id = "sessions";
  static label = "Open sessions";

  constructor(model) {
    this.model = model;
    this.node = element("section", {});
    this.update();
  }

  /** Draw the table, in the order of the server: sessions that wait for an answer come first. */
  update() {
    this.node.replaceChildren(sortableTable("Sessions that are open", [
      { label: "Session", value: (one) => one.title || one.session, cell: (one) => this.link(one) },
      { label: "State", value: (one) => one.state, cell: (one) => this.state(one) },
      { label: "Since", value: (one) => one.since_us, cell: (one) => dateTime(one.since_us) },
      { label: "Folder", value: (one) => one.cwd },
      { label: "Model", value: (one) => one.model },
      { label: "Context", value: (one) => one.context_tokens, cell: (one) => count(one.context_tokens), number: true },
      { label: "Money", value: (one) => one.usd, cell: (one) => money(one.usd), number: true },
    ], this.model.sessions, "No session is open."));
  }

  link(one) {
    return element("a", { href: `/${encodeURIComponent(one.session)}${location.search}` }, one.title || one.session);
  }

  state(one) {
    return [element("span", { class: `chip state-${one.state}` }, one.state), one.question ? ` ${one.question}` : ""];
  }

  redraw() {}

  destroy() {}
}
