#include "performer/report/page_parts.h"

#include <string_view>

#include "performer/core/sha256.h"

namespace performer::report {
namespace {

constexpr const char* kStyle = R"css(
:root { --paper: #fff; --ink: #1c1e21; --soft: #5c6470; --line: #d7dbe0; --panel: #f4f6f8;
  --link: #1f5fae; }
@media (prefers-color-scheme: dark) {
  :root:not([data-theme="light"]) { --paper: #14171b; --ink: #e6e8eb; --soft: #a2abb8;
    --line: #343b45; --panel: #1d2228; --link: #7db4f5; }
}
:root[data-theme="dark"] { --paper: #14171b; --ink: #e6e8eb; --soft: #a2abb8; --line: #343b45;
  --panel: #1d2228; --link: #7db4f5; color-scheme: dark; }
:root[data-theme="light"] { color-scheme: light; }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0 auto; padding: 1rem clamp(0.8rem, 3vw, 2rem) 3rem; max-width: 64rem;
  background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: break-word; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; background: var(--paper); padding: 0.5rem; }
header { position: relative; padding-right: 8rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; }
header p, footer, caption, figcaption { color: var(--soft); }
header p { margin: 0; }
button { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line);
  border-radius: 0.4rem; padding: 0.3rem 0.7rem; cursor: pointer; }
#theme { position: absolute; top: 0.5rem; right: 0; font-size: 0.85rem; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.3rem 1.2rem; padding: 0; list-style: none; }
dl.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr));
  gap: 0.7rem; margin: 1rem 0; }
dl.figures div { background: var(--panel); border-radius: 0.5rem; padding: 0.6rem 0.8rem; }
dl.figures dt { color: var(--soft); font-size: 0.85rem; }
dl.figures dd { margin: 0; font-size: 1.15rem; font-weight: 600; }
.scroll { overflow-x: auto; margin: 0.8rem 0; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
caption, figcaption { text-align: left; padding-bottom: 0.3rem; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
td.number { text-align: right; white-space: nowrap; }
th button { font-size: 0.85rem; font-weight: 600; padding: 0.15rem 0.4rem; text-align: left; }
th[aria-sort="ascending"] button::after { content: " ▲"; }
th[aria-sort="descending"] button::after { content: " ▼"; }
pre { background: var(--panel); border-radius: 0.5rem; padding: 0.8rem; overflow-x: auto;
  font-size: 0.85rem; }
details { margin: 0.8rem 0; }
summary { cursor: pointer; color: var(--link); }
figure { margin: 1.2rem 0; }
svg.plot { max-width: 100%; min-width: 34rem; height: auto; display: block; }
svg.plot text { fill: var(--ink); }
.heat-map svg text { fill: var(--ink); }
.heat-map svg text.on-light { fill: #000; pointer-events: none; }
.heat-map svg text.on-dark { fill: #fff; pointer-events: none; }
.heat-map .chosen { fill: none; stroke: var(--ink); stroke-width: 2.5; pointer-events: none; }
.heat-map .key svg { vertical-align: middle; }
.heat-map p { margin: 0.2rem 0; font-size: 0.9rem; color: var(--soft); }
output { color: var(--ink); }
footer { margin-top: 3rem; font-size: 0.85rem; }
@media print { #theme, .skip, .readout { display: none; } }
)css";

constexpr const char* kScript = R"js(
"use strict";
// Dark or light: the other one than what is shown.
const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark"
                                  : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// Heads of columns sort their table: first upwards, then downwards. No number comes last.
function sortTable(table, column, heads) {
  const up = heads[column].getAttribute("aria-sort") !== "ascending";
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", up ? "ascending" : "descending");
  const body = table.tBodies[0];
  const keyOf = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
  const numeric = [...body.rows].some((row) => "key" in row.cells[column].dataset);
  const compare = (a, b) => {
    const x = keyOf(a), y = keyOf(b);
    if (!numeric) return up ? x.localeCompare(y) : y.localeCompare(x);
    if (x === "" || y === "") return (x === "") - (y === "");
    const p = Number(x.replace("inf", "Infinity")), q = Number(y.replace("inf", "Infinity"));
    return p === q ? 0 : (p < q) === up ? -1 : 1;
  };
  body.append(...[...body.rows].sort(compare));
}
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent.trim();
    button.addEventListener("click", () => sortTable(table, column, heads));
    head.replaceChildren(button);
  });
}

// Maps: the cell under the pointer, or chosen by arrow keys, is read out.
for (const figure of document.querySelectorAll("figure.heat-map")) {
  const svg = figure.querySelector(".scroll svg");
  const map = JSON.parse(figure.querySelector("script").textContent);
  const out = figure.querySelector("output");
  const [left, top, width, height] =
    ["left", "top", "cell", "row"].map((name) => Number(svg.dataset[name]));
  const frame = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  frame.setAttribute("class", "chosen");
  let row = 0, column = 0;
  const choose = () => {
    row = Math.min(Math.max(row, 0), map.rows.length - 1);
    column = Math.min(Math.max(column, 0), map.columns.length - 1);
    for (const [name, value] of Object.entries(
      { x: left + column * width, y: top + row * height, width, height })) {
      frame.setAttribute(name, value);
    }
    svg.append(frame);
    const value = map.values[row * map.columns.length + column] ?? "no value";
    out.textContent =
      `${map.row} ${map.rows[row]}, ${map.column} ${map.columns[column]}: ${value}`;
  };
  svg.addEventListener("pointermove", (event) => {
    const place = new DOMPoint(event.clientX, event.clientY)
      .matrixTransform(svg.getScreenCTM().inverse());
    const r = Math.floor((place.y - top) / height), c = Math.floor((place.x - left) / width);
    if (r < 0 || c < 0 || r >= map.rows.length || c >= map.columns.length) return;
    row = r;
    column = c;
    choose();
  });
  svg.addEventListener("focus", () => { if (!frame.isConnected) choose(); });
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!(event.key in step)) return;
    event.preventDefault();
    row += step[event.key][0];
    column += step[event.key][1];
    choose();
  });
}
)js";

// Of hexadecimal digits, a multiple of four bits that leaves one "=" for 256.
std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : hex) {
    bits = bits << 4 | static_cast<std::uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    count += 4;
    if (count < 6) continue;
    count -= 6;
    out += kDigits[bits >> count & 63];
  }
  if (count > 0) out += kDigits[bits << (6 - count) & 63];
  while (out.size() % 4 != 0) out += '=';
  return out;
}

}  // namespace

Markup page_style() { return Markup::literal(kStyle); }
Markup page_script() { return Markup::literal(kScript); }
std::string page_script_hash() { return "sha256-" + base64_of_hex(sha256_of(kScript)); }

}  // namespace performer::report
