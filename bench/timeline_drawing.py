"""One call of one rank as an SVG: stages over time, one track a stage."""

import collections
import math
from xml.sax.saxutils import escape

from trace_file import MESSAGES, STAGES

Box = collections.namedtuple("Box", "track begin end subchunk step note")

TRACKS = STAGES + ("transport", "wait")
WIDTH, LEFT, RIGHT, TOP = 960, 150, 20, 92
TRACK, BOX, GAP = 30, 22, 44
PLOT = WIDTH - LEFT - RIGHT
# A call of more boxes of stages than this gets an overview, and the boxes of a
# short time.
MOST_BOXES = 60
BOXES_OF_WINDOW = 18
FILLS = 4


# --- What is drawn -----------------------------------------------------------


def boxes_of(trace, call, rank):
    """The boxes of each track, in order and without overlap.

    A message is drawn from when it was the next on its way: the one before it had
    ended; and a received one not before its sender sent it, where the sender is
    in the trace.
    """
    events = trace.of_call(call)
    sent = {(event.rank, event.arguments["peer"], event.arguments["message"]):
            event.begin for event in events if event.track == "send"}
    tracks = {track: [] for track in TRACKS}
    for event in sorted((event for event in events if event.rank == rank),
                        key=lambda event: event.end):
        if event.track not in tracks:
            continue
        begin = event.begin
        arguments = event.arguments
        if event.track == "receive":
            key = (arguments["peer"], rank, arguments["message"])
            # A short message to all ranks of a host is out with the first of its
            # sends: it may have arrived before this one.
            if sent.get(key, begin) <= event.end:
                begin = max(begin, sent.get(key, begin))
        if event.track in MESSAGES and tracks[event.track]:
            begin = max(begin, tracks[event.track][-1].end)
        begin = min(begin, event.end)
        tracks[event.track].append(Box(event.track, begin, event.end,
                                     arguments.get("subchunk"),
                                     arguments.get("step"), note_of(event)))
    return tracks


def note_of(event):
    arguments = event.arguments
    if event.track == "wait":
        return f"nothing to do but wait for {arguments['for']}"
    if event.track == "transport":
        return "posts messages, or takes what has arrived"
    text = (f"{event.track}: sub-chunk {arguments['subchunk']}, step "
            f"{arguments['step']}, {arguments['bytes']} bytes")
    if event.track in MESSAGES:
        text += (" to" if event.track == "send" else " from")
        text += f" rank {arguments['peer']}"
    return text


def shares_of(trace, call, rank, whole):
    """{track: part of the call's time}: what the thread did in it, or stood still
    for it. A message that is under way keeps the thread busy with nothing."""
    spans = collections.defaultdict(list)
    for event in trace.of_call(call):
        if event.rank != rank or event.track in MESSAGES + ("call",):
            continue
        track = event.arguments["for"] if event.track == "wait" else event.track
        spans[track].append((event.begin, event.end))
    return {track: covered(of_track) / whole for track, of_track in spans.items()}


def covered(spans):
    """How long at least one of them lasts."""
    total, end = 0, -math.inf
    for begin, its_end in sorted(spans):
        total += max(0, its_end - max(begin, end))
        end = max(end, its_end)
    return total


WORK = {
    "transport": "posting messages and taking what has arrived",
    "send": "waiting to send",
    "receive": "waiting for messages",
    "acquire": "waiting for free slots",
}


def verdict(shares):
    """"Most of the time: copy out 32 %, then reduce 28 %": what bounds the call
    comes first."""
    if not shares:
        return "nothing was recorded"
    ordered = sorted(shares.items(), key=lambda share: -share[1])
    text = "Most of the time: " + ", then ".join(
        f"{WORK.get(track, track)} {percent(share)}"
        for track, share in ordered[:3])
    # Beside the events' own cost: the thread had no core, or was in a transport
    # that had nothing for it.
    none = 1 - sum(shares.values())
    return text + (f"; {percent(none)} in no track" if none >= 0.1 else "")


def percent(share):
    return f"{100 * share:.0f} %"


# --- How it is drawn ---------------------------------------------------------

