// What every HTML report has: its style sheet and its script.
#ifndef RINGPIPE_VALIDATE_HTML_STYLE_H_
#define RINGPIPE_VALIDATE_HTML_STYLE_H_

namespace ringpipe::validate {

inline constexpr char kStyle[] = R"css(
:root { color-scheme: light dark; --ink: #1c2127; --dim: #59636e; --paper: #fff;
  --line: #d3dae1; --soft: #f3f6f9; --bad: #a84300; --good: #0b5cad;
  --doubt: #6b5500; --bar: #4f8fcb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --dim: #9aa5b1;
  --paper: #14181d; --line: #333c46; --soft: #1d232a; --bad: #ffac5e;
  --good: #82bdf5; --doubt: #e3c75c; --bar: #5e9bd4; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); }
p { margin: .4rem 0; max-width: 60rem; }
.dim, caption, figcaption { color: var(--dim); font-size: .9rem; }
.verdict { display: flex; gap: .9rem; align-items: baseline; margin: 1rem 0;
  padding: .9rem 1.1rem; border: 2px solid var(--good); border-radius: .5rem;
  background: var(--soft); }
.verdict b { font-size: 1.25rem; color: var(--good); white-space: nowrap; }
.verdict.faulty { border-color: var(--bad); border-style: double; border-width: 5px; }
.verdict.faulty b { color: var(--bad); }
.verdict.uncertain { border-color: var(--doubt); border-style: dashed; }
.verdict.uncertain b { color: var(--doubt); }
a { color: var(--good); }
tr:target, li:target { background: var(--soft); outline: 2px solid var(--good); }
ol.findings { padding-left: 2rem; }
ol.findings li { margin: .35rem 0; }
.mark { font-weight: 700; margin-right: .4rem; }
.fault .mark { color: var(--bad); }
.note { color: var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .3rem 0; }
th, td { padding: .18rem .6rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--dim); font-weight: 600; }
.list :is(th, .left) { white-space: normal; }
.left { text-align: left; }
table.matrix th.left { position: sticky; left: 0; background: var(--paper); }
table.matrix td { color: #111; border: 1px solid var(--paper); padding: .15rem .4rem; }
table.matrix td.none { color: var(--dim); background: none; }
.pair { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
figure { margin: .8rem 0; }
.pair > * { flex: 1 1 26rem; min-width: 0; max-width: 34rem; }
.pair > .beside { flex-basis: 28rem; max-width: none; }
.beside :is(th, td) { padding: .18rem .4rem; }
.beside td.left { overflow-wrap: anywhere; }
.beside figure { max-width: 34rem; }
/* A map: names beside a picture, in a window through which it is seen whole or
   enlarged. Rings are where their links are, and never smaller than a finger. */
.view { width: min(100%, 34rem); aspect-ratio: 1; overflow: hidden; position: relative; }
:is(.zoom1, .zoom2):checked ~ .view { overflow: auto; }
.field { display: grid; grid-template-columns: var(--label) 1fr;
  grid-template-rows: var(--label) auto; font: .7rem/1 system-ui, sans-serif; }
.zoom1:checked ~ .view .field { width: 400%; }
.zoom2:checked ~ .view .field { width: 1600%; }
input + label { margin: 0 .8rem 0 .2rem; }
.across, .down, .corner { position: sticky; background: var(--paper); z-index: 2; }
.across, .corner { top: 0; }
.down, .corner { left: 0; }
.corner { z-index: 3; }
.across { margin: 0 .5rem; }
.down { margin: .5rem 0; }
.across i, .down i { position: absolute; font-style: normal; white-space: nowrap;
  max-width: 100%; max-height: 100%; overflow: hidden; color: var(--dim); }
.across i { left: var(--at); bottom: 0; writing-mode: vertical-rl;
  transform: translateX(-50%) rotate(180deg); }
.down i { top: var(--at); right: 0; transform: translateY(-50%); }
.across i::before { content: "\2013\a0"; }
.down i::after { content: "\a0\2013"; }
.z1, .z2 { display: none; }
.zoom1:checked ~ .view .z1, .zoom2:checked ~ .view :is(.z1, .z2) { display: block; }
div.map { position: relative; margin: .5rem; aspect-ratio: 1; cursor: crosshair; }
img.map { width: 100%; height: 100%; display: block; image-rendering: pixelated; }
.ring { position: absolute; transform: translate(-50%, -50%); border: 2px solid #000;
  border-radius: .5rem; outline: 2px solid #fff; width: max(var(--w), 1.1rem);
  height: max(var(--h), 1.1rem); scroll-margin: 8rem; z-index: 1; }
.ring.note { border-style: dashed; border-width: 1px; outline-width: 1px; }
.ring:target, .ring:focus { outline: 4px solid #ff0; }
.ring b { position: absolute; padding: .15rem .3rem; border-radius: .4rem;
  background: #000; color: #fff; }
.below b { top: calc(100% + 3px); left: 50%; transform: translateX(-50%); }
.above b { bottom: calc(100% + 3px); left: 50%; transform: translateX(-50%); }
.right b { left: calc(100% + 3px); top: 50%; transform: translateY(-50%); }
.left b { right: calc(100% + 3px); top: 50%; transform: translateY(-50%); }
.read { min-height: 1.6em; font-variant-numeric: tabular-nums; }
.legend { width: min(100%, 34rem); height: .8rem; display: block;
  border: 1px solid var(--line); image-rendering: pixelated; }
.scale { display: flex; justify-content: space-between; width: min(100%, 34rem);
  font-size: .8rem; color: var(--dim); }
svg.bars { width: 100%; height: auto; }
svg.bars rect { fill: var(--bar); }
svg.bars rect.slow { fill: var(--bad); }
svg.bars line { stroke: var(--dim); }
svg.bars .grid { stroke: var(--line); }
svg.bars .marked { stroke: var(--bad); stroke-dasharray: 4 3; }
svg.bars text { fill: var(--dim); font-size: 11px; }
details { margin: .6rem 0; }
summary { cursor: pointer; }
@media (max-width: 50rem) {
  body { padding: 1rem; }
  .list thead { display: none; }
  .list, .list tbody, .list tr, .list caption { display: block; }
  .list tr { padding: .4rem 0; border-bottom: 1px solid var(--line); }
  .list td { display: flex; justify-content: space-between; gap: 1rem; border: 0;
    padding: .1rem 0; white-space: normal; overflow-wrap: anywhere; text-align: right; }
  .list td::before { content: attr(data-label); color: var(--dim); flex: none;
    max-width: 60%; text-align: left; }
  .list td:empty { display: none; }
}
@media print { body { max-width: none; } details { display: block; } }
)css";

// The value under the pointer, and where to enlarge. The page says the same
// without it.
inline constexpr char kScript[] = R"js(
"use strict";
(() => {
  const names = JSON.parse(document.getElementById("names").textContent);
  const round = (x) => x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2);
  const rate = (x) => x >= 1e9 ? round(x / 1e9) + " GB/s" :
      x >= 1e6 ? round(x / 1e6) + " MB/s" : round(x / 1e3) + " kB/s";
  const time = (x) => x < 1e-3 ? round(x * 1e6) + " \u00b5s" : round(x * 1e3) + " ms";
  for (const map of document.querySelectorAll("img.map")) {
    const holder = document.getElementById(map.dataset.values);
    const text = atob(holder.textContent.trim());
    const bytes = Uint8Array.from(text, (c) => c.charCodeAt(0));
    const values = new DataView(bytes.buffer);
    const step = Number(map.dataset.step);
    const show = map.dataset.unit === "s" ? time : rate;
    const arrow = map.dataset.unit === "s" ? " \u2194 " : " \u2192 ";
    const out = document.getElementById(map.dataset.out);
    const idle = out.textContent;
    const field = map.parentElement;
    // Where of the map the pointer is, as parts of its width and height.
    const place = (event) => {
      const box = map.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width,
              (event.clientY - box.top) / box.height];
    };
    field.addEventListener("pointermove", (event) => {
      const [to, from] = place(event).map((part) =>
          Math.max(0, Math.min(names.length - 1, Math.floor(part * names.length))));
      const value = values.getUint16(2 * (from * names.length + to), true);
      out.textContent = names[from] + arrow + names[to] + ": " +
          (from === to ? "itself" : value === 0 ? "not measured" : show(value * step));
    });
    field.addEventListener("pointerleave", () => { out.textContent = idle; });
    // Enlarging keeps the middle, and a click enlarges what is there.
    const view = map.closest(".view");
    const zooms = [...map.closest("figure").querySelectorAll("input")];
    let middle = [0.5, 0.5];
    const centre = () => {
      const [x, y] = middle;
      view.scrollLeft = field.offsetLeft + x * field.offsetWidth - view.clientWidth / 2;
      view.scrollTop = field.offsetTop + y * field.offsetHeight - view.clientHeight / 2;
    };
    view.addEventListener("scroll", () => {
      middle = [(view.scrollLeft + view.clientWidth / 2 - field.offsetLeft) / field.offsetWidth,
                (view.scrollTop + view.clientHeight / 2 - field.offsetTop) / field.offsetHeight];
    });
    zooms.forEach((zoom) => zoom.addEventListener("change", centre));
    map.addEventListener("click", (event) => {
      middle = place(event);
      zooms[Math.min(zooms.length - 1, zooms.findIndex((zoom) => zoom.checked) + 1)].checked = true;
      centre();
    });
  }
})();
)js";

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_HTML_STYLE_H_
