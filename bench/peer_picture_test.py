"""compare_peers' picture, and what it says of a file that it cannot draw. The
samples are made up."""

import copy
import json
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
import bar_chart
import peer_document
import peer_picture

SVG = "{http://www.w3.org/2000/svg}"
# Made up: in milliseconds, for 2 ranks.
MEDIANS_MS = {"ringpipe allocate": 30, "ringpipe private": 45,
              "openmpi": 150, "openmpi-ucx+alg6": 80, "mpich": 120,
              "gloo-allreduce_ring": 195, "ring+pinned": 70}
NAMES = {"ringpipe allocate": "ringpipe, from Allocate",
         "ringpipe private": "ringpipe, private memory",
         "openmpi": "Open MPI", "openmpi-ucx+alg6": "Open MPI over UCX",
         "mpich": "MPICH", "gloo-allreduce_ring": "gloo (TCP)",
         "ring+pinned": "plain ring over MPI"}
# Of the median, by round.
SPREAD = [1, 0.8, 1.3, 0.9, 1.1]


def sample(contender, time_us, before="one L3", after="one L3"):
    """Of three calls with this median. In place is another figure."""
    return {"contender": contender, "placements": [before, after],
            "us": {"out_of_place": [time_us, 9 * time_us, time_us / 9],
                   "in_place": [7 * time_us]}}


def case_of(ranks, medians_ms, size=1 << 28):
    return {"ranks": ranks, "size": size, "iterations": 3,
            "contenders": list(medians_ms), "failures": {},
            "rounds": [[sample(name, 1e3 * time_ms * part)
                        for name, time_ms in medians_ms.items()]
                       for part in SPREAD]}


def document_of(*cases):
    return {"schema": dict(peer_document.SCHEMA), "date": "2026-01-02T03:04:05Z",
            "machine": "a machine", "versions": {}, "touch": False, "rounds": 5,
            "contenders": {}, "left_out": {}, "cases": list(cases)}


def usual_document():
    """2, 4 and 8 ranks; each takes as many times as long."""
    return document_of(*[
        case_of(ranks, {name: ranks / 2 * time_ms
                        for name, time_ms in MEDIANS_MS.items()})
        for ranks in (2, 4, 8)])


class Picture:
    """What an SVG shows."""

    def __init__(self, text):
        self.root = xml.etree.ElementTree.fromstring(text)
        self.bars = self._of("bar")
        self.intervals = self._of("interval")
        self.figures = [one.text for one in self._of("figure")]
        self.names = [one.text for one in self._of("end")]
        self.groups = [one.text for one in self._of("group")]
        self.text = "\n".join(one.text for one in self.root.iter(f"{SVG}text"))

    def _of(self, name):
        return [one for one in self.root.iter()
                if name in one.get("class", "").split()]

    def note(self, index):
        return self.bars[index].find(f"{SVG}title").text

    def pixels(self, index):
        """(length of the bar, and the ends of its interval from its begin)."""
        begin = float(self.bars[index].get("x"))
        return (float(self.bars[index].get("width")),
                float(self.intervals[index].get("x1")) - begin,
                float(self.intervals[index].get("x2")) - begin)


def draw(document):
    return Picture(peer_picture.draw(document))


