"""Draws the output of an example as SVG: the loss by step.

    python3 examples/numpy_training.py --ranks 4 | python3 examples/loss_curve.py > loss.svg
    python3 examples/loss_curve.py torch_ddp.py < output > loss.svg

The argument is the name in the title. What torchrun puts before each line is left out.
Where the steps begin anew, at a checkpoint, a new line begins. The picture can be read
on a light and on a dark page.
"""

import math
import re
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 800, 320
LEFT, RIGHT, TOP, BELOW = 56, 16, 44, 48
MOST_TICKS = 8  # of steps
NAME = "numpy_training.py"
# "[default0]:"
LAUNCHER = re.compile(r"^\[\w+\]:")
STYLE = """
text { font-family: sans-serif; font-size: 13px; fill: #1f2328 }
.title { font-size: 17px; font-weight: bold }
.middle { text-anchor: middle }
.end { text-anchor: end }
.grid { stroke: #1f2328; stroke-opacity: 0.25 }
.loss { stroke: #0a53be; stroke-width: 2; fill: none; stroke-linejoin: round }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.grid { stroke: #e6edf3 }
.loss { stroke: #79b0ff }
}"""


def read(lines):
    """[(step, loss), ...] for each start."""
    runs = []
    for line in lines:
        words = LAUNCHER.sub("", line).split()
        if not words or words[0] == "#":
            continue
        try:
            step, loss = int(words[0]), float(words[1])
            if not 0 < loss < math.inf:
                raise ValueError(loss)
        except (ValueError, IndexError):
            raise SystemExit(f"loss_curve: no step and loss: {line.rstrip()!r}; pass the output of "
                             "an example") from None
        if not runs or step <= runs[-1][-1][0]:
            runs.append([])
        runs[-1].append((step, loss))
    if not runs:
        raise SystemExit("loss_curve: no steps; pass the output of an example")
    return runs


def loss_ticks(least, most):
    """At 1, 2 and 5 times powers of ten: the axis is logarithmic."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    every = [factor * 10.0 ** power for power in powers for factor in (1, 2, 5)]
    return [tick for tick in every if least <= tick <= most]


def step_ticks(most):
    """From 0 to `most`, at 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(most / MOST_TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10)
                if factor * power * MOST_TICKS >= most)
    return [number * step for number in range(math.floor(most / step) + 1)]


def text(x, y, words, classes):
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def draw(runs, name=NAME):
    """The whole SVG."""
    title = f"Loss of {name} by step"
    last = max(step for run in runs for step, _ in run) or 1
    losses = [loss for run in runs for _, loss in run]
    least, most = min(losses), max(max(losses), 1.001 * min(losses))
    bottom, right = HEIGHT - BELOW, WIDTH - RIGHT

    def x(step):
        return LEFT + (right - LEFT) * step / last

    def y(loss):
        return bottom - (bottom - TOP) * math.log(loss / least) / math.log(most / least)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img">', f"<title>{escape(title)}</title>",
             f"<style>{STYLE}</style>", text(LEFT, 24, title, "title")]
    for loss in loss_ticks(least, most):
        parts += [f'<path class="grid" d="M{LEFT} {y(loss):.1f}H{right}"/>',
                  text(LEFT - 8, y(loss) + 4, f"{loss:g}", "end")]
    parts += [text(x(step), bottom + 20, f"{step:g}", "middle") for step in step_ticks(last)]
    parts.append(text((LEFT + right) / 2, bottom + 38, "step", "middle"))
    for run in runs:
        points = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in run)
        parts.append(f'<polyline class="loss" points="{points}"/>')
    return "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    sys.stdout.write(draw(read(sys.stdin), *sys.argv[1:]))
