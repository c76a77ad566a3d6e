// Starts the page: reads the trace, shows a view, connects the controls.
const VIEWS = { sequence: viewSequence, timing: viewTiming, errors: viewErrors, profile: viewProfile };
let refreshView = () => {};
function show(tab) {
  state.tab = tab;
  for (const button of document.querySelectorAll("[data-tab]")) {
    button.setAttribute("aria-selected", button.dataset.tab === tab);
    button.tabIndex = button.dataset.tab === tab ? 0 : -1;
  }
  const view = document.getElementById("view");
  view.replaceChildren();
  view.onkeydown = view.onpointerdown = view.onwheel = null;
  refreshView = VIEWS[tab](view, document.getElementById("tools"));
  refreshView();
  history.replaceState(null, "", `#${tab}`);
}
function start() {
  readTrace();
  const errors = findErrors().length;
  const when = new Date(trace.start);
  document.getElementById("facts").replaceChildren(`${trace.file} · ${when.toISOString().slice(0, 19).replace("T", " ")} UTC · ${trace.messages.length.toLocaleString("en")} messages, ${trace.spans.length.toLocaleString("en")} spans${trace.derived ? " (derived from the messages)" : ""} · ${duration(trace.end)} · ${errors} ${errors === 1 ? "error" : "errors"}${trace.cut ? ` · ${trace.cut.toLocaleString("en")} long messages cut; the file has them whole` : ""}${trace.bad ? ` · ${trace.bad} lines skipped` : ""}`);
  const select = document.getElementById("session");
  select.append(h("option", { value: -1 }, "all sessions"), ...trace.sessions.map((id, index) => h("option", { value: index }, shortId(id))));
  select.addEventListener("change", () => { state.session = Number(select.value); refreshView(); });
  const search = document.getElementById("search");
  let timer = 0;
  search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => { state.query = search.value.trim().toLowerCase(); refreshView(); }, 150); });
  for (const button of document.querySelectorAll("[data-tab]")) button.addEventListener("click", () => show(button.dataset.tab));
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    const tabs = Object.keys(VIEWS), at = tabs.indexOf(state.tab);
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    show(tabs[(at + (event.key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length]);
    document.querySelector(`[data-tab=${state.tab}]`).focus();
  });
  addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLInputElement;
    if (event.key === "/" && !isTyping) { event.preventDefault(); search.focus(); }
    else if (event.key === "Escape") { if (isTyping) event.target.blur(); else showDetail(null); }
    else if (!isTyping && "1234".includes(event.key) && event.key.length === 1 && !event.ctrlKey) show(Object.keys(VIEWS)[Number(event.key) - 1]);
  });
  setUpTheme(document.getElementById("theme"));
  const wanted = location.hash.slice(1);
  show(wanted in VIEWS ? wanted : "sequence");
}
start();
