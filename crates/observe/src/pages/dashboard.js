// The dashboard: asks for the state every second and draws it. Everything that comes from agents is put in as text.
const parameters = new URLSearchParams(location.search);
const token = parameters.get("token") || sessionStorage.getItem("token") || "";
// The token must not stay in the history or be copied with the address.
sessionStorage.setItem("token", token);
history.replaceState(null, "", location.pathname);
const names = { round_trip: "Round trip", first_chunk: "First chunk", tool: "Tool call", permission: "Permission wait" };
let state = null, previous = null, period = "minute", open = null, lastRow = 0;
const $ = (id) => document.getElementById(id);
function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
async function ask(path) {
  const answer = await fetch(path, { headers: { authorization: `Bearer ${token}` }, cache: "no-store" });
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}
async function update() {
  const begun = performance.now();
  try {
    previous = state;
    state = await ask("/state");
    draw();
    if (open) await updateLive();
    $("status").textContent = state.lost ? `Live. ${state.lost} records were lost, because an agent sent more than could be read.` : "Live";
    $("status").className = "dim";
  } catch (error) {
    $("status").textContent = error.message === "403" ? "The token is missing or wrong: open the address that `purlin dashboard` prints." : "The dashboard has ended. Start it again with `purlin dashboard`.";
    $("status").className = "bad";
  }
  setTimeout(update, Math.max(200, 900 - (performance.now() - begun)));
}
function draw() {
  drawCards();
  drawRates();
  drawErrors();
  drawMethods();
  drawLatencies();
  drawSessions();
  drawProcesses();
}
function drawCards() {
  const last = state.minute.slice(-3);
  const rate = (index) => (last.reduce((sum, second) => sum + second[index], 0) / last.length).toFixed(1);
  const errors = state.minute.reduce((sum, second) => sum + second[2], 0);
  const alive = state.processes.filter((one) => !one.ended);
  const card = (value, name, bad) => h("div", { class: "panel card" }, h("b", { class: bad ? "bad" : "" }, value), h("span", {}, name));
  $("cards").replaceChildren(card(alive.length, alive.length === 1 ? "process" : "processes"), card(state.session_count, state.session_count === 1 ? "session" : "sessions"), card(state.running, "turns running"), card(rate(0), "received per second"), card(rate(1), "sent per second"), card(errors, "errors in the last minute", errors > 0), card(thousands(state.tokens_in + state.tokens_out), "tokens"), card(money(state.cost), "cost"));
}
function drawRates() {
  const points = state[period];
  // In units of the screen, so that nothing is stretched.
  const width = Math.max(240, $("rates").clientWidth - 28), height = 190, bottom = height - 20, left = 34;
  const most = Math.max(1, ...points.flatMap((point) => [point[0], point[1]]));
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000].find((value) => value * 4 >= most) || most / 4;
  const top = Math.max(step, Math.ceil(most / step) * step);
  const x = (index) => left + (index / (points.length - 1)) * (width - left);
  const y = (value) => bottom - (value / top) * (bottom - 8);
  const parts = [];
  for (let value = 0; value <= top; value += step) parts.push(svg("line", { class: "gridline", x1: left, x2: width, y1: y(value), y2: y(value) }), svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  const line = (index, colour) => {
    const path = points.map((point, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(point[index]).toFixed(1)}`).join("");
    parts.push(svg("path", { d: `${path}L${width} ${bottom}L${left} ${bottom}Z`, fill: colour, opacity: 0.12 }), svg("path", { d: path, fill: "none", stroke: colour, "stroke-width": 1.8, "stroke-linejoin": "round" }));
  };
  line(1, "var(--model)");
  line(0, "var(--accent)");
  points.forEach((point, at) => { if (point[2]) parts.push(svg("circle", { cx: x(at), cy: bottom, r: 3.2, fill: "var(--bad)" })); });
  const ago = period === "minute" ? ["60 s", "30 s", "now"] : ["60 min", "30 min", "now"];
  ago.forEach((text, index) => parts.push(svg("text", { x: left + (index / 2) * (width - left), y: height - 4, "text-anchor": ["start", "middle", "end"][index] }, text)));
  const sum = (index) => points.reduce((total, point) => total + point[index], 0);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `Messages per second in the last ${period}: up to ${most.toFixed(1)}, ${Math.round(sum(2))} errors` }, ...parts);
  const key = (colour, text) => h("span", {}, h("i", { style: { background: colour } }), text);
  $("rates").replaceChildren(picture, h("div", { class: "key" }, key("var(--accent)", "received"), key("var(--model)", "sent"), key("var(--bad)", "errors")));
}
function bars(rows, colour) {
  const most = Math.max(1, ...rows.map((row) => row[1]));
  return rows.map(([name, count, side]) => h("div", { class: "bar-row" }, h("span", { title: name }, side ? h("span", { class: `arrow ${side === "→" ? "in" : "out"}` }, `${side} `) : "", name), h("span", { class: "num" }, count.toLocaleString("en")), h("div", {}, h("i", { style: { width: `${(100 * count) / most}%`, background: colour } }))));
}
function drawErrors() {
  const total = state.errors.reduce((sum, row) => sum + row[1], 0);
  $("errors").replaceChildren(...bars(state.errors, "var(--bad)"), h("span", { class: total ? "bad" : "good" }, total ? `${total} in all` : "No errors"));
}
function drawMethods() {
  const rows = state.methods.map(([out, name, count]) => [name.replace("session/update ", "update: "), count, out ? "←" : "→"]).sort((a, b) => b[1] - a[1]);
  $("methods").replaceChildren(...(rows.length ? bars(rows, "var(--accent)") : [h("span", { class: "dim" }, "No messages since the dashboard was opened.")]));
}
function drawLatencies() {
  $("latencies").replaceChildren(...state.latencies.map((one) => {
    const most = Math.max(1, ...one.counts), width = 10;
    const cells = one.counts.map((count, at) => svg("rect", { x: at * width + 0.8, y: 70 - (66 * count) / most, width: width - 1.6, height: Math.max(count ? 2 : 0.6, (66 * count) / most), rx: 1.4, fill: count ? "var(--accent)" : "var(--line)" }, svg("title", {}, `${at < one.limits.length ? `up to ${duration(one.limits[at])}` : "longer"}: ${count}`)));
    const picture = svg("svg", { viewBox: `0 0 ${one.counts.length * width} 72`, preserveAspectRatio: "none", role: "img", "aria-label": `${names[one.name]}: ${one.count} measured, median below ${duration(one.p50)}` }, ...cells);
    const text = one.count ? `p50 ≤ ${duration(one.p50)} · p95 ≤ ${duration(one.p95)} · p99 ≤ ${duration(one.p99)}` : "nothing measured yet";
    return h("div", { class: "panel" }, h("h2", {}, names[one.name], h("span", { class: "dim num" }, one.count.toLocaleString("en"))), h("div", { class: "histogram" }, picture, h("p", {}, h("span", {}, "1 ms"), h("span", {}, "60 s")), h("p", {}, text)));
  }));
}
function health(session) {
  if (session.gone) return ["ended", ""];
  if (session.asking_since) return [`asks since ${duration(state.now - session.asking_since)}`, "asks"];
  if (session.turn_since) return [`runs since ${duration(state.now - session.turn_since)}`, "runs"];
  if (session.last_error && session.last_error[0] >= session.active - 1) return ["failed", "failed"];
  return ["idle", ""];
}
// Draws a table. An item is a row with a key and all that it shows; a row that shows the same as before stays.
function drawTable(table, columns, items, empty) {
  if (!table.tBodies.length) table.replaceChildren(h("thead", {}, h("tr", {}, columns.map(([name, num]) => h("th", { scope: "col", class: num ? "num" : "" }, name)))), h("tbody", {}));
  const body = table.tBodies[0];
  const all = items.length ? items : [{ key: "", shown: "", make: () => h("tr", {}, h("td", { colspan: columns.length, class: "empty" }, empty)) }];
  const focused = body.contains(document.activeElement) ? document.activeElement.key : null;
  const known = new Map([...body.rows].map((row) => [row.key, row]));
  let at = body.firstElementChild;
  for (const { key, shown, make } of all) {
    let row = known.get(key);
    known.delete(key);
    if (!row || row.shown !== shown) {
      const fresh = Object.assign(make(), { key, shown });
      if (row === at && row) at = fresh;
      if (row) row.replaceWith(fresh);
      row = fresh;
    }
    if (row === at) at = at.nextElementSibling;
    else body.insertBefore(row, at);
    // Drawing again must not take the keyboard's place in a table away.
    if (key === focused && row !== document.activeElement) row.focus({ preventScroll: true });
  }
  for (const row of known.values()) row.remove();
}
function drawSessions() {
  $("session-count").textContent = state.session_count > state.sessions.length ? `${state.sessions.length} of ${state.session_count}, the last active first` : "";
  const row = (one, text, kind) => {
    const part = one.window ? one.context / one.window : 0;
    const name = one.title || (one.cwd || "").split("/").filter(Boolean).pop() || one.session;
    const choose = () => openLive(one);
    return h("tr", { class: `link ${one.gone ? "gone" : ""} ${open && open.session === one.session ? "sel" : ""}`, tabindex: "0", "aria-label": `Session ${name}, ${text}. Press Enter for its live sequence.`, onclick: choose, onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); choose(); } } },
      h("td", {}, h("span", { class: `state ${kind}` }, text)), h("td", { title: one.cwd || one.session }, name), h("td", { class: "num" }, one.pid), h("td", {}, one.mode || ""), h("td", {}, one.model || ""), h("td", {}, one.window ? [h("span", { class: "fill" }, h("i", { class: part > 0.9 ? "full" : part > 0.7 ? "much" : "", style: { width: `${Math.min(100, part * 100)}%` } })), `${Math.round(part * 100)} %`] : ""), h("td", { class: "num" }, `${thousands(one.tokens_in)} / ${thousands(one.tokens_out)}`), h("td", { class: "num" }, one.cost ? money(one.cost) : ""), h("td", { class: "num" }, one.turns, one.failed ? h("span", { class: "bad" }, ` (${one.failed} failed)`) : ""), h("td", { class: "bad", title: one.last_error ? one.last_error[1] : "" }, one.last_error ? one.last_error[1] : ""), h("td", { class: "num" }, one.memory ? bytes(one.memory) : ""));
  };
  const items = state.sessions.map((one) => {
    const [text, kind] = health(one);
    const isOpen = open && open.session === one.session;
    return { key: `${one.pid} ${one.session}`, shown: JSON.stringify([{ ...one, active: 0, memory: bytes(one.memory) }, text, isOpen]), make: () => row(one, text, kind) };
  });
  drawTable($("sessions"), [["State"], ["Session"], ["Process", 1], ["Mode"], ["Model"], ["Context"], ["Tokens in / out", 1], ["Cost", 1], ["Turns", 1], ["Last error"], ["Memory", 1]], items, "No sessions yet. They appear here as soon as an editor opens one.");
}
function drawProcesses() {
  const row = (one) => h("tr", { class: one.ended ? "gone" : "" }, h("td", {}, h("span", { class: `state ${one.ended ? "" : "runs"}` }, one.ended ? "ended" : "running")), h("td", { class: "num" }, one.pid), h("td", {}, `${one.program} ${one.version}`), h("td", {}, one.parent), h("td", { title: one.cwd }, one.cwd), h("td", { class: "num" }, one.sessions), h("td", { class: "num" }, one.memory ? bytes(one.memory) : ""), h("td", { class: "num" }, one.ended ? "" : `${(one.load * 100).toFixed(1)} %`), h("td", { class: "num" }, duration((one.ended || state.now) - one.started)));
  const items = [...state.processes].sort((a, b) => !!a.ended - !!b.ended || b.started - a.started).map((one) => ({ key: one.pid, shown: JSON.stringify([one, one.ended || state.now]), make: () => row(one) }));
  drawTable($("processes"), [["State"], ["Number", 1], ["Program"], ["Started by"], ["Folder"], ["Sessions", 1], ["Memory", 1], ["CPU", 1], ["For", 1]], items, "No agent of yours runs now. Start one in your editor.");
}
function openLive(session) {
  open = session;
  lastRow = 0;
  const close = h("button", { type: "button", "aria-label": "Close", onclick: closeLive }, "✕");
  $("live").replaceChildren(h("header", {}, h("h2", { title: session.session }, session.title || session.session), close), h("ol", { id: "live-rows", tabindex: "0", "aria-label": "Messages, the newest last" }));
  $("live").hidden = false;
  close.focus();
  updateLive();
  drawSessions();
}
function closeLive() {
  open = null;
  $("live").hidden = true;
  drawSessions();
}
async function updateLive() {
  const session = open.session;
  const answer = await ask(`/session?id=${encodeURIComponent(session)}&after=${lastRow}`);
  if (!open || open.session !== session) return;
  lastRow = answer.last;
  const list = $("live-rows");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  for (const row of answer.rows) {
    const before = list.lastElementChild;
    // Chunks of one kind are counted.
    if (row.kind && before && before.dataset.kind === row.kind && !row.error) {
      before.dataset.count = Number(before.dataset.count) + (row.count || 1);
      before.querySelector(".text").textContent = `${row.text} × ${before.dataset.count}`;
      continue;
    }
    const arrow = row.span ? h("i", { class: `dot k-${row.span}` }) : h("span", { class: `arrow ${row.out ? "out" : "in"}`, title: row.out ? "to the client" : "from the client" }, row.out ? "←" : "→");
    const item = h("li", { class: row.error ? "bad" : "" }, h("span", { class: "mono dim" }, new Date(row.time).toISOString().slice(14, 23)), arrow, h("span", { class: "text" }, row.span ? `${row.span} ${row.text}` : row.text, row.error ? `: ${row.error}` : ""), h("span", { class: "dim num" }, row.took === null ? "" : duration(row.took)));
    item.dataset.kind = row.kind && !row.text.includes("(") ? row.kind : "";
    item.dataset.count = row.count || 1;
    if (row.count > 1) item.querySelector(".text").textContent = `${row.text} × ${row.count}`;
    list.append(item);
  }
  while (list.children.length > 1000) list.firstElementChild.remove();
  if (atEnd) list.scrollTop = list.scrollHeight;
}
for (const button of document.querySelectorAll("[data-period]")) {
  button.addEventListener("click", () => {
    period = button.dataset.period;
    for (const other of document.querySelectorAll("[data-period]")) other.setAttribute("aria-pressed", other === button);
    if (state) drawRates();
  });
}
addEventListener("keydown", (event) => { if (event.key === "Escape" && open) closeLive(); });
setUpTheme($("theme"));
update();
