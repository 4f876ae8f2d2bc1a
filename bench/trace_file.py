"""Reads the trace files that RINGPIPE_TRACE and --trace write: JSON in the Trace
Event format (docs/timeline.md)."""

import collections
import itertools
import json

# The tracks of a rank, in the order of the pipeline. Their number in the file is
# their tid.
TRACKS = ["call", "acquire", "copy in", "register", "send", "receive", "reduce",
         "copy out", "transport", "wait"]
MESSAGES = ("send", "receive")
STAGES = ("copy in", "register", "send", "receive", "reduce", "copy out")

# What a rank did in a track, in microseconds of rank 0's clock. `arguments`: the
# "args" of the format.
Event = collections.namedtuple("Event", "rank track begin end arguments")


class BadTrace(Exception):
    """The input is no trace, or not the one that was asked for."""


class Trace:
    """The events of one communicator, from one file or several."""

    def __init__(self, documents):
        """`documents`: {path: what json.load returned}, which check accepts."""
        paths = list(documents)
        first = documents[paths[0]]["otherData"]
        self.size = first["size"]
        self.ranks = {}  # of the files: what they say of each
        self.events = []
        self.document = {"displayTimeUnit": "ns",
                         "otherData": {**first, "ranks": []},
                         "traceEvents": []}
        for path in paths:
            other = documents[path]["otherData"]
            if (other["run"], other["size"]) != (first["run"], first["size"]):
                raise BadTrace(f"{path} and {paths[0]} are not of the same "
                               "communicator: each has a number of its own")
            for rank in other["ranks"]:
                if rank["rank"] in self.ranks:
                    raise BadTrace(f"rank {rank['rank']} is in {path} and in "
                                   "another file too: leave one of them out")
                self.ranks[rank["rank"]] = rank
                self.document["otherData"]["ranks"].append(rank)
            self.document["otherData"]["aligned"] &= other["aligned"]
            self.document["traceEvents"] += documents[path]["traceEvents"]
            self.events += _events_of(documents[path])

    def calls(self, rank):
        """The calls that are there from their first event to their last: {number:
        Event of the track "call"}."""
        calls = {event.arguments["call"]: event for event in self.events
                 if event.rank == rank and event.track == "call"}
        if self.ranks[rank]["dropped"]:
            # Of the oldest call the beginning may be gone.
            calls.pop(min((event.arguments["call"] for event in self.events
                           if event.rank == rank), default=None), None)
        return calls

    def of_call(self, number):
        return [event for event in self.events
                if event.arguments["call"] == number]


