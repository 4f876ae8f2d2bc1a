import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
# pylint: disable=wrong-import-position
import comparison
import peer_report
import peer_settings


def load_script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(BENCH / name))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


compare_guest = load_script("compare_guest")
compare_peers = load_script("compare_peers")


class IntervalTest(unittest.TestCase):

    def test_six_values_give_their_range_with_97_percent(self):
        self.assertEqual(comparison.interval([3, 1, 2, 6, 5, 4]),
                         (1, 6, 1 - 2 / 64))

    def test_nine_values_leave_out_one_at_each_end(self):
        low, high, confidence = comparison.interval(range(9))
        self.assertEqual((low, high), (1, 7))
        self.assertAlmostEqual(confidence, 1 - 2 * 10 / 512)

    def test_three_values_say_that_they_give_less_than_95_percent(self):
        self.assertEqual(comparison.interval([1, 2, 3]), (1, 3, 0.75))


class RunTest(unittest.TestCase):

    def test_a_program_that_does_not_end_is_killed_with_its_children(self):
        with tempfile.TemporaryDirectory() as folder:
            pid_file = pathlib.Path(folder) / "pid"
            start = time.monotonic()
            with self.assertRaisesRegex(comparison.Failure, "more than 1 s"):
                comparison.run(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; "
                                "wait"], {}, patience_s=1)
            self.assertLess(time.monotonic() - start, 30)
            # The output was read to its end, so no process has it open any
            # more; on its way out the last may still be seen for a moment.
            child = int(pid_file.read_text())
            while time.monotonic() - start < 60:
                try:
                    state = pathlib.Path(f"/proc/{child}/stat").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    return
                if re.search(r"\) [ZX]", state):
                    return
            self.fail(state)

    def test_a_failure_says_what_the_program_printed(self):
        with self.assertRaisesRegex(comparison.Failure,
                                    "exit status 3:\nno device"):
            comparison.run(["sh", "-c", "echo no device; exit 3"], {})

    def test_a_program_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(comparison.Failure, "/no/such.*setup"):
            comparison.run(["/no/such"], {})


class ParsePeerTest(unittest.TestCase):

    def test_samples_by_place(self):
        self.assertEqual(
            comparison.parse_peer("noise\n"
                                  "in_place wrong 0 first 9.0 samples 1.5 2\n"),
            {"in_place": [1.5, 2.0]})

    def test_the_floor_may_have_checked_nothing(self):
        self.assertEqual(
            comparison.parse_peer("out_of_place wrong unchecked first 9.0 "
                                  "samples 1.5 2\n"),
            {"out_of_place": [1.5, 2.0]})

    def test_a_wrong_result_is_no_result(self):
        with self.assertRaises(comparison.Failure):
            comparison.parse_peer("in_place wrong 7 first 9.0 samples 1.5\n")


