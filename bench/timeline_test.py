"""Traces of real calls, checked by the format's rules, and what bench/timeline
draws of them. Run: timeline_test.py ALLREDUCE"""

import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
# pylint: disable=wrong-import-position
import timeline_drawing
import trace_file

PROGRAM = os.path.abspath(sys.argv.pop(1))
PATIENCE_S = 100
SVG = "{http://www.w3.org/2000/svg}"

# Variables that would make this test part of somebody else's job.
ENVIRONMENT = {
    name: value for name, value in os.environ.items()
    if not re.match(r"(RINGPIPE|OMPI|PMI|PMIX|SLURM)_|(MASTER|LOCAL)_|RANK$|"
                    r"WORLD_SIZE$|BUILD_WORKING_DIRECTORY$", name)}


# The software device, with copies into slots.
COPYING = {"RINGPIPE_DEVICE": "soft", "RINGPIPE_REGISTRATION": "never"}


def trace_of(path, *arguments, environment=None):
    done = subprocess.run(
        [PROGRAM, "-n", "2", "-w", "0", "--trace", path, *map(str, arguments)],
        env={**ENVIRONMENT, **(environment or {})}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def timeline(*arguments):
    return subprocess.run([sys.executable, BENCH / "timeline",
                           *map(str, arguments)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=PATIENCE_S, check=False)


class Traces(unittest.TestCase):
    """Of real calls."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "trace"

    def check(self, ranks, tracks, *arguments, device):
        document = trace_of(self.path, "--ranks", ranks, *arguments,
                            environment=device)
        self.assertEqual(list(trace_file.problems(document)), [])
        self.assertTrue(document["otherData"]["aligned"])
        trace = trace_file.read([self.path])
        self.assertEqual(sorted(trace.ranks), list(range(ranks)))
        for rank in range(ranks):
            found = {event.track for event in trace.events if event.rank == rank}
            self.assertLessEqual(tracks, found)
            self.check_calls(trace, rank)
        self.check_messages(trace)
        return trace

    def check_calls(self, trace, rank):
        """The same on all ranks, and around whatever belongs to them."""
        calls = trace.calls(rank)
        self.assertEqual({number: call.arguments for number, call in
                          calls.items()},
                         {number: call.arguments for number, call in
                          trace.calls(0).items()})
        for event in trace.events:
            if event.rank == rank:
                call = calls[event.arguments["call"]]
                self.assertGreaterEqual(event.begin, call.begin - 0.002, event)
                self.assertLessEqual(event.end, call.end + 0.002, event)

    def check_messages(self, trace):
        """What one rank sends the other receives: as much, and not before it. (A
        short message to all ranks of a host is out with the first of its
        sends.)"""
        def key(event, sender, receiver):
            return (event.arguments["call"], sender, receiver,
                    event.arguments["message"])

        sent = {key(event, event.rank, event.arguments["peer"]): event
                for event in trace.events if event.track == "send"}
        received = {key(event, event.arguments["peer"], event.rank): event
                    for event in trace.events if event.track == "receive"}
        self.assertEqual(sorted(sent), sorted(received))
        first = {}  # of the sends of a rank in a call
        for (number, sender, *_), event in sent.items():
            first[number, sender] = min(event.begin, first.get(
                (number, sender), event.begin))
        for name, event in received.items():
            self.assertEqual(event.arguments["bytes"],
                             sent[name].arguments["bytes"])
            out = (first[name[:2]] if event.arguments["bytes"] <= 4096 else
                   sent[name].begin)
            self.assertGreaterEqual(event.end, out - 0.002)

    def test_over_rails(self):
        tracks = {"copy in", "send", "receive", "reduce", "copy out", "transport",
                 "call"}
        for ranks in (2, 4):
            trace = self.check(ranks, tracks, "-b", "2M", "-e", "2M",
                               device=COPYING)
            # Each sub-chunk that a rank sends has been copied into a slot or
            # reduced there.
            for number, call in trace.calls(0).items():
                if call.arguments["bytes"] == 2 << 20:
                    copied = sum(event.arguments["bytes"]
                                 for event in trace.of_call(number)
                                 if (event.rank, event.track) == (0, "copy in"))
                    self.assertEqual(copied, (2 << 20) // ranks)

    def test_over_host_memory(self):
        for ranks in (2, 4):
            self.check(ranks, {"send", "receive", "reduce", "call"}, "-b", "2M",
                       "-e", "2M", device={})

    def test_of_short_calls(self):
        for device in ({}, {"RINGPIPE_DEVICE": "soft"}):
            trace = self.check(4, {"send", "receive", "reduce", "call"}, "-b",
                               "8", "-e", "8", device=device)
            self.assertTrue(any(call.arguments["bytes"] == 8
                                for call in trace.calls(0).values()))

    def test_of_asynchronous_calls(self):
        self.check(2, {"send", "receive", "reduce", "call"}, "-b", "1M", "-e",
                   "1M", "-z", "0", device={"RINGPIPE_DEVICE": "soft"})

    def test_the_path_is_seen_from_where_the_user_is(self):
        trace_of_relative = subprocess.run(
            [PROGRAM, "--ranks", "2", "-n", "1", "-e", "8", "--trace", "here"],
            env={**ENVIRONMENT, "BUILD_WORKING_DIRECTORY": str(self.folder)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(trace_of_relative.returncode, 0)
        self.assertEqual(os.listdir(self.folder), ["here"])

    def test_a_path_that_cannot_be_written_is_found_before_ranks_start(self):
        done = subprocess.run(
            [PROGRAM, "--ranks", "2", "-e", "8", "--trace",
             str(self.folder / "none" / "trace")],
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("none/trace", done.stderr)

    def test_a_long_call_is_drawn_whole_and_in_part(self):
        trace_of(self.path, "--ranks", 2, "-b", "32M", "-e", "32M",
                 environment=COPYING)
        drawing = self.draw()
        texts = [text.text for text in drawing.iter(SVG + "text")]
        self.assertRegex(texts[0], r"^allreduce of 32 MiB, 2 ranks \(ring\): rank "
                         r"0, call \d+, [\d.]+ [mu]?s$")
        self.assertRegex(texts[1], r"^Most of the time: [a-z ]+ \d+ %, then ")
        for track in ("copy in", "send", "receive", "reduce", "copy out"):
            self.assertEqual(texts.count(track), 2, texts)
        self.assertTrue(any(re.fullmatch(r"[\d.]+ ms", text) for text in texts))
        self.assertGreater(len(list(drawing.iter(SVG + "rect"))), 40)
        # Rank 1, and another part of the call.
        texts = [text.text for text in self.draw(
            "--rank", 1, "--from", 0, "--to", "0.5").iter(SVG + "text")]
        self.assertIn("rank 1", texts[0])
        self.assertIn("500 us of it: each box is a sub-chunk", texts)

    def test_a_short_call_is_drawn_step_by_step(self):
        trace_of(self.path, "--ranks", 4, "-b", "8", "-e", "8",
                 environment={"RINGPIPE_DEVICE": "soft"})
        texts = [text.text for text in self.draw().iter(SVG + "text")]
        self.assertIn("allreduce of 8 B, 4 ranks", texts[0])
        self.assertIn("Numbers are steps", texts[2])
        self.assertEqual(texts.count("reduce"), 1)

    def draw(self, *arguments):
        out = self.folder / "out.svg"
        done = timeline(self.path, "--svg", out, *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = out.read_text(encoding="utf-8")
        self.assertNotIn("<script", text)
        self.assertIn("prefers-color-scheme: dark", text)
        drawing = xml.etree.ElementTree.fromstring(text)
        width = float(drawing.get("width"))
        for box in drawing.iter(SVG + "rect"):
            if box.get("x"):
                self.assertGreaterEqual(float(box.get("x")), 0)
                self.assertLessEqual(
                    float(box.get("x")) + float(box.get("width")), width)
        return drawing


# --- Without a communicator ---------------------------------------------------


def header(ranks, size=2, run="1", dropped=0):
    return {"program": "ringpipe", "run": run, "size": size, "aligned": True,
            "ranks": [{"rank": rank, "host": "h", "pid": 1, "dropped": dropped}
                      for rank in ranks]}


def names(rank):
    events = [{"ph": "M", "pid": rank, "tid": 0, "name": "process_name",
               "args": {}}]
    for track in range(len(trace_file.TRACKS)):
        for name in ("thread_name", "thread_sort_index"):
            events.append({"ph": "M", "pid": rank, "tid": track, "name": name,
                           "args": {}})
    return events


def complete(rank, track, begin, end, **arguments):
    return {"ph": "X", "pid": rank, "tid": trace_file.TRACKS.index(track),
            "name": track, "cat": track, "ts": begin, "dur": end - begin,
            "args": {"call": 0, **arguments}}


def call(rank, begin, end, number=0, size=1024):
    return complete(rank, "call", begin, end, call=number, bytes=size, ok=True,
                    collective="allreduce", algorithm="ring", depth=4)


def work(rank, track, begin, end, subchunk=0, step=0):
    return complete(rank, track, begin, end, subchunk=subchunk, step=step,
                    bytes=100)


def message(rank, track, begin, end, name, number=0):
    common = {"pid": rank, "tid": trace_file.TRACKS.index(track), "name": track,
              "cat": track, "id": name}
    return [{"ph": "b", "ts": begin, **common,
             "args": {"call": 0, "step": 0, "subchunk": 0, "bytes": 100,
                      "peer": 1 - rank, "message": number}},
            {"ph": "e", "ts": end, **common}]


def document(ranks, events, **arguments):
    return {"otherData": header(ranks, **arguments),
            "traceEvents": [event for rank in ranks for event in names(rank)]
            + events}


def small():
    """Rank 1 copies in from 110 to 120 and sends from 120 on; rank 0 expects that
    from 100 on and has it at 140."""
    return document([0, 1], [
        call(0, 100, 200), call(1, 105, 205),
        work(1, "copy in", 110, 120), *message(1, "send", 120, 150, "1.0"),
        *message(0, "receive", 100, 140, "0.0"),
        complete(0, "wait", 102, 140, **{"for": "receive"}),
        work(0, "reduce", 140, 160, subchunk=1)])


class FormatTest(unittest.TestCase):

    def problem(self, change):
        """Of the small trace after `change`."""
        changed = copy.deepcopy(small())
        change(changed)
        return next(trace_file.problems(changed), None)

    def test_the_small_trace_is_right(self):
        self.assertIsNone(self.problem(lambda _: None))

    def test_each_rule_finds_what_breaks_it(self):
        def event(phase, **match):
            def find(changed):
                return next(one for one in changed["traceEvents"]
                            if one["ph"] == phase and all(
                                one.get(key) == value
                                for key, value in match.items()))
            return find

        wait = event("X", cat="wait")
        begin = event("b", id="1.0")
        end = event("e", id="1.0")
        for expected, change in {
                "ringpipe wrote it": lambda t: t["otherData"].pop("program"),
                'list of "traceEvents"': lambda t: t.pop("traceEvents"),
                '"size" of "otherData"': lambda t: t["otherData"].pop("size"),
                "rank 7 of 2": lambda t: t["otherData"]["ranks"][0].update(
                    rank=7),
                "no known phase": lambda t: wait(t).update(ph="Z"),
                '"ts" is missing': lambda t: wait(t).pop("ts"),
                '"dur" is missing': lambda t: wait(t).update(dur="1"),
                "is no rank": lambda t: wait(t).update(pid=5),
                "is no track": lambda t: wait(t).update(tid=77),
                "a time before": lambda t: wait(t).update(dur=-1),
                "category wait on tid 1": lambda t: wait(t).update(tid=1),
                "phase X for send": lambda t: wait(t).update(cat="send", tid=4),
                '"for" of "args"': lambda t: wait(t)["args"].pop("for"),
                '"message" of "args"': lambda t: begin(t)["args"].pop("message"),
                "does not end": lambda t: t["traceEvents"].remove(end(t)),
                "without a beginning": lambda t: t["traceEvents"].remove(
                    begin(t)),
                "ends before it begins": lambda t: end(t).update(ts=1),
                "begins twice": lambda t: t["traceEvents"].insert(
                    t["traceEvents"].index(begin(t)), begin(t)),
                "begins before the one before it": lambda t: t[
                    "traceEvents"].append(work(0, "reduce", 150, 170)),
                "no process_name": lambda t: t["traceEvents"].pop(0),
                "no thread_name": lambda t: t["traceEvents"].remove(
                    event("M", pid=0, tid=9, name="thread_name")(t)),
        }.items():
            with self.subTest(expected):
                self.assertIn(expected, self.problem(change) or "nothing")


class DrawingTest(unittest.TestCase):

    def test_a_message_is_on_its_way_from_when_its_peer_sent_it(self):
        trace = trace_file.Trace({"a": small()})
        box, = timeline_drawing.boxes_of(trace, 0, 0)["receive"]
        self.assertEqual((box.begin, box.end), (120, 140))

    def test_a_message_that_arrived_before_its_own_send_is_drawn_whole(self):
        trace = trace_file.Trace({"a": document([0, 1], [
            call(0, 100, 200), call(1, 100, 200),
            *message(1, "send", 150, 151, "1.0"),
            *message(0, "receive", 110, 140, "0.0")])})
        box, = timeline_drawing.boxes_of(trace, 0, 0)["receive"]
        self.assertEqual((box.begin, box.end), (110, 140))

    def test_messages_are_drawn_one_after_the_other(self):
        trace = trace_file.Trace({"a": document([0], [
            call(0, 100, 200), *message(0, "send", 110, 130, "0.0"),
            *message(0, "send", 112, 150, "0.1", 1)])})
        boxes = timeline_drawing.boxes_of(trace, 0, 0)["send"]
        self.assertEqual([(box.begin, box.end) for box in boxes],
                         [(110, 130), (130, 150)])

    def test_what_takes_longest_is_named_first_with_the_waits_for_it(self):
        trace = trace_file.Trace({"a": small()})
        shares = timeline_drawing.shares_of(trace, 0, 0, 100)
        self.assertEqual(shares, {"receive": 0.38, "reduce": 0.2})
        self.assertEqual(timeline_drawing.verdict(shares),
                         "Most of the time: waiting for messages 38 %, then "
                         "reduce 20 %; 42 % in no track")

    def test_work_and_waits_that_overlap_count_once(self):
        self.assertEqual(timeline_drawing.covered([(5, 9), (0, 6), (8, 9)]), 9)

    def test_the_window_is_of_median_length(self):
        boxes = [timeline_drawing.Box("reduce", begin, begin + 1, 0, 0, "")
                 for start, step in ((0, 9), (200, 3), (300, 1))
                 for begin in range(start, start + step * 18, step)]
        tracks = {track: [] for track in trace_file.STAGES}
        tracks["reduce"] = boxes
        self.assertEqual(timeline_drawing.choose_window(tracks, 50), (150, 202))

    def test_ticks_are_round_and_have_a_unit(self):
        self.assertEqual([label for _, label in timeline_drawing.ticks(0, 10)],
                         ["0 us", "2 us", "4 us", "6 us", "8 us", "10 us"])
        self.assertEqual(
            [label for _, label in timeline_drawing.ticks(71_230, 71_390)],
            ["71.24 ms", "71.26 ms", "71.28 ms", "71.30 ms", "71.32 ms",
             "71.34 ms", "71.36 ms", "71.38 ms"])

    def test_the_call_that_is_drawn_has_the_most_bytes_and_is_whole(self):
        events = [call(0, 10, 20, 5, 64), call(0, 20, 30, 6, 512),
                  call(0, 30, 40, 7, 512), call(0, 40, 50, 8, 8)]
        trace = trace_file.Trace({"a": document([0], events)})
        self.assertEqual(sorted(trace.calls(0)), [5, 6, 7, 8])
        trace = trace_file.Trace({"a": document([0], events, dropped=1)})
        self.assertEqual(sorted(trace.calls(0)), [6, 7, 8])


class ProgramTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"

    def save(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else
                        json.dumps(content), encoding="utf-8")
        return path

    def one_rank(self, rank, **arguments):
        return document([rank], [
            event for event in small()["traceEvents"]
            if event["pid"] == rank and event["ph"] != "M"], **arguments)

    def test_files_of_ranks_are_drawn_and_joined(self):
        paths = [self.save(f"t.rank{rank}", self.one_rank(rank))
                 for rank in (1, 0)]
        joined = self.folder / "joined"
        done = timeline(*paths, "--svg", self.out, "--json", joined)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("rank 0, call 0", self.out.read_text(encoding="utf-8"))
        again = json.loads(joined.read_text(encoding="utf-8"))
        self.assertEqual(list(trace_file.problems(again)), [])
        self.assertEqual(len(again["traceEvents"]), len(small()["traceEvents"]))

    def test_bad_input_is_an_error_that_says_what_to_do(self):
        good = self.save("good", small())
        for expected, arguments in {
                "No such file": [self.folder / "none"],
                "is no JSON": [self.save("text", "no trace")],
                "no trace of ringpipe's: it is no JSON object":
                    [self.save("list", [])],
                "does not say that ringpipe": [self.save("other", {})],
                "not of the same communicator":
                    [self.save("a", self.one_rank(0)),
                     self.save("b", self.one_rank(1, run="2"))],
                "leave one of them out": [good, self.save(
                    "again", self.one_rank(0))],
                "rank 5 is not in the trace; it has 0, 1": [good, "--rank", 5],
                "no whole call 3; it has those from 0 to 0":
                    [good, "--call", 3],
                "trace fewer or smaller calls": [self.save(
                    "dropped", self.one_rank(0, dropped=9))],
                "belong together": [good, "--from", 1],
                "less than --to": [good, "--from", 2, "--to", 1],
        }.items():
            with self.subTest(expected):
                done = timeline(*arguments, "--svg", self.out)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(expected, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertFalse(self.out.exists())

    def test_an_output_that_cannot_be_written_is_an_error(self):
        done = timeline(self.save("good", small()), "--svg",
                        self.folder / "none" / "out")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^timeline: cannot write .*none/out: No such")

    def test_no_output_is_a_wrong_command_line(self):
        done = timeline(self.save("good", small()))
        self.assertEqual(done.returncode, 2)
        self.assertIn("give --svg OUT", done.stderr)


if __name__ == "__main__":
    unittest.main()