class PictureTest(unittest.TestCase):

    def test_one_bar_for_each_implementation_and_number_of_ranks(self):
        picture = draw(usual_document())
        self.assertEqual(picture.groups, ["2 ranks", "4 ranks", "8 ranks"])
        self.assertEqual(picture.names, list(NAMES.values()) * 3)
        for index in range(len(picture.bars)):
            ranks, name = 2 << index // 7, picture.names[index]
            self.assertTrue(
                picture.note(index).startswith(f"{name}, {ranks} ranks: "),
                picture.note(index))
        self.assertEqual(len(picture.bars), 21)

    def test_bars_are_as_long_as_medians_and_intervals_reach_all_rounds(self):
        document = usual_document()
        picture = draw(document)
        unit = picture.pixels(0)[0] / MEDIANS_MS["ringpipe allocate"]
        expected = [ranks / 2 * time_ms for ranks in (2, 4, 8)
                    for time_ms in MEDIANS_MS.values()]
        for index, time_ms in enumerate(expected):
            length, low, high = picture.pixels(index)
            self.assertAlmostEqual(length, time_ms * unit, delta=0.3)
            self.assertAlmostEqual(low, 0.8 * time_ms * unit, delta=0.3)
            self.assertAlmostEqual(high, 1.3 * time_ms * unit, delta=0.3)
        self.assertIn("from the fastest round to the slowest, of 5 rounds",
                      picture.text)

    def test_the_axis_has_the_scale_of_the_bars(self):
        picture = draw(usual_document())
        ticks = [(float(one.text), float(one.get("x")))
                 for one in picture.root.iter(f"{SVG}text")
                 if one.get("class") == "small middle" and one.text[0].isdigit()]
        (zero, begin), *others = ticks
        self.assertEqual(zero, 0)
        self.assertEqual(begin, float(picture.bars[0].get("x")))
        unit = picture.pixels(0)[0] / MEDIANS_MS["ringpipe allocate"]
        for value, x in others:
            self.assertAlmostEqual(x - begin, value * unit, delta=value / 100)
        self.assertIn("milliseconds", picture.text)

    def test_labels_have_the_figures(self):
        picture = draw(usual_document())
        self.assertEqual(picture.figures[:3], ["30.00 ms", "45.00 ms", "150 ms"])
        self.assertEqual(
            picture.note(2), "Open MPI, 2 ranks: 150 ms (120 ms to 195 ms, 5 "
            "rounds), measured as openmpi")

    def test_it_needs_no_colours_no_background_and_nothing_from_outside(self):
        text = peer_picture.draw(usual_document())
        picture = Picture(text)
        # Filled, and six hatches that are all different.
        fills = [bar.get("fill", "filled") for bar in picture.bars]
        self.assertEqual(len(set(fills)), 7)
        self.assertEqual(fills, fills[:7] * 3)
        shapes = [one.find(f"{SVG}path").get("d")
                  for one in picture.root.iter(f"{SVG}pattern")]
        self.assertEqual(len(set(shapes)), 6)
        self.assertEqual(set(fills) - {"filled"},
                         {f"url(#{one.get('id')})"
                          for one in picture.root.iter(f"{SVG}pattern")})
        self.assertIn("@media (prefers-color-scheme: dark)", text)
        # No rectangle but the bars: the page is the background.
        self.assertEqual(len(list(picture.root.iter(f"{SVG}rect"))),
                         len(picture.bars))
        for word in ("<script", "href", "@import", "@font-face", "http://"):
            self.assertNotIn(word, text.replace("http://www.w3.org/2000/svg",
                                                ""))
        sizes = re.findall(r"font-size: (\d+)px", text)
        self.assertGreaterEqual(min(map(int, sizes)), 13)
        self.assertLessEqual(int(picture.root.get("width")), 800)

    def test_both_shades_style_the_same_things(self):
        light, dark = bar_chart.STYLE.split("@media")
        coloured = {line.split(" {")[0] for line in light.splitlines()
                    if "#" in line}
        self.assertEqual(coloured, {line.split(" {")[0]
                                    for line in dark.splitlines()
                                    if "#" in line})

    def test_a_library_is_drawn_with_its_fastest_setting(self):
        picture = draw(document_of(case_of(
            2, {"openmpi": 150, "openmpi+pinned": 140, "ring": 90,
                "ring-ucx+huge": 80, "ringpipe private": 5, "ringpipe huge": 1,
                "floor private": 1})))
        self.assertEqual(picture.names, ["ringpipe, private memory", "Open MPI",
                                         "plain ring over MPI"])
        self.assertTrue(picture.note(1).endswith("as openmpi+pinned"))
        self.assertTrue(picture.note(2).endswith("as ring-ucx+huge"))

    def test_the_largest_size_is_drawn(self):
        picture = draw(document_of(case_of(2, {"openmpi": 1}, size=8),
                                   case_of(2, {"openmpi": 150})))
        self.assertEqual(picture.figures, ["150 ms"])
        self.assertIn("allreduce of 256 MiB", picture.text)

    def test_short_times_are_in_microseconds(self):
        picture = draw(document_of(case_of(2, {"openmpi": 0.002}, size=8)))
        self.assertEqual(picture.figures, ["2.00 us"])
        self.assertIn("microseconds", picture.text)

    def test_touched_buffers_are_mentioned(self):
        document = usual_document()
        self.assertNotIn("writes its input", draw(document).text)
        document["touch"] = True
        self.assertIn("writes its input", draw(document).text)


