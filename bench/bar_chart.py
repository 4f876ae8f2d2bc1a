"""Grouped bars with error bars, as SVG: one group a size, one bar a library (as
in figure 6 of Preferred Networks' "Technologies behind Distributed Deep
Learning: AllReduce", 2018)."""

import collections
from xml.sax.saxutils import escape, quoteattr

# `series`: what the legend says; `low` and `high`: the ends of the error bar;
# `note`: shown where the pointer is.
Bar = collections.namedtuple("Bar", "series value low high note")
Group = collections.namedtuple("Group", "label sublabel bars")
Panel = collections.namedtuple("Panel", "title groups")

BLUES = ["#0b5fa5", "#3f9be0", "#9fd0f5", "#0a3a66"]
COLOURS = ["#c44e52", "#dd8452", "#55a868", "#937860", "#8172b3", "#999999"]
BAR, GAP, LEFT, PLOT, TOP, BETWEEN = 20, 28, 50, 170, 88, 62
# Higher bars are cut here, and say how high they are.
MOST = 4.0


def draw(title, subtitle, panels, own):
    """The whole SVG. Heights begin at 0; 1 has a line of its own. The series
    that `own` is the beginning of are blue, and no other is."""
    series = list(dict.fromkeys(
        bar.series for panel in panels for group in panel.groups
        for bar in group.bars))
    ours = [name for name in series if name.startswith(own)]
    others = [name for name in series if name not in ours]
    colours = {name: palette[i % len(palette)]
               for names, palette in ((ours, BLUES), (others, COLOURS))
               for i, name in enumerate(names)}
    width = max([560] + [LEFT + GAP + sum(_group_width(group) for group
                                          in panel.groups)
                         for panel in panels])
    height = TOP + len(panels) * (PLOT + BETWEEN)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
             f'height="{height}" viewBox="0 0 {width} {height}" '
             'font-family="sans-serif" font-size="11">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             _text(10, 20, title, size=15), _text(10, 36, subtitle)]
    parts += _legend(series, colours, width)
    for number, panel in enumerate(panels):
        parts += _panel(panel, colours, TOP + number * (PLOT + BETWEEN), width)
    return "\n".join(parts) + "\n</svg>\n"


def _group_width(group):
    return BAR * len(group.bars) + GAP


def _text(x, y, text, size=11, anchor="start"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" '
            f'text-anchor="{anchor}">{escape(text)}</text>')


def _legend(series, colours, width):
    parts, x, y = [], 10, 50
    for name in series:
        if x + 24 + 7 * len(name) > width:
            x, y = 10, y + 15
        parts += [f'<rect x="{x}" y="{y - 9}" width="10" height="10" '
                  f'fill="{colours[name]}"/>', _text(x + 14, y, name)]
        x += 28 + 7 * len(name)
    return parts


def _panel(panel, colours, top, width):
    most = min(MOST, max([1.2] + [bar.high for group in panel.groups
                                  for bar in group.bars]))
    base = top + PLOT

    def height(value):
        return (PLOT - 20) * min(value, most) / most

    parts = [_text(10, top + 8, panel.title, size=13)]
    step = 0.25 if most <= 1.5 else 0.5
    for tick in range(int(most / step) + 1):
        y = base - height(tick * step)
        strong = tick * step == 1
        parts += [f'<line x1="{LEFT}" y1="{y:.1f}" x2="{width - 10}" '
                  f'y2="{y:.1f}" stroke="{"#444" if strong else "#ddd"}"/>',
                  _text(LEFT - 6, y + 4, f"{tick * step:g}", anchor="end")]
    x = LEFT + GAP / 2
    for group in panel.groups:
        middle = x + BAR * len(group.bars) / 2
        parts += [_text(middle, base + 15, group.label, anchor="middle"),
                  _text(middle, base + 28, group.sublabel, size=9,
                        anchor="middle")]
        for bar in group.bars:
            parts += _bar(bar, colours[bar.series], x, base, height, most)
            x += BAR
        x += GAP
    return parts


def _bar(bar, colour, x, base, height, most):
    top = base - height(bar.value)
    parts = [f'<rect class="bar" x="{x + 1:.1f}" y="{top:.1f}" '
             f'width="{BAR - 2}" height="{height(bar.value):.1f}" '
             f'fill={quoteattr(colour)}><title>{escape(bar.note)}</title>'
             '</rect>']
    low, high = base - height(bar.low), base - height(bar.high)
    middle = x + BAR / 2
    parts.append(
        f'<path class="error" stroke="black" fill="none" d="M{middle:.1f} '
        f'{low:.1f}V{high:.1f}M{middle - 3:.1f} {low:.1f}h6'
        f'M{middle - 3:.1f} {high:.1f}h6"/>')
    if bar.value > most:
        number = f"{bar.value:.1f}" if bar.value < 10 else f"{bar.value:.0f}"
        parts.append(_text(middle, top - 3, number, size=9, anchor="middle"))
    return parts
