"""Horizontal bars in groups, each with an interval, as SVG. It can be read on a
light and on a dark page, and without colours: each bar has its name and its
figure beside it, and each series has a hatch. No scripts, and no fonts but the
reader's."""

import collections
import math
import textwrap
from xml.sax.saxutils import escape

# `label` is left of the bar and `figure` right of it; `low` and `high` are the
# ends of the interval; `hatch` is one of HATCHES; `note` is shown where the
# pointer is.
Bar = collections.namedtuple("Bar", "label value low high figure hatch note")
Group = collections.namedtuple("Group", "label bars")
# `heading` and `notes`: lines above and below, wrapped where they are too long.
Chart = collections.namedtuple("Chart", "title heading groups axis notes")

WIDTH, LEFT, RIGHT, MARGIN = 800, 204, 96, 12
BAR, PITCH, GROUP, LINE = 16, 23, 34, 19
LETTERS_OF_A_LINE = 104
MOST_TICKS = 8
# What is in a tile of 8 x 8 pixels, and whether it is in the colour that stands
# out. "": filled.
HATCHES = {
    "filled": ("", True),
    "rising": ("M-2 2L2 -2M0 8L8 0M6 10L10 6", True),
    "falling": ("M-2 6L2 10M0 0L8 8M6 -2L10 2", False),
    "crossed": ("M-2 2L2 -2M0 8L8 0M6 10L10 6M-2 6L2 10M0 0L8 8M6 -2L10 2",
                False),
    "upright": ("M2 0V8M6 0V8", False),
    "dotted": ("M1 2h2M5 6h2", False),
    "level": ("M0 2H8M0 6H8", False),
}
# The edge around letters and intervals is not seen on a page of the expected
# shade; on another one it keeps them readable.
STYLE = """
text { font-family: sans-serif; font-size: 14px; paint-order: stroke; stroke-width: 3px; stroke-linejoin: round }
text { fill: #1f2328; stroke: #ffffff }
.title { font-size: 18px; font-weight: bold }
.group { font-weight: bold }
.small { font-size: 13px }
.end { text-anchor: end }
.middle { text-anchor: middle }
.grid { stroke: #1f2328; stroke-opacity: 0.25 }
.bar, .tile { stroke-width: 1.5 }
.own { stroke: #0a53be }
.own-fill { fill: #0a53be }
.other { stroke: #6b5f54 }
.interval, .ends { stroke: #1f2328; stroke-width: 2; fill: none }
.around { stroke: #ffffff; stroke-width: 4; fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; stroke: #0d1117 }
.grid { stroke: #e6edf3 }
.own { stroke: #79b0ff }
.own-fill { fill: #79b0ff }
.other { stroke: #c4b8ac }
.interval, .ends { stroke: #e6edf3 }
.around { stroke: #0d1117 }
}
"""


def draw(chart):
    """The whole SVG. A bar's width is its value; all groups have one scale,
    which begins at 0."""
    heading = _wrap(chart.heading)
    notes = _wrap(chart.notes)
    top = MARGIN + 24 + LINE * len(heading)
    plot = sum(GROUP + PITCH * len(group.bars) for group in chart.groups)
    below = top + plot + 10
    height = below + 46 + LINE * len(notes)
    most = max(max(bar.value, bar.high) for group in chart.groups
               for bar in group.bars)
    scale = (WIDTH - LEFT - RIGHT) / most
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
             f'height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
             f"<title>{escape(chart.title)}</title>",
             f"<style>{STYLE}</style>", _hatches(),
             _text(MARGIN, MARGIN + 14, chart.title, "title")]
    parts += _lines(heading, MARGIN + 36)
    parts += _axis(chart.axis, most, scale, top, below)
    for group in chart.groups:
        parts.append(_text(MARGIN, top + 24, group.label, "group"))
        top += GROUP
        for bar in group.bars:
            parts += _bar(bar, scale, top + PITCH / 2)
            top += PITCH
    parts += _lines(notes, below + 56)
    return "\n".join(parts) + "\n</svg>\n"


def _wrap(texts):
    return [line for text in texts
            for line in textwrap.wrap(text, LETTERS_OF_A_LINE)]


def _lines(lines, top):
    return [_text(MARGIN, top + LINE * number, line, "small")
            for number, line in enumerate(lines)]


def _text(x, y, text, classes):
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _hatches():
    parts = ["<defs>"]
    for name, (path, own) in HATCHES.items():
        if path:
            parts.append(
                f'<pattern id="{name}" width="8" height="8" '
                f'patternUnits="userSpaceOnUse"><path class="tile '
                f'{"own" if own else "other"}" fill="none" d="{path}"/>'
                "</pattern>")
    return "\n".join(parts + ["</defs>"])


def tick_step(most):
    """The smallest of 1, 2 and 5 times a power of ten that gives few ticks."""
    power = 10.0 ** math.floor(math.log10(most / MOST_TICKS))
    return next(factor * power for factor in (1, 2, 5, 10)
                if factor * power * MOST_TICKS >= most)


def _axis(text, most, scale, top, below):
    step = tick_step(most)
    parts = []
    for number in range(math.floor(most / step) + 1):
        x = LEFT + number * step * scale
        parts += [f'<path class="grid" d="M{x:.1f} {top + 8:.1f}V{below}"/>',
                  _text(x, below + 16, f"{number * step:g}", "small middle")]
    return parts + [_text((LEFT + WIDTH - RIGHT) / 2, below + 34, text,
                          "small middle")]


def _bar(bar, scale, middle):
    low, high = LEFT + bar.low * scale, LEFT + bar.high * scale
    end = LEFT + bar.value * scale
    path, own = HATCHES[bar.hatch]
    shade = "own" if own else "other"
    fill = f'fill="url(#{bar.hatch})"' if path else ""
    line = f'x1="{low:.2f}" x2="{high:.2f}" y1="{middle:.1f}" y2="{middle:.1f}"'
    ends = "".join(f"M{x:.2f} {middle - 5:.1f}v10" for x in (low, high))
    return [
        _text(LEFT - 8, middle + 5, bar.label, "end"),
        f'<rect class="bar {shade}{"" if path else " own-fill"}" {fill} '
        f'x="{LEFT}" y="{middle - BAR / 2:.1f}" width="{end - LEFT:.2f}" '
        f'height="{BAR}"><title>{escape(bar.note)}</title></rect>',
        f'<line class="around" {line}/><path class="around" d="{ends}"/>',
        f'<line class="interval" {line}/><path class="ends" d="{ends}"/>',
        _text(max(end, high) + 8, middle + 5, bar.figure, "figure")]
