// The trace as the page has it: messages, spans and notes, in arrays as they were written. See view/html.rs.
const KINDS = ["turn", "model", "tool", "run", "permission", "command", "mcp", "subagent", "compaction", "client", "request", "sync"];
const trace = { messages: [], spans: [], notes: [], sessions: [], start: 0 };
function readTrace() {
  for (const block of document.querySelectorAll("script.rows")) {
    for (const row of JSON.parse(block.textContent)) {
      const [type, ...rest] = row;
      if (type === "m") {
        const [t, out, size, method, id, session, took, reply, text, error, update, call, body] = rest;
        trace.messages.push({ type, t, out, size, method, id, session, took, reply, text, error, update, call, body, at: t });
      } else if (type === "s") {
        const [t, took, id, parent, kind, name, session, facts] = rest;
        trace.spans.push({ type, t, took, id, parent, kind, name, session, facts, children: [], error: facts.error, call: facts.call, at: t });
      } else trace.notes.push({ type, t: rest[0], at: rest[0], text: rest[1], session: -1 });
    }
    block.remove();
  }
  Object.assign(trace, JSON.parse(document.getElementById("about").textContent));
  trace.spans.sort((a, b) => a.t - b.t || b.took - a.took);
  trace.byId = new Map(trace.spans.map((span) => [span.id, span]));
  trace.roots = [];
  for (const span of trace.spans) {
    const parent = span.parent && trace.byId.get(span.parent);
    if (parent) { parent.children.push(span); span.up = parent; } else trace.roots.push(span);
  }
  trace.turns = trace.spans.filter((span) => span.kind === "turn");
  trace.turns.forEach((turn, index) => { turn.number = index + 1; });
  trace.end = 0;
  for (const span of trace.spans) trace.end = Math.max(trace.end, span.t + span.took);
  for (const message of trace.messages) trace.end = Math.max(trace.end, message.t);
  assignTurns();
}
// Gives each message the turn it belongs to: those of its session between the call with the turn's id and the reply.
function assignTurns() {
  const open = new Map(), known = new Map();
  for (const turn of trace.turns) {
    const key = `${turn.session} ${turn.facts.request}`;
    if (!known.has(key)) known.set(key, []);
    known.get(key).push(turn);
  }
  for (const message of trace.messages) {
    const isPrompt = message.method === "session/prompt";
    if (isPrompt && !message.reply) {
      // After a restart the same ids may come again.
      const turns = known.get(`${message.session} ${message.id}`);
      if (turns && turns.length) open.set(message.session, turns.shift());
    }
    message.turn = open.get(message.session);
    if (isPrompt && message.reply) open.delete(message.session);
  }
}
function turnOf(span) {
  let up = span;
  while (up && up.kind !== "turn") up = up.up;
  return up || null;
}
const sessionName = (index) => (index >= 0 ? trace.sessions[index] : "");
const shortId = (id) => (id.length > 13 ? `…${id.slice(-8)}` : id);
const clock = (t) => { const s = t / 1000; return s < 1000 ? s.toFixed(3) : s.toFixed(1); };
function textOf(item) {
  if (item.type === "m") return `${item.text} ${item.id ?? ""} ${sessionName(item.session)} ${item.body ?? ""}`;
  if (item.type === "s") return `${item.kind} ${item.name} ${item.error ?? ""} ${item.call ?? ""} ${sessionName(item.session)}`;
  return item.text;
}
const state = { tab: "sequence", query: "", session: -1, folded: new Set(), expanded: new Set(), flat: false, spans: true, range: null };
function isShown(item) {
  if (state.session >= 0 && item.session !== state.session) return false;
  return !state.query || textOf(item).toLowerCase().includes(state.query);
}
// The pane with everything about one record.
function showDetail(item) {
  const detail = document.getElementById("detail");
  document.querySelector("main").classList.toggle("has-detail", !!item);
  if (!item) return detail.replaceChildren();
  const rows = [];
  const fact = (name, value) => { if (value !== null && value !== undefined && value !== "") rows.push(h("dt", {}, name), h("dd", {}, value)); };
  fact("At", `${clock(item.t)} s · ${new Date(trace.start + item.t).toISOString()}`);
  fact("Session", sessionName(item.session));
  const more = [];
  if (item.type === "m") {
    fact("Direction", item.out ? "agent → client" : "client → agent");
    fact("Id", item.id);
    fact("Answered after", item.took === null ? null : duration(item.took));
    fact("Size", bytes(item.size));
    fact("Turn", item.turn && `${item.turn.number} (${duration(item.turn.took)})`);
    more.push(h("h3", {}, "Message"), h("pre", { tabindex: "0" }, pretty(item.body)));
  } else if (item.type === "s") {
    fact("Kind", item.kind);
    fact("Took", duration(item.took));
    const names = { end: "Ended", request: "Request", call: "Tool call", model: "Model", mode: "Mode", stop: "Stop reason", cwd: "Folder", retries: "Retries", in: "Tokens in", out: "Tokens out", read: "From cache", write: "To cache", window: "Context window", traceparent: "Trace context" };
    fact("First byte after", item.facts.first === undefined ? null : duration(item.facts.first));
    for (const [key, name] of Object.entries(names)) fact(name, item.facts[key]);
    fact("Cost", item.facts.cost === undefined ? null : money(item.facts.cost));
    if (item.error) more.push(h("h3", {}, "Error"), h("pre", {}, item.error));
    const waits = waitsOf(item);
    if (waits.length) more.push(h("h3", {}, "What it waited for"), h("table", {}, h("tbody", {}, waits.map(([kind, took]) => h("tr", {}, h("td", {}, h("i", { class: `dot k-${kind}` }), kind === "self" ? "itself" : kind), h("td", { class: "num" }, duration(took)), h("td", { class: "num dim" }, `${Math.round((100 * took) / (item.took || 1))} %`))))));
  }
  detail.replaceChildren(h("header", {}, h("h2", {}, item.type === "s" ? item.name : item.text), h("button", { type: "button", "aria-label": "Close details", onclick: () => showDetail(null) }, "✕")), h("dl", {}, rows), ...more);
  detail.scrollTop = 0;
}
function pretty(body) {
  if (!body) return "(not recorded: too long, or not a message)";
  try { return JSON.stringify(JSON.parse(body), null, 2); } catch { return body; }
}
// Where the time of a span went: the parts of its children, and the rest as its own.
function waitsOf(span) {
  if (!span.children.length) return [];
  const parts = new Map();
  let covered = 0, until = span.t;
  for (const child of span.children) {
    parts.set(child.kind, (parts.get(child.kind) || 0) + child.took);
    const from = Math.max(until, child.t), to = child.t + child.took;
    if (to > from) { covered += to - from; until = to; }
  }
  const list = [...parts].sort((a, b) => b[1] - a[1]);
  list.push(["self", Math.max(0, span.took - covered)]);
  return list;
}