STYLE = """
  .page { fill: #ffffff; } .text { fill: #1f2328; } .faint { fill: #59636e; }
  .grid { stroke: #d1d9e0; } .frame { stroke: #1f2328; }
  .line { stroke: #1f2328; stroke-opacity: 0.4; }
  .f0 { fill: #8ec1f0; } .f1 { fill: #a8d68f; } .f2 { fill: #f5c777; }
  .f3 { fill: #dba6e0; } .bare { fill: #d1d9e0; } .busy { fill: #3c7fc0; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; } .text { fill: #f0f6fc; } .faint { fill: #9198a1; }
    .grid { stroke: #3d444d; } .frame { stroke: #c8d1da; }
    .line { stroke: #f0f6fc; stroke-opacity: 0.4; }
    .f0 { fill: #1f5d99; } .f1 { fill: #3f7328; } .f2 { fill: #8a5f0c; }
    .f3 { fill: #7b4282; } .bare { fill: #3d444d; } .busy { fill: #6cb0ef; }
  }
"""

# The lines over a fill, for who sees no colours.
LINES = ["", "M0 8L8 0", "M0 0L8 8", "M0 4H8", "M2 0V8M6 0V8"]
WAIT_FILL = 4


def draw(trace, call, rank, window=None):
    """The whole SVG. `window`: (from, to), in microseconds after the beginning of
    the call on this rank; None: chosen so that boxes can be told apart."""
    event = trace.calls(rank)[call]
    whole = max(event.end - event.begin, 0.001)
    tracks = boxes_of(trace, call, rank)
    shares = shares_of(trace, call, rank, whole)
    shown = [track for track in TRACKS if tracks[track]]
    by_step = len({box.subchunk for track in STAGES for box in tracks[track]}) < 2
    count = sum(len(tracks[track]) for track in STAGES)
    panels = []
    if window is None and count <= MOST_BOXES:
        panels.append(("", 0, whole, _boxes))
    else:
        panels.append(("The whole call: how busy each track is", 0, whole,
                       _overview))
        begin, end = window or choose_window(tracks, event.begin)
        panels.append((f"{time_text(end - begin)} of it: each box is a "
                       + ("step" if by_step else "sub-chunk"),
                       begin, end, _boxes))
    height = TOP + len(panels) * (len(shown) * TRACK + GAP + 24) + 8
    title, subtitle = titles(trace, event, call, rank, whole, shares)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
        f'height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(subtitle)}</desc>",
        f"<style>{STYLE}</style>",
        _patterns(),
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        _text(10, 24, title, size=16),
        _text(10, 44, subtitle, size=13),
        _text(10, 64, ("Numbers are steps of the schedule" if by_step else
                       "Numbers are sub-chunks; every fourth has the same fill")
              + ". Right of a track's name: the part of the call in which the "
              "rank's thread worked there or waited for it.", "faint", 11)]
    top = TOP
    for name, begin, end, draw_track in panels:
        parts += _panel(name, top, begin, end, shown, tracks, shares,
                        event.begin, draw_track, by_step)
        top += len(shown) * TRACK + GAP + 24
    return "\n".join(filter(None, parts)) + "\n</svg>\n"


def titles(trace, event, call, rank, whole, shares):
    arguments = event.arguments
    title = (f"{arguments['collective']} of {size_text(arguments['bytes'])}, "
             f"{trace.size} rank{'s' if trace.size > 1 else ''} "
             f"({arguments['algorithm']}): rank {rank}, call {call}, "
             f"{time_text(whole)}")
    if not arguments["ok"]:
        title += ", failed"
    return title, verdict(shares)


