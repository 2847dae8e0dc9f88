// Faults of a page that keep people from using it: with a keyboard, with a screen reader, on a phone, in dark colours. Runs in the page and
// returns a sentence for each.
const faults = [];
const all = (selector) => [...document.querySelectorAll(selector)];
const shown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
const about = (element) => element.outerHTML.replace(/\s+/g, " ").slice(0, 120);
const byId = (id) => document.getElementById(id);

if (document.documentElement.scrollWidth > innerWidth) {
  faults.push(`${document.documentElement.scrollWidth} wide in a window of ${innerWidth}`);
}
if (!document.documentElement.lang) faults.push("no language");
if (!document.title) faults.push("no title");

// Names and references.
const ids = all("[id]").map((element) => element.id);
ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => faults.push(`the id ${id} twice`));
for (const attribute of ["for", "aria-labelledby", "aria-describedby", "aria-controls", "form"]) {
  for (const element of all(`[${attribute}]`)) {
    const wanted = element.getAttribute(attribute).split(/\s+/);
    wanted.filter((id) => !byId(id)).forEach((id) => faults.push(`${attribute} names no element ${id}: ${about(element)}`));
  }
}
const labelled = (element) =>
  (element.getAttribute("aria-labelledby") ?? "").split(/\s+/).map((id) => byId(id)?.textContent ?? "").join(" ").trim();
const name = (element) =>
  element.getAttribute("aria-label")?.trim() || labelled(element) || [...(element.labels ?? [])].map((label) => label.textContent).join(" ").trim();
for (const input of all("input:not([type=hidden]), select, textarea")) {
  if (!name(input)) faults.push(`no label: ${about(input)}`);
}
for (const element of all("button, a[href], summary")) {
  if (!name(element) && !element.textContent.trim()) faults.push(`no name: ${about(element)}`);
}
for (const svg of all("svg")) {
  if (svg.getAttribute("aria-hidden") !== "true" && !name(svg) && !svg.querySelector("title")) faults.push(`no text for ${about(svg)}`);
}
for (const group of all("fieldset")) {
  if (!group.querySelector(":scope > legend") && !group.classList.contains("all")) faults.push(`no legend: ${about(group)}`);
}

// Outline.
if (all("main").length !== 1) faults.push(`${all("main").length} main`);
all("nav").filter((nav) => !name(nav)).forEach((nav) => faults.push(`no name: ${about(nav)}`));
const headings = all("h1, h2, h3, h4, h5, h6").filter((heading) => shown(heading) && !heading.closest("nav"));
if (headings.filter((heading) => heading.matches("h1")).length !== 1) faults.push("not one h1");
headings.reduce((before, heading) => {
  const level = Number(heading.tagName[1]);
  if (level > before + 1) faults.push(`h${level} after h${before}: ${heading.textContent}`);
  return level;
}, 0);

// Tables: each has a name, and a heading for each column.
for (const table of all("table")) {
  if (!name(table) && !table.caption) faults.push(`no name: ${about(table)}`);
  const columns = table.tHead?.rows[0]?.cells.length ?? 0;
  if ([...(table.tHead?.rows[0]?.cells ?? [])].some((cell) => !cell.matches("th[scope]"))) faults.push(`a heading without scope: ${about(table)}`);
  if ([...table.tBodies].some((body) => [...body.rows].some((row) => row.cells.length !== columns))) {
    faults.push(`a row that isn't ${columns} wide: ${about(table)}`);
  }
}

// What scrolls can be scrolled with the keyboard.
for (const element of all("pre, .scroll")) {
  const scrolls = element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1;
  const takesFocus = element.tabIndex >= 0 || element.querySelector("a[href], button, input, summary");
  if (shown(element) && scrolls && !takesFocus) faults.push(`scrolls by the mouse alone: ${about(element)}`);
}

// Contrast of each text with what is behind it (WCAG 2.2 §1.4.3).
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const rgba = (colour) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
  return [red, green, blue, alpha / 255];
};
const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
const behind = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
  const page = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
  return layers.reverse().reduce((below, layer) => over(layer, below), page);
};
const luminance = (colour) => {
  const [red, green, blue] = colour.slice(0, 3).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const seen = new Set();
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || seen.has(element) || !shown(element) || element.closest(":disabled, svg, script, style")) continue;
  seen.add(element);
  const style = getComputedStyle(element);
  const below = behind(element);
  const [first, second] = [luminance(over(rgba(style.color), below)), luminance(below)].sort((one, other) => other - one);
  const size = parseFloat(style.fontSize);
  const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
  const ratio = (first + 0.05) / (second + 0.05);
  if (ratio < least) faults.push(`contrast ${ratio.toFixed(2)}: ${about(element)}`);
}

// What is pressed with a finger is no smaller than 24 by 24, but for links within text (WCAG 2.2 §2.5.8).
for (const element of all("button, summary, input:not([type=hidden]), select, nav a")) {
  const box = element.getBoundingClientRect();
  if (shown(element) && box.width > 0 && (box.height < 24 || box.width < 24) && !element.closest("label, .skip")) {
    faults.push(`${Math.round(box.width)} by ${Math.round(box.height)}: ${about(element)}`);
  }
}

return faults;
