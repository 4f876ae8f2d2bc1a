// What every HTML report has: its style sheet and its script.
#ifndef RINGPIPE_VALIDATE_HTML_STYLE_H_
#define RINGPIPE_VALIDATE_HTML_STYLE_H_

namespace ringpipe::validate {

inline constexpr char kStyle[] = R"css(
:root { color-scheme: light dark; --ink: #1c2127; --dim: #59636e; --paper: #fff;
  --line: #d3dae1; --soft: #f3f6f9; --bad: #a84300; --good: #0b5cad;
  --bar: #4f8fcb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --dim: #9aa5b1;
  --paper: #14181d; --line: #333c46; --soft: #1d232a; --bad: #ffac5e;
  --good: #82bdf5; --bar: #5e9bd4; } }
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
.verdict.unmeasured { border-color: var(--dim); border-style: dashed; }
.verdict.unmeasured b { color: var(--dim); }
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
.left { text-align: left; }
table.matrix td { color: #111; border: 1px solid var(--paper); padding: .15rem .4rem; }
table.matrix td.none { color: var(--dim); background: none; }
.pair { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
figure { margin: .8rem 0; }
.pair figure { flex: 1 1 26rem; max-width: 34rem; }
.map { width: min(100%, 34rem); min-width: 16rem; aspect-ratio: 1; display: block;
  image-rendering: pixelated; border: 1px solid var(--line); cursor: crosshair; }
.read { min-height: 1.6em; font-variant-numeric: tabular-nums; }
.legend { width: min(100%, 34rem); height: .8rem; display: block;
  border: 1px solid var(--line); image-rendering: pixelated; }
.scale { display: flex; justify-content: space-between; width: min(100%, 34rem);
  font-size: .8rem; color: var(--dim); }
svg.bars { width: 100%; height: auto; }
svg.bars rect { fill: var(--bar); }
svg.bars rect.slow { fill: var(--bad); }
svg.bars line { stroke: var(--line); }
svg.bars text { fill: var(--dim); font-size: 11px; }
details { margin: .6rem 0; }
summary { cursor: pointer; }
@media print { body { max-width: none; } details { display: block; } }
)css";

// The value under the pointer. The page says the same without it.
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
    map.addEventListener("pointermove", (event) => {
      const box = map.getBoundingClientRect();
      const at = (x, size) => Math.max(0, Math.min(names.length - 1,
          Math.floor(x / size * names.length)));
      const to = at(event.clientX - box.left, box.width);
      const from = at(event.clientY - box.top, box.height);
      const value = values.getUint16(2 * (from * names.length + to), true);
      out.textContent = names[from] + arrow + names[to] + ": " +
          (from === to ? "itself" : value === 0 ? "not measured" : show(value * step));
    });
    map.addEventListener("pointerleave", () => { out.textContent = idle; });
  }
})();
)js";

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_HTML_STYLE_H_
