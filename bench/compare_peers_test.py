"""Runs compare_peers with its real programs, at tiny sizes: that they work and
that it reads them, not how fast they are."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
import peer_settings  # pylint: disable=wrong-import-position

# Not resolved: what Bazel gives this test, and no more.
PROGRAMS = pathlib.Path(sys.argv.pop(1)).absolute().parent
PATIENCE_S = 280
# Open MPI 5 wants one.
os.environ.setdefault("HOME", os.environ.get("TEST_TMPDIR", "/tmp"))


def installed(names):
    return [name for name in names if (PROGRAMS / peer_settings.program_of(
        peer_settings.parse_setting(name))[0]).exists()]


ANY = installed(["openmpi", "gloo-ring"])[:1]


@unittest.skipUnless(ANY or os.environ.get("CI"),
                     "neither Open MPI nor gloo is installed")
class ComparePeersTest(unittest.TestCase):

    def _run(self, *arguments):
        done = subprocess.run(
            [sys.executable, BENCH / "compare_peers", "--programs", PROGRAMS,
             # Where the cores move, it waits for them to come back.
             "--rounds", "1", "--minutes", "0.3", "--iterations", "2",
             *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def _measured(self, *arguments):
        """The document, {contender: places that it was measured in}, and what
        was printed."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.json"
            text = self._run(*arguments, "--json", path)
            document = json.loads(path.read_text())
        case, = document["cases"]
        self.assertEqual(case["failures"], {})
        places = {}
        for one in case["rounds"][0]:
            places[one["contender"]] = sorted(one["us"])
            for times in one["us"].values():
                self.assertEqual(len(times), 2, one)
        return document, places, text

    def test_every_kind_of_buffers_and_its_floor(self):
        buffers = ["private", "page", "huge", "registered", "allocate"]
        both = ["in_place", "out_of_place"]
        for touch in ([], ["--touch"]):
            document, places, _ = self._measured(
                "--ranks", "3", "--size", "100K", "--buffers",
                ",".join(buffers), "--peer", ANY[0], *touch)
            for name in buffers:
                self.assertEqual(places[f"ringpipe {name}"], both)
            for name in ("private", "page", "huge", "allocate"):
                self.assertEqual(places[f"floor {name}"], both)
            self.assertEqual(document["touch"], bool(touch))

    def test_every_peer_that_is_installed(self):
        names = installed([
            "openmpi", "openmpi+alg1+pinned", "openmpi-ucx+alg6+huge+malloc",
            "ring+pinned+page", "ring-ucx+huge", "gloo-ring", "gloo-ring_chunked",
            "gloo-halving_doubling+poll", "gloo-allreduce_ring+pinned+page",
            "gloo-allreduce_bcube+huge+malloc"])
        # No whole number of chunks, and less than one for each rank.
        for size in ("100004", "8"):
            document, places, text = self._measured(
                "--ranks", "3", "--size", size, "--peer", ",".join(names),
                "--touch", "--all")
            self.assertTrue(set(names) <= set(places))
            # A sample during which the cores moved is dropped.
            kept = {sample["contender"] for one in document["cases"][0]["rounds"]
                    for sample in one if len(set(sample["placements"])) == 1}
            for name in names:
                self.assertEqual(f"  {name}\n" in text, name in kept, text)
                self.assertIn("touch", document["contenders"][name]["command"])

    def test_every_collective_of_mpi(self):
        names = installed(["openmpi", "openmpi-ucx+pinned"])
        for collective in ("reduce-scatter", "all-gather", "broadcast", "reduce",
                           "gather", "scatter", "all-to-all"):
            document, places, text = self._measured(
                "--collective", collective, "--ranks", "3", "--size", "100004",
                "--buffers", "private", *(["--peer", ",".join(names)]))
            self.assertEqual(document["collective"], collective)
            self.assertIn(f"# {collective}\n", text)
            self.assertEqual(set(places), {"ringpipe private", *names})
            for name in names + ["ringpipe private"]:
                self.assertEqual("in_place" in places[name],
                                 collective != "all-to-all")
            for name in names:
                self.assertIn(f"collective={collective}",
                              document["contenders"][name]["command"])

    def test_a_peer_without_the_collective_is_an_error(self):
        done = subprocess.run(
            [sys.executable, BENCH / "compare_peers", "--programs", PROGRAMS,
             "--collective", "reduce", "--peer", "gloo-ring"],
            stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "gloo-ring: has no reduce")

    def test_a_picture_also_of_a_saved_file(self):
        with tempfile.TemporaryDirectory() as folder:
            saved, first, second = (pathlib.Path(folder) / name for name in
                                    ("new/a.json", "new/b.svg", "c.svg"))
            text = self._run("--ranks", "2", "--size", "8", "--peer", ANY[0],
                             "--json", saved, "--svg", first)
            again = self._run("--report", saved, "--svg", second)
            self.assertTrue(again.endswith("\n"))
            self.assertIn(again, text)
            self.assertEqual(first.read_text(), second.read_text())
            bars = [one for one in xml.etree.ElementTree.parse(first).iter()
                    if "bar" in one.get("class", "").split()]
            # Private memory and that of Allocate beside the peer. In a sample
            # during which the cores moved one may be lost.
            self.assertIn(len(bars), (1, 2, 3))

    def test_a_peer_that_was_asked_for_and_is_missing_is_an_error(self):
        done = subprocess.run(
            [sys.executable, BENCH / "compare_peers", "--programs", PROGRAMS,
             "--peer", "openmpi+alg9"], stderr=subprocess.PIPE, text=True,
            check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no peer openmpi+alg9", done.stderr)


if __name__ == "__main__":
    unittest.main()
