"""Boots the guest with one kind of device and runs checks there.

    guest_test.py RDMA_GUEST CHECK_COLLECTIVES INTERCONNECT KIND CHECK...

CHECK is a class of checks.py, or Class.test. Each of its tests is a test case of
this one.

Where the guest cannot be had (no QEMU, no network to download its kernel) the test
is skipped, visibly; in CI (CI=true) that is a failure. A guest that hangs is booted
once more, which is reported as a case that was skipped. What was seen, when its CPUs
were asked: in rxe of Linux 6.1 a rank is in ibv_post_send, where the driver's
rxe_requester goes round for ever after the link went down with 8 ranks.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from tests.rdma_guest.report import Report

# What the script's exit statuses say about the guest; others are the command's.
OUT_OF_TIME = 124
DID_NOT_GET_THERE = 125
UNPREPARED = 123

# They take one to three minutes on two idle cores. The checks end themselves
# before the guest does, and twice that is less than the time that Bazel gives to
# this test.
CHECKS_LIMIT_S = 600
GUEST_LIMIT_S = 700


def run_guest(script, kind, report, command):
    """Returns the exit status and what was printed on stderr."""
    root = pathlib.Path(__file__).absolute().parents[2]
    logs = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", report.parent)
    guest = subprocess.Popen(
        [script, "--device", kind, "--timeout", str(GUEST_LIMIT_S),
         # siw counts root's pages too.
         "--memlock", "unlimited",
         "--rw", str(report.parent), "--log", str(logs),
         "--env", f"PYTHONPATH={root}", "--env", "PYTHONDONTWRITEBYTECODE=1",
         "--", *command],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines = []
    for line in guest.stderr:
        lines.append(line)
        sys.stderr.write(line)
        sys.stderr.flush()
    return guest.wait(), "".join(lines)


def boot(arguments, report):
    """Adds what happened to `report`; returns whether it may count as passed."""
    script, program, interconnect, kind, *checks = arguments
    for attempt in ("first", "second"):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            cases = pathlib.Path(folder, "cases.xml")
            status, text = run_guest(
                script, kind, cases,
                ["python3", "-m", "tests.rdma_guest.checks", str(cases),
                 os.path.abspath(program), os.path.abspath(interconnect),
                 str(CHECKS_LIMIT_S), *checks])
            if status == UNPREPARED:
                in_ci = os.environ.get("CI", "") not in ("", "false", "0")
                print(f"{'FAILED' if in_ci else 'SKIPPED'}: no guest: {text}")
                report.add(kind, "guest", tag="failure" if in_ci else "skipped",
                           message=f"no guest: {text}")
                return not in_ci
            hung = status in (OUT_OF_TIME, DID_NOT_GET_THERE)
            if hung and attempt == "first":
                print(f"SKIPPED: the first guest hung or died ({status}); a second follows")
                report.add(kind, "first_boot", tag="skipped",
                           message=f"the guest hung or died ({status}): {text}")
                continue
            if cases.exists():
                report.extend(cases)
            if status != 0 and not report.failed():
                report.add(kind, "guest", tag="failure",
                           message=f"exit status {status}: {text}")
            return status == 0


def main():
    report = Report(f"rdma_guest {sys.argv[4]}")
    passed = boot(sys.argv[1:], report)
    if "XML_OUTPUT_FILE" in os.environ:
        report.write(os.environ["XML_OUTPUT_FILE"])
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
