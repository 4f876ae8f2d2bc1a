"""Tests of test_summary: what it counts in the events of Bazel."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

from tools import test_summary

_SUITE = """<testsuites><testsuite name="S">
<testcase name="Passes" classname="S" status="run"/>
<testcase name="Fails" classname="S" status="run"><failure message="x.cc:1&#x0A;broken"/></testcase>
<testcase name="Skips" classname="S" status="run"><skipped message="x.cc:2&#x0A;no GPU"/></testcase>
<testcase name="DISABLED_Off" classname="S" status="notrun"/>
</testsuite></testsuites>"""


def configured(label, **fields):
    return {"id": {"targetConfigured": {"label": label}}, "configured": fields}


def completed(label, **fields):
    return {"id": {"targetCompleted": {"label": label}}, **fields}


def finished(name):
    return {"id": {"buildFinished": {}}, "finished": {"exitCode": {"name": name}}}


class TestSummaryTest(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def result(self, label, status, xml=None, attempt=1, log=None):
        outputs = []
        for name, text in (("test.xml", xml), ("test.log", log)):
            if text is not None:
                path = self.directory / f"{label.rpartition(':')[2]}.{attempt}.{name}"
                path.write_text(text, encoding="utf-8")
                outputs.append({"name": name, "uri": path.as_uri()})
        return {
            "id": {"testResult": {"label": label, "run": 1, "shard": 1, "attempt": attempt}},
            "testResult": {"status": status, "testActionOutput": outputs},
        }

    def summary(self, *events, arguments=(), suffix=""):
        """Returns the lines that are printed for the events, and the exit status."""
        path = self.directory / "run.json"
        path.write_text("".join(json.dumps(e) + "\n" for e in events) + suffix, encoding="utf-8")
        out = io.StringIO()
        old = sys.argv
        sys.argv = ["test_summary.py", *arguments, str(path)]
        try:
            with contextlib.redirect_stdout(out), self.assertRaises(SystemExit) as end:
                test_summary.main()
        finally:
            sys.argv = old
        return out.getvalue().splitlines(), end.exception.code

    def test_counts_each_case_of_a_googletest(self):
        lines, status = self.summary(
            self.result("//a:b", "FAILED", _SUITE), finished("TESTS_FAILED"))
        self.assertEqual(lines, [
            "SKIPPED //a:b S.Skips (run): x.cc:2 no GPU",
            "SKIPPED //a:b S.DISABLED_Off (run): disabled",
            "FAILED //a:b S.Fails (run): x.cc:1 broken",
            "1 passed, 1 failed, 2 skipped",
        ])
        self.assertEqual(status, 1)

    def test_counts_a_test_without_cases_as_one(self):
        self.assertEqual(self.summary(self.result("//a:b", "PASSED"), finished("SUCCESS")),
                         (["1 passed, 0 failed"], 0))

    def test_a_crash_fails_although_all_cases_listed_passed(self):
        xml = '<testsuite><testcase name="P" classname="S"/></testsuite>'
        lines, status = self.summary(
            self.result("//a:b", "TIMEOUT", xml), finished("TESTS_FAILED"))
        self.assertEqual(lines, ["FAILED //a:b (run): timeout", "1 passed, 1 failed"])
        self.assertEqual(status, 1)

    def test_where_no_case_says_why_the_end_of_the_log_does(self):
        own = '<testsuite><testcase name="a/b"><error message="exit 1"/></testcase></testsuite>'
        log = "x" * 1000 + "\n\nSUMMARY: 16 bytes leaked\n"
        for xml, why in ((None, "failed"), (own, "exit 1")):
            lines, _ = self.summary(
                self.result("//a:b", "FAILED", xml, log=log), finished("TESTS_FAILED"))
            self.assertRegex(
                lines[0], rf"^FAILED //a:b \(run\): {why}: \.\.\. x+ SUMMARY: 16 bytes leaked$")
            self.assertLess(len(lines[0]), 400)

    def test_the_last_attempt_counts(self):
        lines, _ = self.summary(
            self.result("//a:b", "FAILED"), self.result("//a:b", "PASSED", attempt=2),
            finished("SUCCESS"))
        self.assertEqual(lines, ["1 passed, 0 failed"])

    def test_a_target_that_does_not_build_fails(self):
        lines, _ = self.summary(
            completed("//a:b", completed={}), completed("//a:c", completed={"success": True}),
            finished("BUILD_FAILURE"))
        self.assertEqual(lines, ["FAILED //a:b (run): does not build", "0 passed, 1 failed"])

    def test_an_incompatible_test_is_skipped_and_a_library_is_nothing(self):
        aborted = {"aborted": {"reason": "SKIPPED"}}
        lines, _ = self.summary(
            configured("//a:t", testSize="SMALL"), configured("//a:l"),
            completed("//a:t", **aborted), completed("//a:l", **aborted), finished("SUCCESS"))
        self.assertEqual(lines[-1], "0 passed, 0 failed, 1 skipped")

    def test_a_run_that_broke_off_fails(self):
        lines, status = self.summary(self.result("//a:b", "PASSED"), suffix='{"id"')
        self.assertEqual(lines, ["FAILED bazel (run): did not end", "1 passed, 1 failed"])
        self.assertEqual(status, 1)

    def test_a_failure_of_bazel_itself_fails(self):
        lines, _ = self.summary(finished("PARSING_FAILURE"))
        self.assertEqual(lines[-1], "0 passed, 1 failed")

    def test_what_is_no_test_can_be_added(self):
        lines, status = self.summary(
            self.result("//a:b", "PASSED"), finished("SUCCESS"), arguments=["--failed=lint"])
        self.assertEqual(lines, ["FAILED lint", "1 passed, 1 failed"])
        self.assertEqual(status, 1)

    def interrupted(self):
        """The events of a run in which one test has failed, and two did not end."""
        aborted = {"aborted": {"reason": "USER_INTERRUPTED"}}
        not_run = self.result("//a:d", "")
        del not_run["testResult"]
        return [*(configured(f"//a:{name}", testSize="SMALL") for name in "bcd"),
                configured("//a:lib"), self.result("//a:b", "PASSED"),
                completed("//a:c", **aborted), completed("//a:lib", **aborted),
                completed("//a:d", completed={"success": True}),
                {**not_run, **aborted}, finished("INTERRUPTED")]

    def test_of_a_run_that_was_cut_what_had_not_ended_is_skipped(self):
        why = "not ended when the time was over"
        lines, status = self.summary(*self.interrupted(), arguments=["--cut=run"])
        self.assertEqual(lines, [f"SKIPPED //a:d (run): {why}", f"SKIPPED //a:c (run): {why}",
                                 "1 passed, 0 failed, 2 skipped"])
        self.assertEqual(status, 0)

    def test_what_failed_in_a_run_that_was_cut_has_failed(self):
        lines, status = self.summary(*self.interrupted(), self.result("//a:e", "FAILED"),
                                     arguments=["--cut=run"])
        self.assertEqual(lines[-1], "1 passed, 1 failed, 2 skipped")
        self.assertEqual(status, 1)

    def test_an_interrupted_run_that_was_not_cut_fails(self):
        lines, status = self.summary(*self.interrupted(), arguments=["--cut=other"])
        self.assertIn("FAILED //a:c (run): does not build", lines)
        self.assertEqual(status, 1)

    def test_what_was_not_begun_can_be_added(self):
        lines, status = self.summary(
            self.result("//a:b", "PASSED"), finished("SUCCESS"), arguments=["--skipped=tidy"])
        self.assertEqual(lines, ["SKIPPED tidy", "1 passed, 0 failed, 1 skipped"])
        self.assertEqual(status, 0)

    def test_nothing_passed_is_no_success(self):
        self.assertEqual(self.summary(finished("NO_TESTS_FOUND")), (["0 passed, 0 failed"], 1))


if __name__ == "__main__":
    unittest.main()
