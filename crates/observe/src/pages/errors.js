// The errors: each with its chain, from the flow it broke to what came next, and counts by flow.
const FLOWS = { turn: "prompt", request: "session", model: "model", tool: "tool", run: "tool", command: "tool", mcp: "MCP", permission: "permission", subagent: "subagent", compaction: "compaction", sync: "journal", client: "client" };
function flowOf(item) {
  if (item.type === "s") return FLOWS[item.kind] || item.kind;
  if (!item.method) return "protocol";
  if (item.method === "initialize" || item.method === "authenticate") return "connection";
  if (item.method === "session/prompt") return "prompt";
  return item.method.startsWith("session/") ? "session" : "client";
}
function findErrors() {
  const errors = [];
  const hidden = new Set();
  for (const span of trace.spans) {
    // A run fails with its tool call, which says more.
    if (!span.error || span.kind === "run" || !isShown(span)) continue;
    // The innermost span has the cause; those around it are its chain.
    let up = span.up;
    while (up) { if (up.error) hidden.add(up); up = up.up; }
    errors.push(span);
  }
  const prompts = new Set(trace.turns.filter((turn) => turn.error).map((turn) => `${turn.session} ${turn.facts.request}`));
  for (const message of trace.messages) {
    if (!message.error || !isShown(message)) continue;
    if (message.method === "session/prompt" && prompts.has(`${message.session} ${message.id}`)) continue;
    errors.push(message);
  }
  return errors.filter((error) => !hidden.has(error)).sort((a, b) => a.t - b.t);
}
function chainOf(error) {
  const chain = [];
  if (error.type === "s") {
    const ups = [];
    for (let up = error.up; up; up = up.up) if (up.kind !== "run") ups.unshift(up);
    for (const up of ups) chain.push(["during", up, `${up.kind === "turn" ? `turn ${up.number}` : `${up.kind} ${up.name}`}${up.error ? `, which failed: ${up.error}` : ""}`]);
    if (error.facts.retries) chain.push(["retries", null, `sent again ${error.facts.retries} times before it failed`]);
    const { failedCalls, failedTurns } = errorIndex();
    const shown = (error.call && failedCalls.get(`${error.session} ${error.call}`)) || failedTurns.get(turnOf(error));
    if (shown) chain.push(["shown as", shown, shown.text]);
  } else if (error.turn) chain.push(["during", error.turn, `turn ${error.turn.number}`]);
  const end = error.t + (error.took || 0);
  const next = nextAfter(error, end);
  if (next) chain.push(["came next", next, next.type === "s" ? `${next.kind} ${next.name}` : next.text]);
  return chain;
}
// What errors are looked up in: a long trace has many of both.
function errorIndex() {
  if (trace.index) return trace.index;
  const failedCalls = new Map(), failedTurns = new Map(), replies = new Map(), steps = new Map();
  for (const message of trace.messages) {
    const key = `${message.session} ${message.call}`;
    if (message.call && message.out && message.text.includes("failed") && !failedCalls.has(key)) failedCalls.set(key, message);
    if (message.turn && message.error && !failedTurns.has(message.turn)) failedTurns.set(message.turn, message);
    if (message.turn && message.reply && message.method === "session/prompt") replies.set(message.turn, message);
  }
  for (const span of trace.spans) {
    if (!["model", "tool", "turn"].includes(span.kind)) continue;
    if (!steps.has(span.session)) steps.set(span.session, []);
    steps.get(span.session).push(span);
  }
  return (trace.index = { failedCalls, failedTurns, replies, steps });
}
function nextAfter(error, end) {
  const { replies, steps } = errorIndex();
  const list = steps.get(error.session) || [];
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].t <= end) low = middle + 1; else high = middle;
  }
  const next = list[low] || null;
  const turn = error.type === "s" ? turnOf(error) : error.turn;
  if (turn && (!next || turnOf(next) !== turn)) return replies.get(turn) || next;
  return next;
}
function viewErrors(view, tools) {
  tools.replaceChildren();
  const page = h("div", { class: "page" });
  view.append(page);
  return () => {
    const errors = findErrors();
    const counts = new Map();
    for (const error of errors) counts.set(flowOf(error), (counts.get(flowOf(error)) || 0) + 1);
    const retries = trace.spans.reduce((sum, span) => sum + (span.facts.retries || 0), 0);
    const card = (value, name, bad) => h("div", { class: "panel card" }, h("b", { class: bad && value ? "bad" : "" }, value), h("span", {}, name));
    const cards = h("div", { class: "cards" }, card(errors.length, "errors", true), [...counts].map(([flow, count]) => card(count, `in flow “${flow}”`, true)), card(retries, "retries of model requests"), card(trace.spans.filter((span) => span.facts.end === "rejected").length, "permissions rejected"));
    const shown = errors.slice(0, 500).map((error) => {
      const chain = chainOf(error);
      return h("div", { class: "panel error" }, h("div", { class: "head" }, h("span", { class: "t" }, clock(error.t)), h("span", { class: "what" }, error.type === "s" ? `${error.kind} ${error.name}` : error.text), h("span", { class: "dim" }, flowOf(error), error.session >= 0 ? ` · session ${shortId(sessionName(error.session))}` : "")), error.error && h("div", { class: "mono" }, error.error), h("ul", { class: "chain" }, h("li", {}, h("span", { class: "role" }, "failed"), h("button", { type: "button", onclick: () => showDetail(error) }, "show everything about it")), chain.map(([role, item, text]) => h("li", {}, h("span", { class: "role" }, role), item ? h("button", { type: "button", onclick: () => showDetail(item) }, text) : h("span", {}, text)))));
    });
    page.replaceChildren(cards, ...shown, errors.length > 500 ? h("p", { class: "dim" }, `${errors.length - 500} more; search to find them.`) : "", errors.length === 0 ? h("div", { class: "panel empty" }, "No errors here.") : "");
  };
}