class MissingTest(unittest.TestCase):

    def _without(self, name):
        document = usual_document()
        for case in document["cases"]:
            case["contenders"].remove(name)
            for samples in case["rounds"]:
                samples[:] = [one for one in samples
                              if one["contender"] != name]
        return document

    def test_a_peer_that_is_not_installed_is_left_out_and_named(self):
        document = self._without("mpich")
        document["left_out"]["mpich"] = "not installed: ./setup installs it"
        picture = draw(document)
        self.assertEqual(len(picture.bars), 18)
        self.assertNotIn("MPICH", picture.names)
        self.assertIn("Left out: MPICH with 2, 4, 8 ranks (not installed).",
                      picture.text)

    def test_a_peer_can_be_missing_for_some_numbers_of_ranks(self):
        document = usual_document()
        document["left_out"]["mpich with 8 ranks"] = "too slow: try it"
        last = document["cases"][2]
        last["contenders"].remove("mpich")
        last["rounds"] = [[one for one in samples if one["contender"] != "mpich"]
                          for samples in last["rounds"]]
        picture = draw(document)
        self.assertEqual(picture.names.count("MPICH"), 2)
        self.assertIn("Left out: MPICH with 8 ranks (too slow).", picture.text)

    def test_what_was_not_asked_for_or_failed_is_named(self):
        document = self._without("mpich")
        document["cases"][0]["contenders"].append("mpich")
        document["cases"][0]["failures"]["mpich"] = "why"
        text = draw(document).text
        self.assertIn("Left out: MPICH with 2 ranks (it failed).", text)
        self.assertIn("Left out: MPICH with 4, 8 ranks (not asked for).", text)


class PlacementTest(unittest.TestCase):

    def test_that_in_which_most_can_be_drawn_and_no_sample_of_another(self):
        case = case_of(2, {"openmpi": 150, "mpich": 120})
        # More samples, of one bar only; and one in which the cores moved.
        case["rounds"] += [[sample("openmpi", 1e3, "far", "far")] * 3
                           for _ in range(9)]
        case["rounds"].append([sample("mpich", 1e3, "one L3", "far")])
        picture = draw(document_of(case))
        self.assertEqual(picture.figures, ["150 ms", "120 ms"])
        self.assertIn("while the two cores shared an L3 cache", picture.text)

    def test_where_as_much_can_be_drawn_that_of_most_samples(self):
        case = case_of(2, {"openmpi": 150})
        case["rounds"] += [[sample("openmpi", 2e5, "far", "far")]
                           for _ in range(len(SPREAD) + 1)]
        picture = draw(document_of(case))
        self.assertEqual(picture.figures, ["200 ms"])
        self.assertIn("while the two cores were far from each other", picture.text)

    def test_the_note_says_that_a_peer_has_no_sample_in_it(self):
        case = case_of(2, {"openmpi": 150})
        case["contenders"].append("mpich")
        case["rounds"][0].append(sample("mpich", 1e3, "far", "far"))
        self.assertIn("MPICH with 2 ranks (no sample in this placement)",
                      draw(document_of(case)).text)


    def test_a_number_of_ranks_without_samples_is_one_line(self):
        case = case_of(8, {"openmpi": 150, "ringpipe private": 50})
        case["rounds"] = []
        picture = draw(document_of(case_of(2, MEDIANS_MS), case))
        self.assertEqual(picture.groups, ["2 ranks"])
        self.assertEqual(picture.text.count("Left out"), 1)
        self.assertIn("Left out: 8 ranks (no sample in this placement).",
                      picture.text)


