"""What compare_peers says about its samples: which of them count, the best peer
of a cell, ratios, tables. Nothing here measures.

All functions take a document, or a case of one, as compare_peers writes it with
--json (README.md lists the fields). A cell is one placement, number of ranks,
size, and place ("out_of_place" or "in_place").
"""

import collections
import statistics

# Beside this file.
from comparison import PLACES, interval, percent

# A median of fewer rounds is marked.
ENOUGH_ROUNDS = 5
OURS = "ringpipe "
FLOOR = "floor "

Ratio = collections.namedtuple("Ratio", "median low high confidence rounds")
# `ours`: ringpipe's median; `peer`: the best one's name; `ratio` and `to_floor`
# are Ratios or None. Times in microseconds.
Row = collections.namedtuple(
    "Row", "ranks size place buffers ours peer theirs ratio floor to_floor")


def kept_medians(case):
    """{placement: {contender: {place: {round: median in us}}}}.

    A sample in which the placement changed is dropped.
    """
    kept = {}
    for number, samples in enumerate(case["rounds"]):
        for sample in samples:
            before, after = sample["placements"]
            if before != after:
                continue
            of_contender = kept.setdefault(before, {}).setdefault(
                sample["contender"], {})
            for place, times in sample["us"].items():
                of_contender.setdefault(place, {})[number] = statistics.median(
                    times)
    return kept


def dropped_samples(document):
    """How many there are of all: (dropped, all)."""
    samples = [sample for case in document["cases"] for one in case["rounds"]
               for sample in one]
    return (sum(len(set(sample["placements"])) > 1 for sample in samples),
            len(samples))


def placements_of(document):
    return sorted({placement for case in document["cases"]
                   for placement in kept_medians(case)})


def has_enough(case, placement, rounds):
    """Whether every contender that did not fail has as many rounds."""
    kept = kept_medians(case).get(placement, {})
    return all(
        any(len(medians) >= rounds for medians in kept.get(name, {}).values())
        for name in case["contenders"] if name not in case["failures"])


def best_of(medians, place, names):
    """(name, median over its rounds) of the fastest of `names`, or None.

    `medians` is kept_medians of one placement. One with few rounds may have
    been lucky: it counts only where none has enough.
    """
    found = [(name, medians[name][place]) for name in names
             if place in medians.get(name, {})]
    sure = [one for one in found if len(one[1]) >= ENOUGH_ROUNDS]
    return min(((name, statistics.median(times.values()))
                for name, times in sure or found), key=lambda one: one[1],
               default=None)


def best_peer(medians, place):
    return best_of(medians, place,
                   [name for name in medians
                    if not name.startswith((OURS, FLOOR))])


def ratio_by_round(ours, theirs):
    """Of two {round: median}: the ratios of the rounds that have both."""
    ratios = [ours[number] / theirs[number] for number in ours
              if number in theirs]
    if not ratios:
        return None
    return Ratio(statistics.median(ratios), *interval(ratios), len(ratios))


def rows_of(case, placement):
    """A Row for each kind of buffer and place."""
    medians = kept_medians(case).get(placement, {})
    rows = []
    for place in PLACES:
        best = best_peer(medians, place)
        for name in case["contenders"]:
            ours = medians.get(name, {}).get(place)
            if not name.startswith(OURS) or not ours:
                continue
            buffers = name[len(OURS):]
            theirs = medians[best[0]][place] if best else {}
            floor = medians.get(FLOOR + floor_of(buffers), {}).get(place, {})
            rows.append(Row(
                case["ranks"], case["size"], place, buffers,
                statistics.median(ours.values()), *(best or (None, None)),
                ratio_by_round(ours, theirs),
                statistics.median(floor.values()) if floor else None,
                ratio_by_round(ours, floor)))
    return rows


def floor_of(buffers):
    """The floor that goes with a kind of buffers."""
    return "private" if buffers == "registered" else buffers


def format_us(value):
    if value is None:
        return "–"
    if value >= 1e5:
        return f"{value / 1e3:.0f} ms"
    if value >= 1e3:
        return f"{value / 1e3:.2f} ms"
    return f"{value:.1f} us" if value >= 10 else f"{value:.2f} us"


def format_ratio(ratio):
    """Median, interval, rounds; a star where these are few."""
    if ratio is None:
        return "    –  (no round has both)"
    mark = " *" if ratio.rounds < ENOUGH_ROUNDS else ""
    return (f"{ratio.median:7.3f}  {ratio.low:.3f} to {ratio.high:.3f} "
            f"({percent(ratio.confidence)} % CI, {ratio.rounds} "
            f"rounds){mark}")


def format_row(row):
    to_floor = f"{row.to_floor.median:6.2f}" if row.to_floor else "     –"
    return (f"{row.ranks:5} {row.size:11}  {row.place:12}  {row.buffers:10} "
            f"{format_us(row.ours):>9} {format_us(row.theirs):>9} "
            f"{format_ratio(row.ratio):50} {format_us(row.floor):>9} "
            f"{to_floor}  {row.peer or '–'}\n")


def format_report(document):
    """The text: for each placement a table, with a line for each kind of
    buffers and place."""
    text = ""
    for placement in placements_of(document):
        rows = [row for case in document["cases"]
                for row in rows_of(case, placement)]
        text += (f"# placement of the cores: {placement}\n"
                 f"#ranks       bytes  {'':12}  {'buffers':10} "
                 f"{'ringpipe':>9} {'best peer':>9} {'  ratio':50} "
                 f"{'floor':>9} {'/floor':>6}  best peer\n" +
                 "".join(format_row(row) for row in rows))
    dropped, samples = dropped_samples(document)
    text += (f"# samples dropped, as the placement changed: {dropped} of "
             f"{samples}\n# *: fewer than {ENOUGH_ROUNDS} rounds\n")
    for case in document["cases"]:
        for name, failure in case["failures"].items():
            # The first line is the command, the last what it had to say.
            text += (f"# failed: {name}, {case['ranks']} ranks, {case['size']} "
                     f"bytes: {failure.strip().splitlines()[-1]}\n")
    for name, why in document["left_out"].items():
        text += f"# left out: {name}: {why}\n"
    return text


def format_peers(document):
    """The text: every peer of every cell, the fastest first."""
    text = ""
    for placement in placements_of(document):
        text += f"# all peers, placement of the cores: {placement}\n"
        for case in document["cases"]:
            medians = kept_medians(case).get(placement, {})
            for place in PLACES:
                found = sorted(
                    (statistics.median(of_places[place].values()), name,
                     len(of_places[place]))
                    for name, of_places in medians.items()
                    if place in of_places and not name.startswith(OURS))
                for median, name, rounds in found:
                    text += (f"{case['ranks']:5} {case['size']:11}  {place:12} "
                             f"{format_us(median):>9} ({rounds} rounds)  "
                             f"{name}\n")
    return text


def size_text(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"
