"""The picture that compare_peers draws of its samples: the time of one size for
ringpipe and each library, in a group for each number of ranks. Nothing here
measures. Functions take a document as peer_document.load returns it."""

import collections
import statistics

# Beside this file.
import bar_chart
from comparison import Failure
from peer_report import (FLOOR, OURS, best_of, format_us, kept_medians,
                         placements_of, size_text)
from peer_settings import LIBRARIES, library_of

PLACE = "out_of_place"
# A contender's name: what the picture calls it.
RINGPIPE = {OURS + "allocate": "ringpipe, from Allocate",
            OURS + "private": "ringpipe, private memory"}
# In the order of the bars.
IMPLEMENTATIONS = list(dict.fromkeys([*RINGPIPE.values(),
                                      *LIBRARIES.values()]))
PLACEMENTS = {"siblings": "while the two cores were threads of one core",
              "one L3": "while the two cores shared an L3 cache",
              "far": "while the two cores were far from each other"}

# The rounds' medians in microseconds, of the setting `name`.
Cell = collections.namedtuple("Cell", "name times")


def implementation_of(contender):
    """What the picture calls a contender; None where it does not show it."""
    if contender.startswith((OURS, FLOOR)):
        return RINGPIPE.get(contender)
    return library_of(contender)


def cases_of(document):
    """{ranks: case} of the largest size."""
    largest = max((case["size"] for case in document["cases"]), default=None)
    return {case["ranks"]: case
            for case in sorted(document["cases"],
                               key=lambda case: case["ranks"])
            if case["size"] == largest}


def cells_of(case, placement):
    """{implementation: Cell}, of a library its fastest setting."""
    medians = kept_medians(case).get(placement, {})
    names = {}
    for name in medians:
        names.setdefault(implementation_of(name), []).append(name)
    cells = {}
    for implementation in IMPLEMENTATIONS:
        best = best_of(medians, PLACE, names.get(implementation, []))
        if best:
            cells[implementation] = Cell(
                best[0], list(medians[best[0]][PLACE].values()))
    return cells


def choose_placement(document):
    """The placement in which most can be drawn, and of those the one with most
    samples. None where there are no samples."""
    def wealth(placement):
        cells = [cell for case in cases_of(document).values()
                 for cell in cells_of(case, placement).values()]
        return len(cells), sum(len(cell.times) for cell in cells)
    found = [placement for placement in placements_of(document)
             if wealth(placement)[0]]
    return max(found, key=wealth, default=None)


def why_missing(document, case, implementation):
    """Why a bar is missing, in a few words."""
    def shown(names):
        return [name for name in names
                if implementation_of(name) == implementation]
    for name, why in document["left_out"].items():
        peer, _, ranks = name.partition(" with ")
        if shown([peer]) and ranks in ("", ranks_text(case["ranks"])):
            return why.partition(":")[0]
    if shown(case["failures"]):
        return "it failed"
    if shown(case["contenders"]):
        return "no sample in this placement"
    return "not asked for"


def ranks_text(ranks):
    return f"{ranks} rank" if ranks == 1 else f"{ranks} ranks"


def rounds_text(rounds):
    """Of the rounds of all bars."""
    if min(rounds) < max(rounds):
        return f"{min(rounds)} to {max(rounds)} rounds"
    return "1 round" if rounds[0] == 1 else f"{rounds[0]} rounds"


def missing_notes(document, cells):
    """A line for each implementation and reason; `cells` is {ranks: {
    implementation: Cell}}."""
    cases = cases_of(document)
    notes = [f"Left out: {ranks_text(ranks)} (no sample in this placement)."
             for ranks, present in cells.items() if not present]
    missing = {}
    for implementation in IMPLEMENTATIONS:
        for ranks, present in cells.items():
            if present and implementation not in present:
                why = why_missing(document, cases[ranks], implementation)
                missing.setdefault((implementation, why), []).append(str(ranks))
    return notes + [
        f"Left out: {implementation} with {', '.join(ranks)} "
        f"{'rank' if ranks == ['1'] else 'ranks'} ({why})."
        for (implementation, why), ranks in missing.items()]


def bars_of(cells, ranks, unit):
    """The bars of a group; `unit` in microseconds."""
    bars = []
    for implementation, hatch in zip(IMPLEMENTATIONS, bar_chart.HATCHES):
        if implementation not in cells:
            continue
        name, times = cells[implementation]
        median, low, high = statistics.median(times), min(times), max(times)
        bars.append(bar_chart.Bar(
            implementation, median / unit, low / unit, high / unit,
            format_us(median), hatch,
            f"{implementation}, {ranks_text(ranks)}: {format_us(median)} "
            f"({format_us(low)} to {format_us(high)}, {len(times)} rounds), "
            f"measured as {name}"))
    return bars


def draw(document):
    """The SVG. Raises Failure where there is nothing to draw."""
    placement = choose_placement(document)
    if placement is None:
        raise Failure("there is no sample to draw: every round was cut off, "
                      "failed, or saw the cores move; measure again, or longer")
    cases = cases_of(document)
    cells = {ranks: cells_of(case, placement) for ranks, case in cases.items()}
    drawn = [cell for one in cells.values() for cell in one.values()]
    rounds = [len(cell.times) for cell in drawn]
    many = max(statistics.median(cell.times) for cell in drawn) >= 1000
    where = PLACEMENTS.get(placement)
    size = size_text(next(iter(cases.values()))["size"])
    return bar_chart.draw(bar_chart.Chart(
        f"Time of an allreduce of {size}: shorter is faster",
        ["Sum of float32, out of place, all ranks on one host" +
         (f", {where}" if where else "") +
         ("; each call writes its input and reads its output"
          if document["touch"] else "") + ".",
         "Bar: median of the rounds. Line with two ends: from the fastest round "
         f"to the slowest, of {rounds_text(rounds)}."],
        [bar_chart.Group(ranks_text(ranks),
                         bars_of(cells[ranks], ranks, 1000 if many else 1))
         for ranks in cells if cells[ranks]],
        "milliseconds" if many else "microseconds",
        missing_notes(document, cells) + [
            "Each library is drawn with the fastest of the settings that were "
            "measured.",
            f"{document['date'][:10]}, {document['machine']}"]))
