// The timing: a waterfall of spans. A wait for the user is hatched; the light part of a request is the wait for its first byte.
function timingRows() {
  const rows = [];
  const add = (span, depth) => {
    const shown = isShown(span);
    const matches = shown || (state.query && span.children.some(function find(child) { return isShown(child) || child.children.some(find); }));
    if (!matches) return;
    // A run that only contains a command or a call adds nothing to it.
    const inner = span.kind === "run" && span.children.length === 1 ? span.children[0].children : span.children;
    if (span.kind === "run" && span.children.length === 1) return add(span.children[0], depth);
    rows.push({ span, depth, hasMore: span.children.length > 0 });
    if (!state.folded.has(span.id)) for (const child of inner) add(child, depth + 1);
  };
  for (const root of trace.roots) {
    if (root.kind === "sync" && !state.syncs) continue;
    add(root, 0);
  }
  return rows;
}
function viewTiming(view, tools) {
  const whole = () => [0, Math.max(trace.end, 1)];
  state.range = state.range || whole();
  const axis = h("div", { class: "plot" });
  view.append(h("div", { class: "axis" }, h("span", { class: "label" }, "what"), axis));
  const holder = h("div", { style: { display: "contents" } });
  view.append(holder);
  const list = new VirtualList(holder, 26, drawRow, "Spans");
  const used = new Set(trace.spans.map((span) => span.kind));
  view.append(h("div", { class: "legend" }, KINDS.filter((kind) => used.has(kind)).map((kind) => h("span", {}, h("i", { class: `dot k-${kind}` }), kind)), h("span", {}, "drag to zoom · + − 0 · hatched: waiting for the user · light: before the first byte")));
  const zoom = (factor) => {
    const [from, to] = state.range, middle = (from + to) / 2, half = ((to - from) * factor) / 2;
    setRange(middle - half, middle + half);
  };
  function setRange(from, to) {
    const [least, most] = whole();
    if (to - from < 0.05) return;
    state.range = [Math.max(least, from), Math.min(most, to)];
    refresh();
  }
  const button = (label, name, act) => h("button", { type: "button", title: name, "aria-label": name, onclick: act }, label);
  const reset = () => setRange(...whole());
  tools.replaceChildren(button("+", "Zoom in", () => zoom(0.5)), " ", button("−", "Zoom out", () => zoom(2)), " ", button("All", "Show all", reset), " ", used.has("sync") ? h("button", { type: "button", "aria-pressed": !!state.syncs, onclick: (event) => { state.syncs = !state.syncs; event.target.setAttribute("aria-pressed", state.syncs); refresh(); } }, "Journal syncs") : "");
  view.onkeydown = (event) => {
    const [from, to] = state.range, step = (to - from) / 5;
    if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else if (event.key === "0") reset();
    else if (event.key === "[") setRange(from - step, to - step);
    else if (event.key === "]") setRange(from + step, to + step);
    else return;
    event.preventDefault();
  };
  // Drag over the plot to zoom into a part of it.
  view.onpointerdown = (event) => {
    const plot = axis.getBoundingClientRect();
    if (event.clientX < plot.left || event.button !== 0) return;
    const start = event.clientX;
    const brush = h("div", { class: "brush" });
    view.style.position = "relative";
    const box = view.getBoundingClientRect();
    const move = (moved) => {
      if (!brush.isConnected && Math.abs(moved.clientX - start) > 4) view.append(brush);
      brush.style.left = `${Math.min(start, moved.clientX) - box.left}px`;
      brush.style.width = `${Math.abs(moved.clientX - start)}px`;
    };
    const up = (ended) => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", up);
      brush.remove();
      if (Math.abs(ended.clientX - start) < 5) return;
      const [from, to] = state.range, at = (x) => from + ((x - plot.left) / plot.width) * (to - from);
      setRange(at(Math.min(start, ended.clientX)), at(Math.max(start, ended.clientX)));
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", up);
  };
  view.onwheel = (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8);
  };
  function ticks() {
    const [from, to] = state.range, width = axis.clientWidth || 800, wish = (to - from) / Math.max(2, width / 110);
    const power = 10 ** Math.floor(Math.log10(wish));
    const step = [1, 2, 5, 10].map((part) => part * power).find((value) => value >= wish);
    const list = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) list.push([(100 * (at - from)) / (to - from), at]);
    return list;
  }
  function drawRow({ span, depth, hasMore }) {
    const [from, to] = state.range, scale = 100 / (to - from);
    const left = (span.t - from) * scale, width = span.took * scale;
    const classes = ["bar", `k-${span.kind}`];
    if (span.kind === "permission") classes.push("hatched");
    if (span.facts.end === "failed") classes.push("failed");
    if (span.facts.end === "cancelled") classes.push("cancelled");
    const first = span.facts.first;
    const bar = h("span", { class: classes.join(" "), style: { left: `${left}%`, width: `${Math.max(width, 0)}%` } }, first !== undefined && span.took > 0 && h("span", { class: "wait", style: { width: `${Math.min(100, (100 * first) / span.took)}%` } }));
    const end = left + width;
    // Behind the bar, or before it, or inside one that leaves no room.
    const place = end < 88 ? { left: `calc(${Math.max(end, 0)}% + 6px)` } : left > 12 ? { right: `calc(${100 - Math.min(100, left)}% + 6px)` } : { left: `calc(${Math.max(left, 0)}% + 8px)`, color: "var(--ink)" };
    const took = h("span", { class: "took", style: place }, left > 100 || end < 0 ? "" : duration(span.took));
    const name = span.kind === "turn" ? `Turn ${span.number}${span.session >= 0 ? ` · ${shortId(sessionName(span.session))}` : ""}` : `${span.name}`;
    const fold = h("span", { class: "fold", "aria-hidden": "true", onclick: (event) => { if (hasMore) { event.stopPropagation(); toggleIn(state.folded, span.id); refresh(); } } }, hasMore ? (state.folded.has(span.id) ? "▸" : "▾") : "");
    const lines = ticks().map(([at]) => h("span", { class: "tick", style: { left: `${at}%` } }));
    return h("div", { class: `row ${span.error ? "bad" : ""}`, "aria-label": `${span.kind} ${name}, ${duration(span.took)}, begins at ${clock(span.t)} s` }, h("span", { class: "label", style: { paddingLeft: `${8 + Math.min(depth, 6) * 12}px` }, title: `${span.kind} ${span.name}` }, fold, h("i", { class: `dot k-${span.kind}` }), h("span", { class: "name" }, name)), h("span", { class: "plot" }, lines, bar, took));
  }
  list.onOpen = (row) => showDetail(row.span);
  list.onFold = (row, key) => { if (row && (key === "Enter" || state.folded.has(row.span.id) === (key === "ArrowRight"))) { toggleIn(state.folded, row.span.id); refresh(); } };
  const refresh = () => {
    axis.replaceChildren(...ticks().map(([at, time]) => h("span", { class: "tick", style: { left: `${at}%` } }, duration(time) || "0")));
    list.set(timingRows());
  };
  new ResizeObserver(() => refresh()).observe(axis);
  return refresh;
}
