// The sequence: every message between client and agent, folded by session and turn.
const NOTED = new Set(["model", "command", "mcp", "compaction", "subagent", "run"]);
function sequenceRows() {
  const items = [];
  for (const message of trace.messages) if (isShown(message)) items.push(message);
  if (state.spans) for (const span of trace.spans) if (NOTED.has(span.kind) && !(span.kind === "run" && span.children.length) && isShown(span)) items.push(span);
  if (state.session < 0) for (const note of trace.notes) if (isShown(note)) items.push(note);
  items.sort((a, b) => a.t - b.t || (a.type === "s") - (b.type === "s"));
  if (state.flat || state.query) return runs(items);
  const groups = new Map();
  for (const item of items) {
    const turn = item.type === "m" ? item.turn : item.type === "s" ? turnOf(item) : null;
    const key = turn ? `t${turn.id}` : `s${item.session}`;
    if (!groups.has(key)) groups.set(key, { type: "g", key, turn, session: item.session, items: [], t: turn ? turn.t : item.t });
    groups.get(key).items.push(item);
  }
  const rows = [];
  for (const group of [...groups.values()].sort((a, b) => a.t - b.t)) {
    rows.push(group);
    if (!state.folded.has(group.key)) rows.push(...runs(group.items));
  }
  return rows;
}
// Neighbours of the same kind become one row, which can be expanded.
function runs(items) {
  const rows = [];
  for (const item of items) {
    const last = rows[rows.length - 1];
    const kind = item.type === "m" && item.update && !item.error && !item.call ? `${item.session} ${item.update}` : null;
    if (kind && last && last.kind === kind) { last.items.push(item); last.size += item.size; continue; }
    if (kind) rows.push({ type: "r", kind, items: [item], t: item.t, session: item.session, size: item.size });
    else rows.push(item);
  }
  return rows.flatMap((row) => {
    if (row.type !== "r") return [row];
    if (row.items.length === 1) return row.items;
    row.key = `r${row.items[0].t}${row.kind}`;
    return state.expanded.has(row.key) ? [row, ...row.items] : [row];
  });
}
function drawSequenceRow(row) {
  if (row.type === "g") {
    const title = row.turn ? `Turn ${row.turn.number}` : row.session >= 0 ? "Between turns" : "Connection";
    const facts = [row.session >= 0 && `session ${shortId(sessionName(row.session))}`, row.turn && duration(row.turn.took), row.turn && (row.turn.facts.stop || row.turn.facts.end), `${row.items.length} records`];
    const folded = state.folded.has(row.key);
    return h("div", { class: `row group ${row.turn && row.turn.error ? "bad" : ""}`, "aria-expanded": !folded }, h("span", { class: "fold", "aria-hidden": "true" }, folded ? "▸" : "▾"), h("span", { class: "text" }, title), h("span", { class: "more" }, facts.filter(Boolean).join(" · ")));
  }
  const time = h("span", { class: "t" }, clock(row.t));
  if (row.type === "s") {
    const text = `${row.kind} ${row.name}`;
    return h("div", { class: `row span-row ${row.error ? "bad" : ""}` }, time, h("span", { class: "lane" }), h("span", { class: "note" }, h("span", { class: "pill" }, h("i", { class: `dot k-${row.kind}` }), h("span", { class: "text" }, text), h("span", { class: "dim" }, ` ${duration(row.took)}`))));
  }
  if (row.type === "n") return h("div", { class: "row" }, time, h("span", { class: "note" }, row.text));
  const first = row.type === "r" ? row.items[0] : row;
  const open = row.type === "r" && state.expanded.has(row.key);
  const text = row.type === "r" ? `${open ? "▾" : "▸"} ${first.text} × ${row.items.length}` : row.text;
  const wire = h("span", { class: `wire ${first.out ? "out" : "in"} ${first.reply ? "reply" : ""}` });
  const side = row.type === "r" ? bytes(row.size) : [row.took !== null && `after ${duration(row.took)}`, bytes(row.size)].filter(Boolean).join(" · ");
  return h("div", { class: `row ${row.error ? "bad" : ""}`, "aria-label": `${first.out ? "agent to client" : "client to agent"}: ${text}` }, time, h("span", { class: "lane" }, h("span", { class: "text" }, text), wire), h("span", { class: "note" }, side));
}
function viewSequence(view, tools) {
  const toggle = (name, label) => h("button", { type: "button", "aria-pressed": state[name], onclick: (event) => { state[name] = !state[name]; event.target.setAttribute("aria-pressed", state[name]); refresh(); } }, label);
  const foldAll = (fold) => { state.folded = new Set(fold ? sequenceRows().filter((row) => row.type === "g").map((row) => row.key) : []); refresh(); };
  tools.replaceChildren(toggle("spans", "Inside"), " ", toggle("flat", "By time"), " ", h("button", { type: "button", onclick: () => foldAll(true) }, "Fold all"), " ", h("button", { type: "button", onclick: () => foldAll(false) }, "Unfold"));
  view.append(h("div", { class: "lanes-head" }, h("span", { class: "t" }, "s"), h("span", { class: "lane" }, h("span", {}, "client"), h("span", {}, "agent")), h("span", { class: "note" }, "inside the agent")));
  const holder = h("div", { class: "seq", style: { display: "contents" } });
  view.append(holder);
  const list = new VirtualList(holder, 30, drawSequenceRow, "Messages");
  list.onOpen = (row) => {
    if (row.type === "g") { toggleIn(state.folded, row.key); refresh(); }
    else if (row.type === "r") { toggleIn(state.expanded, row.key); refresh(); showDetail({ ...row.items[0], body: row.items.map((item) => item.body).join("\n") }); }
    else if (row.type !== "n") showDetail(row);
  };
  list.onFold = (row, key) => {
    if (!row || row.type === "m") return;
    const set = row.type === "g" ? state.folded : state.expanded;
    const has = set.has(row.key), wants = row.type === "g" ? key === "ArrowLeft" : key === "ArrowRight";
    if (key === "Enter" || has !== wants) { toggleIn(set, row.key); refresh(); }
  };
  const refresh = () => list.set(sequenceRows());
  return refresh;
}
function toggleIn(set, key) { if (!set.delete(key)) set.add(key); }