def read(paths):
    """A Trace. BadTrace, with the path, where a file is none."""
    documents = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
        except OSError as error:
            raise BadTrace(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise BadTrace(f"{path} is no JSON: {error}") from error
        if wrong := next(problems(document), None):
            raise BadTrace(f"{path} is no trace of ringpipe's: {wrong}")
        documents[path] = document
    return Trace(documents)


def _events_of(document):
    begun = {}
    events = []
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            events.append(Event(event["pid"], event["cat"], event["ts"],
                                event["ts"] + event["dur"], event["args"]))
        elif event["ph"] == "b":
            begun[event["id"]] = event
        elif event["ph"] == "e":
            begin = begun.pop(event["id"])
            events.append(Event(event["pid"], event["cat"], begin["ts"],
                                event["ts"], begin["args"]))
    return events


# --- The format ----------------------------------------------------------------

# The fields that an event must have, by its phase, and their types.
NUMBER = (int, float)
FIELDS = {
    "M": {"pid": int, "tid": int, "name": str, "args": dict},
    "X": {"pid": int, "tid": int, "name": str, "cat": str, "ts": NUMBER,
          "dur": NUMBER, "args": dict},
    "b": {"pid": int, "tid": int, "name": str, "cat": str, "ts": NUMBER,
          "id": str, "args": dict},
    "e": {"pid": int, "tid": int, "name": str, "cat": str, "ts": NUMBER,
          "id": str},
    "i": {"pid": int, "tid": int, "name": str, "s": str, "ts": NUMBER},
}
ARGUMENTS = {
    "call": ["call", "collective", "bytes", "algorithm", "ok"],
    "wait": ["call", "for"],
    "transport": ["call"],
}
OF_A_PART = ["call", "step", "subchunk", "bytes"]
OF_A_MESSAGE = OF_A_PART + ["peer", "message"]


def problems(document):
    """Yields what is wrong, in words, from the outside in."""
    yield from itertools.islice(_problems(document), 20)


def _problems(document):
    if not isinstance(document, dict):
        yield "it is no JSON object"
        return
    other = document.get("otherData")
    if not isinstance(other, dict) or other.get("program") != "ringpipe":
        yield 'its "otherData" does not say that ringpipe wrote it'
        return
    if not isinstance(document.get("traceEvents"), list):
        yield 'it has no list of "traceEvents"'
        return
    wrong = False
    for problem in _problems_of_header(other):
        wrong = True
        yield problem
    if wrong:
        return
    ranks = {rank["rank"] for rank in other["ranks"]}
    for number, event in enumerate(document["traceEvents"]):
        for problem in _problems_of_event(event, ranks):
            wrong = True
            yield f"event {number}: {problem}"
    if not wrong:
        yield from _problems_of_messages(document["traceEvents"])
        yield from _problems_of_tracks(document["traceEvents"])
        yield from _problems_of_names(document["traceEvents"], ranks)


def _problems_of_header(other):
    for name, kind in (("run", str), ("size", int), ("aligned", bool),
                       ("ranks", list)):
        if not isinstance(other.get(name), kind):
            yield f'"{name}" of "otherData" is missing or of the wrong type'
            return
    for rank in other["ranks"]:
        for name, kind in (("rank", int), ("host", str), ("dropped", int)):
            if not isinstance(rank, dict) or not isinstance(rank.get(name),
                                                            kind):
                yield f'"{name}" of a rank is missing or of the wrong type'
                return
        if not 0 <= rank["rank"] < other["size"]:
            yield f"rank {rank['rank']} of {other['size']} ranks"


def _problems_of_event(event, ranks):
    if not isinstance(event, dict) or event.get("ph") not in FIELDS:
        yield "no known phase"
        return
    for name, kind in FIELDS[event["ph"]].items():
        if not isinstance(event.get(name), kind):
            yield f'"{name}" is missing or of the wrong type'
            return
    if event["pid"] not in ranks:
        yield f"pid {event['pid']} is no rank of this file"
    if not 0 <= event["tid"] < len(TRACKS):
        yield f"tid {event['tid']} is no track"
        return
    if event.get("ts", 0) < 0 or event.get("dur", 0) < 0:
        yield "a time before the clock's beginning"
    if "cat" in event:
        track = event["cat"]
        if TRACKS[event["tid"]] != track:
            yield f"category {track} on tid {event['tid']}"
        elif (event["ph"] == "X") == (track in MESSAGES):
            yield f"phase {event['ph']} for {track}"
        elif event["ph"] != "e":
            wanted = (OF_A_MESSAGE if track in MESSAGES else
                      ARGUMENTS.get(track, OF_A_PART))
            for name in wanted:
                if name not in event["args"]:
                    yield f'"{name}" of "args" is missing'


def _problems_of_messages(events):
    """Each begins once and ends once, later."""
    begun = {}
    for event in events:
        if event["ph"] == "b":
            if event["id"] in begun:
                yield f"message {event['id']} begins twice"
            begun[event["id"]] = event
        elif event["ph"] == "e":
            begin = begun.pop(event["id"], None)
            if begin is None:
                yield f"message {event['id']} ends without a beginning"
            elif event["ts"] < begin["ts"]:
                yield f"message {event['id']} ends before it begins"
            elif (event["pid"], event["cat"]) != (begin["pid"], begin["cat"]):
                yield f"message {event['id']} ends elsewhere"
    for number in begun:
        yield f"message {number} does not end"


def _problems_of_tracks(events):
    """The complete events of a thread follow each other in time, without
    overlap. (Times have three decimals, which a float may not hold: hence the
    tolerance.)"""
    ends = {}
    for event in events:
        if event["ph"] != "X":
            continue
        place = (event["pid"], event["tid"])
        if event["ts"] < ends.get(place, 0) - 0.002:
            yield (f"rank {event['pid']}, track {event['cat']}: the event at "
                   f"{event['ts']} begins before the one before it ends, at "
                   f"{ends[place]}")
        ends[place] = event["ts"] + event["dur"]


def _problems_of_names(events, ranks):
    named = {(event["pid"], event["tid"], event["name"])
             for event in events if event["ph"] == "M"}
    for rank in ranks:
        if (rank, 0, "process_name") not in named:
            yield f"rank {rank} has no process_name"
    for rank, track in {(event["pid"], event["tid"])
                       for event in events if event["ph"] == "X"}:
        for name in ("thread_name", "thread_sort_index"):
            if (rank, track, name) not in named:
                yield f"rank {rank}, track {TRACKS[track]}: no {name}"