def choose_window(tracks, origin):
    """A typical part of the call: of all that have so many boxes of work, the one
    of median length."""
    boxes = sorted((box for track in STAGES if track not in MESSAGES
                    for box in tracks[track]), key=lambda box: box.begin)
    if not boxes:
        boxes = sorted((box for track in STAGES for box in tracks[track]),
                       key=lambda box: box.begin)
    windows = []
    for first in range(0, max(1, len(boxes) - BOXES_OF_WINDOW + 1),
                       BOXES_OF_WINDOW):
        chosen = boxes[first:first + BOXES_OF_WINDOW]
        windows.append((chosen[0].begin - origin,
                        max(box.end for box in chosen) - origin))
    windows.sort(key=lambda window: window[1] - window[0])
    return windows[(len(windows) - 1) // 2]


def _panel(name, top, begin, end, shown, tracks, shares, origin, draw_track,
           by_step):
    bottom = top + 12 + len(shown) * TRACK
    parts = [_text(LEFT, top, name, "faint", 12)] if name else []

    def x_of(time):
        return LEFT + PLOT * (time - begin) / (end - begin)

    for tick, label in ticks(begin, end):
        parts += [f'<line class="grid" x1="{x_of(tick):.1f}" y1="{top + 8}" '
                  f'x2="{x_of(tick):.1f}" y2="{bottom}"/>',
                  _text(x_of(tick), bottom + 16, label, "faint", 11, "middle")]
    for number, track in enumerate(shown):
        y = top + 12 + number * TRACK
        parts.append(_text(10, y + 16, track, size=13))
        if track in shares:
            parts.append(_text(LEFT - 10, y + 16, percent(shares[track]),
                               "faint", 12, "end"))
        parts += draw_track(tracks[track], y, begin, end, origin, x_of, by_step)
    parts.append(f'<path class="frame" fill="none" d="M{LEFT} {top + 8}V{bottom}'
                 f'H{WIDTH - RIGHT}"/>')
    return parts


def _overview(boxes, y, begin, end, _, x_of, __):
    """How much of each 4 pixels is covered, as a skyline."""
    columns = PLOT // 4
    busy = [0.0] * columns
    width = (end - begin) / columns
    for box in boxes:
        low, high = box.begin - _, box.end - _
        for column in range(max(0, int((low - begin) / width)),
                            min(columns, int((high - begin) / width) + 1)):
            left = begin + column * width
            busy[column] += max(0, min(high, left + width) - max(low, left))
    base = y + BOX + 2
    path = f"M{LEFT} {base}"
    for column, time in enumerate(busy):
        path += (f"V{base - BOX * min(1, time / width):.1f}"
                 f"H{x_of(begin + (column + 1) * width):.1f}")
    return [f'<path class="busy" d="{path}V{base}Z"/>',
            f'<line class="grid" x1="{LEFT}" y1="{base}" x2="{WIDTH - RIGHT}" '
            f'y2="{base}"/>']


def _boxes(boxes, y, begin, end, origin, x_of, by_step):
    parts = []
    for box in boxes:
        low, high = box.begin - origin, box.end - origin
        if high < begin or low > end:
            continue
        left, right = x_of(max(low, begin)), x_of(min(high, end))
        number = box.step if by_step else box.subchunk
        if box.track == "wait":
            fill = f"url(#p{WAIT_FILL})"
        elif number is None:
            fill = None
        else:
            fill = f"url(#p{number % FILLS})"
        shape = f'fill="{fill}"' if fill else 'class="bare"'
        parts.append(f'<g><title>{escape(box.note)}, {time_text(high - low)}'
                     f'</title><rect {shape} stroke-width="0.7" '
                     f'x="{left:.1f}" y="{y + 2}" '
                     f'width="{max(right - left, 0.6):.1f}" height="{BOX}"/>')
        if number is not None:
            parts.append(f'<rect class="frame" fill="none" stroke-width="0.7" '
                         f'x="{left:.1f}" y="{y + 2}" '
                         f'width="{max(right - left, 0.6):.1f}" '
                         f'height="{BOX}"/>')
            label = str(number)
            if right - left >= 6.5 * len(label) + 2:
                parts.append(_text((left + right) / 2, y + 17, label, size=11,
                                   anchor="middle"))
        parts.append("</g>")
    return parts


def _patterns():
    parts = []
    for number, lines in enumerate(LINES):
        colour = "bare" if number == WAIT_FILL else f"f{number}"
        parts.append(f'<pattern id="p{number}" width="8" height="8" '
                     'patternUnits="userSpaceOnUse">'
                     f'<rect class="{colour}" width="8" height="8"/>'
                     + (f'<path class="line" fill="none" d="{lines}"/>'
                        if lines else "") + "</pattern>")
    return "<defs>" + "".join(parts) + "</defs>"


def _text(x, y, text, kind="text", size=12, anchor="start"):
    return (f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" font-size="{size}" '
            f'text-anchor="{anchor}">{escape(text)}</text>')


# --- Numbers -----------------------------------------------------------------


def ticks(begin, end):
    """(time, label) of 4 to 10 round times between them."""
    step = 10 ** math.floor(math.log10((end - begin) / 4))
    step *= next(factor for factor in (5, 2, 1)
                 if factor * step <= (end - begin) / 4)
    unit, name = (1e3, "ms") if end >= 1e3 else (1, "us")
    digits = max(0, -math.floor(math.log10(step / unit)))
    number = math.ceil(begin / step - 1e-9)
    found = []
    while number * step <= end * (1 + 1e-9):
        found.append((number * step,
                      f"{number * step / unit:.{digits}f} {name}"))
        number += 1
    return found


def time_text(us):
    if us >= 1e6:
        return f"{us / 1e6:.3g} s"
    if us >= 1e3:
        return f"{us / 1e3:.3g} ms"
    return f"{us:.3g} us"


def size_text(size):
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"
