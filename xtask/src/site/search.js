// Finds sections that contain all words: matches in headings first.
const input = document.getElementById("search");
const found = document.getElementById("found");
input.addEventListener("input", () => {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.replaceChildren();
  if (words.length === 0) return;
  const hits = [];
  for (const [address, page, heading, text] of PAGES) {
    const title = `${page} ${heading}`.toLowerCase();
    const all = `${title} ${text.toLowerCase()}`;
    if (!words.every((word) => all.includes(word))) continue;
    hits.push([words.filter((word) => title.includes(word)).length, address, page, heading, text]);
  }
  hits.sort((a, b) => b[0] - a[0]);
  for (const [, address, page, heading, text] of hits.slice(0, 12)) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = ROOT + address;
    link.textContent = heading && heading !== page ? `${page}: ${heading}` : page;
    const at = Math.max(0, text.toLowerCase().indexOf(words[0]) - 30);
    const excerpt = document.createElement("small");
    excerpt.textContent = text.slice(at, at + 100);
    item.append(link, excerpt);
    found.append(item);
  }
});
