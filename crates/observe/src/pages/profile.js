// The profile: where the time went, as an icicle and as a table by operation.
function percentile(sorted, part) { return sorted.length ? sorted[Math.min(sorted.length - 1, Math.ceil(part * sorted.length) - 1)] : 0; }
function operations() {
  const table = new Map();
  const row = (kind, name) => {
    const key = `${kind} ${name}`;
    if (!table.has(key)) table.set(key, { kind, name, took: [], total: 0, self: 0, errors: 0, in: 0, out: 0, cached: 0, cost: 0, first: [] });
    return table.get(key);
  };
  for (const span of trace.spans) {
    if (state.session >= 0 && span.session !== state.session) continue;
    if (state.query && !textOf(span).toLowerCase().includes(state.query)) continue;
    const line = row(span.kind, span.kind === "turn" ? "turn" : span.kind === "command" ? span.name.split(/\s+/)[0] : span.name);
    line.took.push(span.took);
    line.total += span.took;
    const own = waitsOf(span).find(([kind]) => kind === "self");
    line.self += own ? own[1] : span.took;
    if (span.error) line.errors++;
    line.in += span.facts.in || 0;
    line.out += span.facts.out || 0;
    line.cached += span.facts.read || 0;
    line.cost += span.facts.cost || 0;
    if (span.facts.first !== undefined) line.first.push(span.facts.first);
  }
  for (const line of table.values()) {
    line.took.sort((a, b) => a - b);
    line.first.sort((a, b) => a - b);
    line.count = line.took.length;
    line.p50 = percentile(line.took, 0.5);
    line.p95 = percentile(line.took, 0.95);
    line.p99 = percentile(line.took, 0.99);
    line.max = line.took[line.took.length - 1];
  }
  return [...table.values()];
}
// Adds spans of the same name at the same place together.
function fold(spans) {
  const nodes = new Map();
  for (const span of spans) {
    if (span.kind === "sync") continue;
    if (span.kind === "run" && span.children.length === 1) { for (const [key, node] of fold(span.children)) merge(nodes, key, node); continue; }
    const name = span.kind === "turn" ? "turns" : span.kind === "command" ? `$ ${span.name.split(/\s+/)[0]}` : span.name;
    const key = `${span.kind} ${name}`;
    merge(nodes, key, { kind: span.kind, name, took: span.took, count: 1, children: fold(span.children) });
  }
  return nodes;
}
function merge(nodes, key, node) {
  const known = nodes.get(key);
  if (!known) return nodes.set(key, node);
  known.took += node.took;
  known.count += node.count;
  for (const [inner, child] of node.children) merge(known.children, inner, child);
}
function viewProfile(view, tools) {
  tools.replaceChildren();
  const page = h("div", { class: "page" });
  view.append(page);
  let sortBy = "total", focus = null;
  const refresh = () => {
    const rows = operations().sort((a, b) => (sortBy === "name" ? a.name.localeCompare(b.name) : b[sortBy] - a[sortBy]));
    const sum = (key, kind) => rows.filter((row) => !kind || row.kind === kind).reduce((total, row) => total + row[key], 0);
    const card = (value, name) => h("div", { class: "panel card" }, h("b", {}, value), h("span", {}, name));
    const turns = rows.find((row) => row.kind === "turn");
    const first = rows.filter((row) => row.kind === (rows.some((line) => line.kind === "model") ? "model" : "turn")).flatMap((row) => row.first).sort((a, b) => a - b);
    const cards = h("div", { class: "cards" }, card(turns ? turns.count : 0, "turns"), card(turns ? duration(turns.total) : "–", "in turns"), card(first.length ? duration(percentile(first, 0.5)) : "–", "to the first byte (median)"), card(duration(sum("total", "model")) || "–", "in models"), card(duration(sum("total", "permission")) || "–", "waiting for permission"), card(thousands(sum("in") + sum("cached")), "tokens in"), card(thousands(sum("out")), "tokens out"), card(money(sum("cost")), "cost"));
    const spans = trace.roots.filter((span) => (state.session < 0 || span.session === state.session) && span.kind !== "request");
    const icicle = drawIcicle(focus ? [focus] : [...fold(spans).values()], (node) => { focus = focus === node ? null : node; refresh(); });
    const columns = [["name", "operation"], ["count", "count"], ["total", "total"], ["self", "self"], ["p50", "p50"], ["p95", "p95"], ["p99", "p99"], ["max", "max"], ["errors", "errors"], ["in", "tokens in"], ["out", "out"], ["cached", "cached"], ["cost", "cost"]];
    const table = h("table", {}, h("thead", {}, h("tr", {}, columns.map(([key, name]) => h("th", { class: key === "name" ? "" : "num", "aria-sort": key === sortBy ? "descending" : "none" }, h("button", { type: "button", onclick: () => { sortBy = key; refresh(); } }, name, key === sortBy ? " ↓" : ""))))), h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, h("i", { class: `dot k-${row.kind}` }), row.kind === row.name ? row.name : `${row.kind} ${row.name}`), h("td", { class: "num" }, row.count), ["total", "self", "p50", "p95", "p99", "max"].map((key) => h("td", { class: "num" }, duration(row[key]))), h("td", { class: `num ${row.errors ? "bad" : "dim"}` }, row.errors), ["in", "out", "cached"].map((key) => h("td", { class: "num" }, row[key] ? thousands(row[key]) : "")), h("td", { class: "num" }, row.cost ? money(row.cost) : "")))));
    page.replaceChildren(cards, h("section", { class: "panel" }, h("h2", {}, "Where the time went", h("span", { class: "dim" }, focus ? "click again to go back" : "width is time; click to look inside")), icicle), h("section", { class: "panel" }, h("h2", {}, "By operation"), table));
  };
  return refresh;
}
function drawIcicle(nodes, choose) {
  const total = nodes.reduce((sum, node) => sum + node.took, 0) || 1;
  const cells = [];
  let deepest = 0;
  const draw = (list, left, width, depth, all) => {
    deepest = Math.max(deepest, depth);
    let at = left;
    for (const node of [...list].sort((a, b) => b.took - a.took)) {
      const part = (node.took / all) * width;
      if (part < 0.15) continue;
      cells.push(h("button", { type: "button", class: `k-${node.kind}`, title: `${node.kind} ${node.name}: ${duration(node.took)} in ${node.count}`, style: { left: `${at}%`, width: `${part}%`, top: `${depth * 27}px` }, onclick: () => choose(node) }, `${node.name} ${duration(node.took)}`));
      const inner = [...node.children.values()];
      // Parallel children may take longer together than their parent.
      if (depth < 7) draw(inner, at, part, depth + 1, Math.max(node.took, inner.reduce((sum, child) => sum + child.took, 0)));
      at += part;
    }
  };
  draw(nodes, 0, 100, 0, total);
  return h("div", { class: "icicle", style: { height: `${(deepest + 1) * 27 + 4}px` } }, cells);
}