class PlacementTest(unittest.TestCase):

    def test_its_name_is_what_core_placement_printed_first(self):
        self.assertEqual(
            comparison.parse_placement("one L3 117 ns, cores 0 and 1\n"),
            "one L3")
        with self.assertRaises(comparison.Failure):
            comparison.parse_placement("near 3 ns")

    def test_a_machine_of_more_cores_has_none(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "core_placement"
            program.write_text("#!/bin/sh\necho far 507 ns, cores 0 and 1\n")
            program.chmod(0o755)
            with unittest.mock.patch("os.sched_getaffinity",
                                     return_value={0, 1}):
                self.assertEqual(comparison.Placement(program).now(), "far")
                # Other work keeps the cores too busy for some seconds.
                program.write_text(
                    "#!/bin/sh\necho core_placement: unavailable: cores 0 and 1 "
                    "are too busy with other work >&2\nexit 1\n")
                self.assertEqual(comparison.Placement(program).now(),
                                 "not recorded")
                gone = comparison.Placement(program.with_name("gone"))
                self.assertEqual(gone.now(), "not recorded")
                self.assertIn("bazel build", gone.why_unknown)
            with unittest.mock.patch("os.sched_getaffinity",
                                     return_value={0, 1, 2}):
                self.assertEqual(comparison.Placement(program).now(),
                                 "not recorded")


def setting(name):
    return peer_settings.parse_setting(name)


class PeerSettingsTest(unittest.TestCase):

    def test_a_name_says_what_is_set(self):
        command, environment = peer_settings.command_of(
            setting("openmpi-ucx+alg6+pinned+huge+malloc"), "p", 8, 64, 1, 3,
            touch=True)
        line = " ".join(map(str, command))
        self.assertTrue(line.startswith(
            "mpirun.openmpi --oversubscribe --bind-to none --mca pml ucx "))
        self.assertIn("--mca coll_tuned_use_dynamic_rules 1 --mca "
                      "coll_tuned_allreduce_algorithm 6 ", line)
        self.assertTrue(line.endswith("-n 8 p 64 1 3 pinned huge touch"), line)
        self.assertEqual(environment["UCX_TLS"], "posix,sysv,cma,self")
        self.assertEqual(environment["MALLOC_MMAP_MAX_"], "0")
        self.assertEqual(environment["GLIBC_TUNABLES"],
                         "glibc.malloc.hugetlb=1")

    def test_buffers_begin_with_a_page_where_the_name_says_so(self):
        for name in ("openmpi", "gloo-ring"):
            command, _ = peer_settings.command_of(setting(name + "+page"), "p",
                                                  2, 8, 1, 9, touch=False)
            self.assertEqual(command[-1], "align=0")

    def test_without_words_a_library_has_its_defaults(self):
        command, environment = peer_settings.command_of(
            setting("openmpi"), "p", 2, 8, 1, 9, touch=False)
        self.assertEqual(command, ["mpirun.openmpi", "--oversubscribe", "-n", 2,
                                   "p", 8, 1, 9])
        self.assertEqual(environment, comparison.AS_ROOT)

    def test_rings_and_gloo_are_programs_of_their_own(self):
        self.assertEqual(
            peer_settings.command_of(setting("ring"), "p", 2, 8, 1, 9,
                                     False)[0][-4:], [8, 1, 9, "ring"])
        self.assertEqual(
            peer_settings.command_of(setting("gloo-ring+poll+pinned"), "g", 2, 8,
                                     1, 9, False)[0],
            ["g", 2, 8, 1, 9, "ring+poll", "tcp", 0, "pinned"])

    def test_a_word_that_a_library_does_not_know_is_refused(self):
        for name in ("openmpi+alg7", "gloo-ring+alg1", "ring+alg6", "nccl",
                     "openmpi+alg1+alg6", "openmpi+pinned+pinned",
                     "gloo-allreduce_ring+poll", "openmpi+"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError,
                                        "no peer"):
                setting(name)

    def test_with_more_ranks_than_cores_mpich_is_left_out_with_a_reason(self):
        self.assertIn("mpich", peer_settings.default_names(2, 8, cores=2))
        # Debian's gloo, and the textbook's ring, are for allreduces.
        for name in peer_settings.default_names(2, 8, 2, "reduce"):
            self.assertTrue(name.startswith(("openmpi", "mpich")), name)
        self.assertEqual(peer_settings.left_out_by_default(2, cores=2), {})
        self.assertNotIn("mpich", peer_settings.default_names(4, 8, cores=2))
        (name, why), = peer_settings.left_out_by_default(4, cores=2).items()
        self.assertEqual(name, "mpich with 4 ranks")
        self.assertIn("more ranks than cores", why)

    def test_defaults_are_peers_and_have_every_library(self):
        for ranks in (2, 8):
            for size in (8, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 28):
                names = peer_settings.default_names(ranks, size, cores=2)
                self.assertEqual(len(names), len(set(names)))
                self.assertLessEqual(len(names), 12)
                for name in names:
                    setting(name)
                self.assertIn("openmpi", names)
                self.assertTrue({"Open MPI", "Open MPI over UCX",
                                 "plain ring over MPI", "gloo (TCP)"} <=
                                set(map(peer_settings.library_of, names)))


def sample(contender, time_us, placements=("far", "far")):
    """Of calls whose median is `time_us`."""
    return {"contender": contender, "placements": list(placements),
            "us": {place: [time_us, 9 * time_us, time_us / 9]
                   for place in comparison.PLACES}}


def case_of(rounds, size=1 << 16):
    names = list(dict.fromkeys(one["contender"] for samples in rounds
                               for one in samples))
    return {"ranks": 2, "size": size, "iterations": 3, "contenders": names,
            "failures": {}, "rounds": rounds}


def document_of(*cases):
    return {"schema": {}, "date": "d", "machine": "m", "versions": {},
            "touch": False, "rounds": 7, "contenders": {}, "left_out": {},
            "cases": list(cases)}


def usual_case(size=1 << 16, rounds=6):
    """ringpipe takes half of what openmpi takes, and a third of gloo-ring."""
    return case_of([[sample("ringpipe private", 10 + i),
                     sample("ringpipe allocate", 5 + i),
                     sample("openmpi", 20 + 2 * i),
                     sample("openmpi+pinned", 21 + 2 * i),
                     sample("gloo-ring", 30 + 3 * i),
                     sample("floor private", 5 + i / 2)]
                    for i in range(rounds)], size)


class PeerReportTest(unittest.TestCase):

    def test_samples_in_which_the_placement_changed_are_dropped(self):
        case = case_of([
            [sample("ringpipe private", 30), sample("openmpi", 10)],
            [sample("ringpipe private", 99, ("far", "one L3")),
             sample("openmpi", 12, ("one L3", "one L3"))],
            [sample("ringpipe private", 5, ("one L3", "one L3")),
             sample("openmpi", 99, ("one L3", "far"))]])
        self.assertEqual(
            peer_report.kept_medians(case),
            {"far": {"ringpipe private": dict.fromkeys(
                         comparison.PLACES, {0: 30}),
                     "openmpi": dict.fromkeys(comparison.PLACES, {0: 10})},
             "one L3": {"openmpi": dict.fromkeys(comparison.PLACES, {1: 12}),
                        "ringpipe private": dict.fromkeys(
                            comparison.PLACES, {2: 5})}})
        self.assertEqual(peer_report.dropped_samples(document_of(case)), (2, 6))
        text = peer_report.format_report(document_of(case))
        far, near = text.split("# placement of the cores: one L3")
        self.assertIn("# placement of the cores: far", far)
        self.assertIn("3.000  3.000 to 3.000 (0 % CI, 1 rounds) *", far)
        # Of different rounds: no ratio.
        self.assertIn("–  (no round has both)", near)
        self.assertIn("dropped, as the placement changed: 2 of 6\n", near)

    def test_the_best_peer_has_the_smallest_median_over_rounds(self):
        # gloo-ring has the fastest round of all, and no better median.
        rounds = [[sample("ringpipe private", 1), sample("floor private", 1),
                   sample("openmpi", 10), sample("gloo-ring", time_us)]
                  for time_us in (2, 11, 12, 13, 14)]
        medians = peer_report.kept_medians(case_of(rounds))["far"]
        self.assertEqual(peer_report.best_peer(medians, "in_place"),
                         ("openmpi", 10))

    def test_the_best_peer_is_not_one_of_a_few_lucky_rounds(self):
        rounds = [[sample("openmpi", 10)] for _ in range(5)]
        rounds[0].append(sample("gloo-ring", 2))
        medians = peer_report.kept_medians(case_of(rounds))["far"]
        self.assertEqual(peer_report.best_peer(medians, "in_place"),
                         ("openmpi", 10))
        # But where no peer has enough of them.
        medians = peer_report.kept_medians(case_of(rounds[:4]))["far"]
        self.assertEqual(peer_report.best_peer(medians, "in_place"),
                         ("gloo-ring", 2))

    def test_a_ratio_is_ringpipes_time_by_that_of_the_best_peer(self):
        rows = peer_report.rows_of(usual_case(), "far")
        self.assertEqual(len(rows), 4)
        row = next(row for row in rows if row.buffers == "private")
        # By round: both drift alike.
        self.assertEqual(row.peer, "openmpi")
        self.assertEqual(row.ratio[:3], (0.5, 0.5, 0.5))
        self.assertEqual(row.ratio.rounds, 6)
        self.assertEqual(row.to_floor.median, 2)
        # There was no floor of the other kind.
        row = next(row for row in rows if row.buffers == "allocate")
        self.assertIsNone(row.to_floor)

    def test_a_cell_of_few_rounds_is_marked(self):
        def line(rounds):
            row = peer_report.rows_of(usual_case(rounds=rounds), "far")[0]
            return peer_report.format_row(row)
        self.assertIn("4 rounds) *", line(4))
        self.assertIn("5 rounds)", line(5))
        self.assertNotIn("*", line(5))

    def test_what_failed_and_what_was_left_out_is_named(self):
        document = document_of(usual_case())
        document["left_out"]["mpich"] = "no mpirun.mpich"
        document["cases"][0]["failures"]["openmpi"] = "p: status 1:\nwhy\n"
        text = peer_report.format_report(document)
        self.assertIn("# left out: mpich: no mpirun.mpich\n", text)
        self.assertIn("# failed: openmpi, 2 ranks, 65536 bytes: why\n", text)

    def test_a_saved_document_gives_the_same_report(self):
        document = document_of(usual_case(8), usual_case(1 << 20))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.json"
            comparison.save(document, path)
            again = json.loads(path.read_text())
            self.assertEqual(os.listdir(folder), ["a.json"])
        self.assertEqual(again, document)
        for function in (peer_report.format_report, peer_report.format_peers):
            self.assertEqual(function(again), function(document))


class StandIn:
    """For Programs: notes the turns; fails where it is told to."""

    def __init__(self, failing=()):
        self.turns = []
        self.failing = failing

    def measure(self, contender, ranks, size, _):
        self.turns.append((contender, ranks, size))
        if contender in self.failing:
            raise comparison.Failure("planted")
        return {place: [1, 2, 3] for place in comparison.PLACES}


class WarmUpTest(unittest.TestCase):

    def test_each_contender_warms_up_with_one_call(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = compare_peers.Programs(pathlib.Path(folder), touch=False)
            for name in ("allreduce", "floor", "mpi_allreduce",
                         "gloo_allreduce"):
                (programs.folder / name).touch()
            for contender in ("floor private", "openmpi", "ring", "gloo-ring"):
                command, _ = programs.command(contender, 2, 64, 9)
                self.assertRegex(" ".join(map(str, command)), r" 64 1 9( |$)")
            report = dict.fromkeys(comparison.PLACES, {"slowest_us": [1]})
            with unittest.mock.patch.object(
                    compare_peers, "run_ringpipe",
                    return_value=report) as run_ringpipe:
                programs.measure("ringpipe private", 2, 64, 9)
            options = run_ringpipe.call_args[0][1]
            self.assertEqual(options[options.index("-w") + 1], 1)


class Placements:
    """For Placement: a list of them, the last for ever."""

    def __init__(self, *names):
        self.names = list(names)

    def now(self):
        return self.names.pop(0) if len(self.names) > 1 else self.names[0]


class MeasureTest(unittest.TestCase):

    def _measure(self, programs, placement, cases, rounds=2, minutes=1):
        arguments = types.SimpleNamespace(rounds=rounds, minutes=minutes,
                                          json=None)
        now = [0]

        def sleep(seconds):
            now[0] += seconds

        clock = types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
        with contextlib.redirect_stderr(io.StringIO()), \
                unittest.mock.patch.object(compare_peers, "time", clock):
            compare_peers.measure(arguments, programs, placement,
                                  document_of(*cases))

    @staticmethod
    def _case(ranks):
        return {**case_of([]), "ranks": ranks, "contenders": ["a", "b", "c"]}

    def test_cases_take_turns_and_rounds_begin_with_another(self):
        programs, cases = StandIn(), [self._case(2), self._case(4)]
        self._measure(programs, Placements("far"), cases)
        self.assertEqual([(name, ranks) for name, ranks, _ in programs.turns],
                         [("a", 2), ("b", 2), ("c", 2), ("a", 4), ("b", 4),
                          ("c", 4), ("b", 2), ("c", 2), ("a", 2), ("b", 4),
                          ("c", 4), ("a", 4)])
        self.assertEqual(cases[0]["rounds"][0][0],
                         {"contender": "a", "placements": ["far", "far"],
                          "us": {place: [1, 2, 3]
                                 for place in comparison.PLACES}})

    def test_the_placement_after_a_sample_is_the_one_before_the_next(self):
        case = self._case(2)
        self._measure(StandIn(), Placements("x", "1", "2", "3", "far"), [case],
                      minutes=1e-3)
        self.assertEqual([one["placements"] for one in case["rounds"][0]],
                         [["1", "2"], ["2", "3"], ["3", "far"]])

    def test_rounds_are_counted_in_each_placement_that_is_seen(self):
        # One look before a round, one in it, and one after each of 3 samples.
        case = self._case(2)
        self._measure(StandIn(), Placements(*["far"] * 5, "one L3"), [case])
        kept = peer_report.kept_medians(case)
        self.assertEqual(len(kept["one L3"]["a"]["in_place"]), 2)
        # "far" did not come again: until the time was over.
        self.assertEqual(len(kept["far"]["a"]["in_place"]), 1)

    def test_without_time_there_is_no_round(self):
        case = self._case(2)
        self._measure(StandIn(), Placements("far"), [case], minutes=0)
        self.assertEqual(case["rounds"], [])

    def test_what_fails_is_not_tried_again(self):
        programs, case = StandIn(failing=["b"]), self._case(2)
        self._measure(programs, Placements("far"), [case])
        self.assertEqual([turn[0] for turn in programs.turns],
                         ["a", "b", "c", "c", "a"])
        self.assertEqual(case["failures"], {"b": "planted"})


class ReportTest(unittest.TestCase):

    def _report(self, rounds):
        document = {
            "date": "2026-11-21", "machine": "a guest", "device": "rxe0",
            "sub_chunk": 131072, "variants": {},
            "cases": [{"ranks": 2, "size": 1 << 20, "iterations": 5,
                       "rounds": rounds}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.json"
            path.write_text(json.dumps(document))
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                compare_guest.report([json.loads(path.read_text())])
        return output.getvalue()

    @staticmethod
    def _round(ours, theirs):
        limits = {"send": 400, "send_both": 200, "write": 400,
                  "write_both": 200, "reduce": 0, "copy": 0}
        ours = {"in_place": ours}
        return {"gloo": {"ringpipe": ours, "peer": theirs},
                "limits": {"ringpipe": ours, "peer": limits}}

    def test_ratios_pair_neighbours(self):
        # Both drift alike: every ratio is 1/2, whatever their medians.
        text = self._report([self._round(time_us, {"in_place": 2 * time_us})
                             for time_us in (1e3, 9e3, 2e3, 5e3, 3e3, 4e3)])
        self.assertIn("| ringpipe / gloo |", text)
        self.assertIn("| 0.50 (0.50 to 0.50) |", text)

    def test_a_peers_failed_rounds_are_left_out_and_the_doubt_is_shown(self):
        rounds = [self._round(1e3, {"in_place": 4e3}) for _ in range(3)]
        rounds += [self._round(1e3, {"failure": "died"}) for _ in range(3)]
        self.assertIn("| 0.25 (0.25 to 0.25, 75 %) |", self._report(rounds))

    def test_with_free_reductions_the_model_is_the_wire(self):
        # 1 MiB in 5 ms are 200 MiB/s, which is the wire of each direction.
        text = self._report([self._round(5e3, {}) for _ in range(6)])
        self.assertIn("| 1.00 (1.00 to 1.00) | 1.00 (1.00 to 1.00) | "
                      "0.50 (0.50 to 0.50) |", text)

    def test_reducing_and_copying_a_byte_each_cost_half_their_time(self):
        limits = {"send_both": 1e9 / (1 << 20), "reduce": 1e-9, "copy": 3e-9}
        self.assertAlmostEqual(compare_guest.model_gb_per_s(limits, 0.5),
                               1 / (1 + 0.5 + 1.5))


class GuestTest(unittest.TestCase):

    def test_outside_a_guest_it_says_what_is_missing(self):
        os.environ.pop("RDMA_DEV", None)
        with self.assertRaisesRegex(SystemExit, "RDMA_DEV is not set"):
            compare_guest.Guest(pathlib.Path("."))


if __name__ == "__main__":
    unittest.main()
