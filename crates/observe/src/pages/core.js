"use strict";
// Shared by all pages. Text from a trace reaches the page only as text nodes and attributes, never as markup.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("aria-") && typeof value === "boolean") { element.setAttribute(name, String(value)); continue; }
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}
function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms === 0) return "0";
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
  if (ms < 3600000) return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
  return `${Math.floor(ms / 3600000)} h ${Math.round((ms % 3600000) / 60000)} min`;
}
function bytes(count) {
  if (count < 1024) return `${count} B`;
  if (count < 1048576) return `${(count / 1024).toFixed(1)} KB`;
  if (count < 1073741824) return `${(count / 1048576).toFixed(1)} MB`;
  return `${(count / 1073741824).toFixed(2)} GB`;
}
function thousands(count) {
  if (count < 10000) return String(count);
  if (count < 1e6) return `${(count / 1e3).toFixed(count < 1e5 ? 1 : 0)}k`;
  return `${(count / 1e6).toFixed(2)}M`;
}
function money(dollars) {
  return `$${dollars < 1 ? dollars.toFixed(4) : dollars.toFixed(2)}`;
}
function setUpTheme(button) {
  const root = document.documentElement;
  button.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.dispatchEvent(new Event("themechange"));
  });
}
// A list of rows of equal height, of which only the visible ones exist.
class VirtualList {
  constructor(element, height, draw, label) {
    this.height = height;
    this.draw = draw;
    this.rows = [];
    this.selected = -1;
    // The elements that exist, by index. Those that stay visible are used again.
    this.drawn = new Map();
    this.sizer = h("div", { class: "sizer" });
    this.scroll = h("div", { class: "scroll", tabindex: "0", role: "listbox", "aria-label": label }, this.sizer);
    element.append(this.scroll);
    this.scroll.addEventListener("scroll", () => this.schedule(), { passive: true });
    this.scroll.addEventListener("keydown", (event) => this.onKey(event));
    this.observer = new ResizeObserver(() => this.schedule());
    this.observer.observe(this.scroll);
  }
  set(rows) {
    this.rows = rows;
    // A row may look different now.
    this.drawn.clear();
    this.sizer.replaceChildren();
    // A browser allows no element to be much higher than this, so a longer list is scrolled faster than it is drawn.
    this.full = rows.length * this.height;
    this.shown = Math.min(this.full, 8e6);
    this.sizer.style.height = `${this.shown}px`;
    this.selected = Math.min(this.selected, rows.length - 1);
    this.schedule();
  }
  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => { this.scheduled = false; this.render(); });
  }
  render() {
    const view = this.scroll.clientHeight;
    const range = Math.max(1, this.shown - view);
    const top = this.full > this.shown ? (this.scroll.scrollTop / range) * (this.full - view) : this.scroll.scrollTop;
    const first = Math.max(0, Math.floor(top / this.height) - 4);
    const last = Math.min(this.rows.length, Math.ceil((top + view) / this.height) + 4);
    const shift = this.scroll.scrollTop - top;
    for (const [index, row] of this.drawn) {
      if (index >= first && index < last) continue;
      row.remove();
      this.drawn.delete(index);
    }
    let at = this.sizer.firstChild;
    for (let index = first; index < last; index++) {
      let row = this.drawn.get(index);
      if (!row) {
        row = this.make(index);
        this.drawn.set(index, row);
      }
      row.style.top = `${index * this.height + shift}px`;
      row.setAttribute("aria-selected", index === this.selected);
      row.classList.toggle("sel", index === this.selected);
      if (row === at) at = at.nextSibling;
      else this.sizer.insertBefore(row, at);
    }
  }
  make(index) {
    const row = this.draw(this.rows[index], index);
    row.style.height = `${this.height}px`;
    row.id = `row-${index}`;
    row.setAttribute("role", "option");
    row.addEventListener("click", () => this.select(index, true));
    return row;
  }
  select(index, open) {
    if (index < 0 || index >= this.rows.length) return;
    this.selected = index;
    const top = index * this.height;
    if (this.full <= this.shown) {
      if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
      else if (top + this.height > this.scroll.scrollTop + this.scroll.clientHeight) this.scroll.scrollTop = top + this.height - this.scroll.clientHeight;
    }
    this.scroll.setAttribute("aria-activedescendant", `row-${index}`);
    this.schedule();
    if (open && this.onOpen) this.onOpen(this.rows[index], index);
  }
  onKey(event) {
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / this.height) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.key in moves) this.select(Math.max(0, Math.min(this.rows.length - 1, this.selected + moves[event.key])), true);
    else if (event.key === "Home") this.select(0, true);
    else if (event.key === "End") this.select(this.rows.length - 1, true);
    else if ((event.key === "ArrowRight" || event.key === "ArrowLeft" || event.key === "Enter") && this.onFold) this.onFold(this.rows[this.selected], event.key);
    else return;
    event.preventDefault();
  }
}