class FileTest(unittest.TestCase):

    def _report(self, content):
        """(exit status, standard error, the picture or None)."""
        with tempfile.TemporaryDirectory() as folder:
            saved = pathlib.Path(folder) / "a.json"
            picture = pathlib.Path(folder) / "new folder/a.svg"
            if content is not None:
                saved.write_bytes(content)
            done = subprocess.run(
                [sys.executable, BENCH / "compare_peers", "--report", saved,
                 "--svg", picture], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, check=False)
            return (done.returncode, done.stderr,
                    picture.read_text() if picture.exists() else None)

    def _assert_refused(self, content, reason):
        if not isinstance(content, (bytes, type(None))):
            content = json.dumps(content).encode()
        status, error, picture = self._report(content)
        self.assertEqual(status, 1, error)
        self.assertRegex(error, rf"\Acompare_peers: .*{reason}.*\n\Z")
        self.assertIsNone(picture)

    def test_a_saved_file_is_drawn_without_measuring(self):
        document = usual_document()
        status, error, picture = self._report(json.dumps(document).encode())
        self.assertEqual((status, error), (0, ""))
        self.assertEqual(picture, peer_picture.draw(document))

    def test_a_file_that_is_missing_or_no_json_is_an_error(self):
        self._assert_refused(None, "a.json: No such file")
        self._assert_refused(b'{"cut": [1,', "a.json is not JSON")
        self._assert_refused(b"\xff\xfe", "a.json is not JSON")
        self._assert_refused([], "the file is no object")

    def test_a_file_of_another_program_is_an_error(self):
        self._assert_refused({"schema": {"name": "ringpipe-allreduce",
                                         "version": 1}},
                             "schema is .*ringpipe-allreduce")
        self._assert_refused({}, "the file has no field schema")

    def test_a_damaged_field_is_named(self):
        def damaged(change):
            document = copy.deepcopy(usual_document())
            change(document, document["cases"][1]["rounds"][2][3])
            return document
        here = r"cases\[1\]\.rounds\[2\]\[3\]"
        for change, reason in (
                (lambda document, _: document.pop("cases"), "no field cases"),
                (lambda document, _: document["cases"][0].pop("ranks"),
                 r"cases\[0\] has no field ranks"),
                (lambda document, _: document["cases"].append(7),
                 r"cases\[3\] is no object"),
                (lambda _, one: one.pop("us"), f"{here} has no field us"),
                (lambda _, one: one["us"].update(in_place=[]),
                 f"{here}.us.in_place is no list of times"),
                (lambda _, one: one["us"].update(in_place=["fast"]),
                 f"{here}.us.in_place is no list of times"),
                (lambda _, one: one["us"].update(out_of_place=[0]),
                 f"{here}.us.out_of_place is no list of times"),
                (lambda _, one: one["us"].update(elsewhere=[1]),
                 f"{here}.us has the field elsewhere"),
                (lambda _, one: one.update(placements=["far"]),
                 f"{here}.placements is not two names"),
                (lambda _, one: one.update(contender=3),
                 f"{here}: contender is 3, not a string")):
            self._assert_refused(damaged(change), reason)

    def test_without_samples_there_is_no_picture_and_an_error(self):
        self._assert_refused(document_of(), "no sample to draw")
        case = case_of(2, {"openmpi": 1})
        case["rounds"] = [[sample("openmpi", 1, "far", "one L3")]]
        self._assert_refused(document_of(case), "no sample to draw")


class DocumentsTest(unittest.TestCase):

    def test_the_readmes_picture_is_of_the_samples_in_the_tree(self):
        document = peer_document.load(BENCH / "results" / "peers.json")
        self.assertEqual((BENCH.parent / "docs" / "peers.svg").read_text(),
                         peer_picture.draw(document))


class TickTest(unittest.TestCase):

    def test_steps_are_1_2_or_5_and_not_many(self):
        for most, step in ((8, 1), (8.1, 2), (16.1, 5), (41, 10), (1300, 200),
                           (0.05, 0.01)):
            self.assertAlmostEqual(bar_chart.tick_step(most), step)


if __name__ == "__main__":
    unittest.main()
