"""Runs the real bench/allreduce, as users do."""

import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

from bench.allreduce_program import ENVIRONMENT, PATIENCE_S, PROGRAM, rows, run


class Results(unittest.TestCase):

    def check_right(self, done, expected_rows):
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertEqual(done.stderr, "")
        table = rows(done.stdout)
        self.assertEqual(len(table), expected_rows, done.stdout)
        for row in table:
            self.assertEqual(len(row), 13, row)
            self.assertEqual((row[8], row[12]), ("0", "0"), row)
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)
        self.assertRegex(done.stdout, r"# Avg bus bandwidth    : [0-9.e+-]+\n")
        self.check_verdict(done.stdout)
        return table

    def check_verdict(self, text):
        """It says what to do about it, or nothing."""
        for line in text.splitlines():
            if line.startswith("# Bound by"):
                self.assertRegex(
                    line,
                    r"^# Bound by             : (the processor|waiting for a "
                    r"core of|rank \d+ on|copy in|copy out|reduce|register|send|"
                    r"receive|free slots|the network)\b.*: .*; \S")
                for percent in re.findall(r"(\d+) %", line):
                    self.assertLessEqual(int(percent), 100, line)

    def test_sizes_from_nothing_up_are_right(self):
        done = run("--ranks", "3", "-b", "0", "-e", "40", "-i", "4", "-n", "3")
        self.check_right(done, 11)
        self.assertEqual(done.stdout.count("first call"), 22)

    def test_every_type_and_operation_is_right(self):
        done = run("--ranks", "3", "-b", "100000", "-e", "100000", "-n", "2",
                   "-d", "all", "-o", "all")
        table = self.check_right(done, 50)
        self.assertEqual(len({(row[2], row[3]) for row in table}), 50)

    def test_asynchronous_calls_and_registered_buffers_are_right(self):
        for options in (["-z", "0"], ["-R", "1"], ["-R", "2"], ["-z", "0", "-R", "2"]):
            done = run("--ranks", "3", "-b", "1K", "-e", "1M", "-f", "32", "-n",
                       "2", "-c", "2", *options)
            self.check_right(done, 3)

    def test_buffers_that_are_touched_and_huge_pages_are_right(self):
        # Of 1 byte and of 7 no 64-bit word is whole.
        for options in (["-d", "int8", "-b", "1", "-e", "13", "-i", "6"],
                        ["-b", "1K", "-e", "4M", "-f", "64", "--huge_pages"]):
            done = run("--ranks", "3", "-n", "2", "--touch", *options)
            self.check_right(done, 3)
            self.assertRegex(done.stdout.splitlines()[1], "touch seed: 1$")

    def test_results_are_right_wherever_buffers_begin_and_whichever_is_next(self):
        for options in (["--align", "0"], ["--align", "4"],
                        ["--align", "4080", "--rotate", "3", "--touch"],
                        ["-R", "1", "--rotate", "3"],
                        ["-R", "2", "--rotate", "3", "-z", "0"]):
            done = run("--ranks", "3", "-b", "1K", "-e", "1M", "-f", "32", "-n",
                       "5", "-c", "4", *options)
            self.check_right(done, 3)

    def test_tensors_are_one_message(self):
        for options in ([], ["-z", "0", "-d", "bfloat16"], ["-R", "1"],
                        ["--collective", "reduce", "-r", "1", "-R", "2"]):
            done = run("--ranks", "2", "--tensors", "resnet50", "-n", "2", *options)
            size = 25557032 * (2 if "bfloat16" in options else 4)
            self.assertEqual([row[0] for row in self.check_right(done, 1)], [str(size)])

    def test_the_algorithm_can_be_chosen(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "out.json")
            done = run("--ranks", "3", "-b", "0", "-e", "1M", "-i", "262144",
                       "-n", "2", "--algorithm", "rabenseifner", "-J", path,
                       environment={"RINGPIPE_ALGORITHM": "allreduce:ring"})
            self.check_right(done, 5)
            with open(path) as file:
                report = json.load(file)
        self.assertEqual(report["chunking"]["algorithm"], "rabenseifner")

    def test_every_collective_is_measured_and_right(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "out.json")
            done = run("--ranks", "3", "-b", "1K", "-e", "1M", "-f", "1024",
                       "-n", "2", "-d", "all", "--collective", "all", "-r", "2",
                       "-J", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("# all-to-all\n", done.stdout)
            with open(path) as file:
                report = json.load(file)
        self.assertEqual(report["verdict"], "ok")
        sizes = report["sizes"]
        self.assertEqual(len({size["collective"] for size in sizes}), 8)
        self.assertEqual(len(sizes), 8 * 10 * 2)
        for size in sizes:
            self.assertEqual(size["in_place"] is None,
                             size["collective"] == "all-to-all")

    def test_a_collective_has_its_own_algorithm(self):
        done = run("--ranks", "3", "-b", "64", "-e", "64", "-n", "2",
                   "--collective", "reduce", "--algorithm", "rabenseifner")
        self.check_right(done, 1)
        done = run("--ranks", "3", "--collective", "reduce", "--algorithm",
                   "ring")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("rabenseifner or binomial_tree", done.stderr)

    def test_a_wrong_collective_lists_the_right_ones(self):
        done = run("--ranks", "2", "--collective", "barrier")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("gather, scatter, all-to-all, or all", done.stderr)
        done = run("--ranks", "2", "--collective", "all", "--algorithm", "ring")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("--collective", done.stderr)

    def test_a_root_that_is_no_rank_is_an_error(self):
        done = run("--ranks", "2", "-e", "8", "--collective", "reduce", "-r",
                   "2")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("root 2 is no rank", done.stderr)

    def test_all_algorithms_of_all_collectives_have_a_table_each(self):
        done = run("--ranks", "3", "-b", "1K", "-e", "1K", "-n", "2",
                   "--collective", "all", "--algorithm", "all")
        self.assertEqual(done.returncode, 0, done.stderr)
        heads = re.findall(r"# ringpipe \S+ (\S+), ranks", done.stdout)
        names = re.findall(r" algorithm: (\S+) ", done.stdout)
        self.assertEqual(len(heads), len(names))
        pairs = list(zip(heads, names))
        self.assertEqual(len(pairs), len(set(pairs)))
        self.assertIn(("allreduce", "ring"), pairs)
        self.assertIn(("all-to-all", "bruck"), pairs)
        done = run("--ranks", "2", "-e", "8", "--algorithm", "all", "-J", "-")
        self.assertEqual(done.returncode, 1)
        self.assertIn("leave -J and --trace out", done.stderr)

    def test_a_wrong_algorithm_lists_the_right_ones(self):
        done = run("--ranks", "2", "-e", "8", "--algorithm", "fastest")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("fastest", done.stderr)
        self.assertIn("rabenseifner", done.stderr)

    def test_more_ranks_than_cores_are_bound_by_something_or_nothing(self):
        # Calls that are shorter than the barriers between them.
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "out.json")
            done = run("--ranks", "8", "-b", "8", "-e", "1K", "-f", "128", "-n",
                       "20", "-J", path)
            self.check_right(done, 2)
            with open(path) as file:
                stages = json.load(file)["stages"]
        self.assertIn("receive", stages)
        for shares in stages.values():
            for share in shares.values():
                self.assertGreaterEqual(share, 0)
                self.assertLessEqual(share, 1)

    def test_one_rank_is_enough(self):
        self.check_right(run("--ranks", "1", "-e", "1K", "-n", "2"), 1)

    def test_json_holds_every_sample(self):
        with tempfile.TemporaryDirectory() as directory:
            done = run("--ranks", "3", "-b", "1K", "-e", "2K", "-f", "2", "-n",
                       "7", "-J", "out.json",
                       environment={"BUILD_WORKING_DIRECTORY": directory})
            self.check_right(done, 2)
            self.assertEqual(os.listdir(directory), ["out.json"])
            with open(os.path.join(directory, "out.json")) as file:
                report = json.load(file)
        self.assertEqual(len(report["ranks"]), 3)
        self.assertEqual(report["wrong"], 0)
        for size in report["sizes"]:
            for place in ("out_of_place", "in_place"):
                samples = size[place]["samples_us"]
                self.assertEqual([len(s) for s in samples], [7, 7, 7])

    def test_without_checks_nothing_is_called_right(self):
        done = run("--ranks", "2", "-e", "1K", "-n", "2", "-c", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row[8] for row in rows(done.stdout)], ["N/A"])


def documented_fields():
    """The fields in the list of bench/README.md."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "README.md")
    with open(path) as file:
        text = file.read()
    section = text.split("\n## The report\n", 1)[1].split("\n## ", 1)[0]
    # "- `name`, `name`: what they are"
    heads = re.findall(r"^- ((?:`[^`]+`(?:, )?)+): ", section, re.M)
    return [name for head in heads for name in re.findall(r"`([^`]+)`", head)]


def fields_of(value, name=""):
    """The names of all fields, in the words of the list."""
    if isinstance(value, dict) and value:
        # What has names of its own.
        placeholder = {"environment": "NAME", "stages": "STAGE"}.get(name)
        for key, inner in value.items():
            if name == "sizes[]" and key in ("out_of_place", "in_place"):
                key = "PLACE"
            key = placeholder or key
            yield from fields_of(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from fields_of(inner, name + "[]")
    else:
        yield name


class Report(unittest.TestCase):

    def report(self, *arguments, environment=None):
        done = run(*arguments, "-n", "2", "-J", "-", environment=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done

    def test_a_dash_is_standard_output_and_the_table_goes_to_stderr(self):
        report, done = self.report(
            "--ranks", "2", "-e", "1K",
            environment={"BUILD_WORKING_DIRECTORY": "/no/such/directory"})
        self.assertEqual(report["verdict"], "ok")
        self.assertEqual(len(rows(done.stderr)), 1)
        self.assertIn("# Out of bounds values : 0 OK", done.stderr)

    def test_it_says_when_where_and_how(self):
        report, _ = self.report(
            "--ranks", "3", "-e", "1K",
            environment={"RINGPIPE_DEPTH": "3", "NCCL_DEBUG": "WARN",
                         "RINGPIPE_SECRET": "not-for-others",
                         "RINGPIPE_SUBCHUNK_BYTES": "4096"})
        self.assertEqual(report["schema"],
                         {"name": "ringpipe-allreduce", "version": 1})
        self.assertRegex(report["date"],
                         r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(report["launcher"], "--ranks")
        self.assertIn("host memory", report["device"])
        self.assertEqual(report["processor"]["usable_cores"],
                         len(os.sched_getaffinity(0)))
        if report["placement"] is not None:  # or the cores were too busy
            self.assertEqual(len(os.sched_getaffinity(0)), 2)
            self.assertRegex(report["placement"], r"^(siblings|one L3|far) \d+ ns$")
        self.assertNotIn("not-for-others", json.dumps(report))
        environment = report["environment"]
        self.assertEqual(environment["RINGPIPE_SECRET"], "(set)")
        self.assertEqual(environment["NCCL_DEBUG"], "WARN")
        chunking = report["chunking"]
        self.assertEqual((chunking["subchunk_bytes"], chunking["depth"]),
                         (4096, 3))
        self.assertGreater(chunking["slots"], 0)
        self.assertTrue(chunking["algorithm"])

    def test_without_checks_the_verdict_is_not_ok(self):
        report, _ = self.report("--ranks", "2", "-e", "1K", "-c", "0")
        self.assertEqual(report["verdict"], "unchecked")

    def test_every_field_is_documented_and_every_documented_field_is_there(self):
        report, _ = self.report("--ranks", "2", "-e", "1K")
        found = set(fields_of(report))
        found |= set(fields_of(interrupted_report(self)))
        # Null where there is none, and an empty object where the run ended
        # early; whole, a series has the fields of any other.
        found = {name for name in found
                 if name not in ("unfinished", "stages")
                 and not name.startswith("unfinished.out_of_place.")}
        found.add("unfinished.out_of_place")
        documented = documented_fields()
        self.assertEqual(len(documented), len(set(documented)))
        self.assertEqual(found, set(documented))


def interrupted_report(test):
    """That of a run which SIGTERM ended after its first size."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "out.json")
        with subprocess.Popen(
            [PROGRAM, "--ranks", "2", "-b", "1K", "-e", "64M", "-f", "2", "-n",
             "500", "-J", path],
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True) as launcher:
            for line in launcher.stdout:
                if rows(line):
                    break
            launcher.send_signal(signal.SIGTERM)
            _, errors = launcher.communicate(timeout=PATIENCE_S)
        test.assertEqual(errors, "")
        test.assertEqual(launcher.returncode, -signal.SIGTERM)
        test.assertEqual(os.listdir(directory), ["out.json"])
        with open(path) as file:
            return json.load(file)


class BadInput(unittest.TestCase):

    def check_refused(self, says, *arguments, **options):
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, 1, arguments)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, says)
        # Said once.
        self.assertEqual(done.stderr.count("allreduce: "), 1, done.stderr)

    def test_options(self):
        self.check_refused("float32", "--ranks", "2", "-d", "float99")
        self.check_refused("average", "--ranks", "2", "-o", "xor")
        self.check_refused("256M", "--ranks", "2", "-b", "12Q")
        self.check_refused("negative", "--ranks", "2", "-b", "-5")
        self.check_refused("must not be above", "--ranks", "2", "-b", "2M",
                           "-e", "1M")
        self.check_refused("stepfactor", "--ranks", "2", "-f", "1")
        self.check_refused("1024", "--ranks", "0")
        self.check_refused("1024", "--ranks", "1025")
        self.check_refused("iters", "--ranks", "2", "-n", "0")

    def test_unknown_options_are_named_as_typed(self):
        self.check_refused(r"no option --rnaks=3; did you mean --ranks\?",
                           "--rnaks=3")
        self.check_refused(r"no option -Z;", "--ranks", "2", "-Z")
        self.check_refused(r"no option --foo;", "--foo", "bar", "stray")

    def test_more_memory_than_there_is(self):
        self.check_refused("need .* bytes", "--ranks", "8", "-b", "1T")

    def test_more_ranks_than_fit(self):
        # Before any is started.
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        done = run("--ranks", "30", "-b", "8", "-e", "8", preexec_fn=few)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            done.stderr,
            "allreduce: resource exhausted: 30 ranks on this host need 112 "
            "open files each, and the limit is 100; raise 'ulimit -n', or use "
            "fewer ranks\n")

    def test_json_path_that_cannot_be_written(self):
        self.check_refused("/no/such/directory", "--ranks", "2", "-e", "1K",
                           "-J", "/no/such/directory/x.json")

    def test_neither_launcher_nor_ranks(self):
        done = run("-e", "1K")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--ranks 8", done.stderr)

    def test_ranks_inside_of_a_job(self):
        self.check_refused("RINGPIPE_RANK", "--ranks", "2",
                           environment={"RINGPIPE_RANK": "0"})

    def test_an_error_of_all_ranks_is_said_once(self):
        self.check_refused("nosuchdevice0", "--ranks", "3", "-e", "1K",
                           environment={"RINGPIPE_DEVICE": "nosuchdevice0",
                                        "RINGPIPE_HOST_MEMORY": "never"})

    def test_bad_environment(self):
        self.check_refused("RINGPIPE_DEPTH", "--ranks", "2", "-e", "1K",
                           environment={"RINGPIPE_DEPTH": "0"})


class StandardOutput(unittest.TestCase):

    def test_version(self):
        done = run("--version")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^ringpipe \d+\.\d+\.\d+\n$")
        table = run("--ranks", "1", "-e", "4", "-n", "1").stdout
        self.assertTrue(table.startswith(f"# {done.stdout.strip()} "), table)

    def shell(self, script):
        with subprocess.Popen(
            ["bash", "-c", script, PROGRAM], env=ENVIRONMENT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True) as bash:
            try:
                stdout, stderr = bash.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(bash.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(script, bash.returncode, stdout,
                                           stderr)

    def test_a_full_disk_is_an_error(self):
        for arguments in ("--ranks 2 -e 1K -n 2", "--help", "--version",
                          "--ranks 2 -e 1K -n 2 -J -"):
            done = self.shell(f'"$0" {arguments} > /dev/full')
            self.assertEqual(done.returncode, 1, done.stderr)
            lines = [line for line in done.stderr.splitlines()
                     if line.startswith("allreduce: ")]
            self.assertEqual(len(lines), 1, done.stderr)
            self.assertIn("standard output: No space left on device", lines[0])

    def test_a_closed_descriptor_is_an_error(self):
        for arguments in ("--ranks 2 -e 1K -n 2", "--version"):
            done = self.shell(f'"$0" {arguments} >&-')
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr,
                             r"^allreduce: .*standard output: Bad file .*\n$")

    def test_a_reader_of_the_report_that_leaves_ends_it_without_a_word(self):
        with tempfile.TemporaryDirectory() as directory:
            # More than a pipe holds, so that head is gone before its end.
            done = self.shell('"$0" --ranks 2 -e 8 -n 2000 -J - '
                              f"2> {directory}/table | head -n 1; "
                              'echo "${PIPESTATUS[@]}"')
            with open(f"{directory}/table") as file:
                self.assertNotIn("allreduce: ", file.read())
        self.assertEqual(done.stdout, f"{{\n{128 + signal.SIGPIPE} 0\n")
        self.assertEqual(done.stderr, "")

    def test_a_reader_that_leaves_ends_the_run_without_a_word(self):
        with tempfile.TemporaryDirectory() as directory:
            done = self.shell(
                f'"$0" --ranks 3 -b 1K -e 64M -f 2 -n 200 '
                f"-J {directory}/a.json | head -n 1; "
                'echo "${PIPESTATUS[@]}"')
            with open(f"{directory}/a.json") as file:
                report = json.load(file)
        # The ends of the pipes were read: no rank is left.
        self.assertEqual(done.stderr, "")
        lines = done.stdout.splitlines()
        self.assertTrue(lines[0].startswith("# ringpipe "), lines)
        self.assertEqual(lines[1:], [f"{128 + signal.SIGPIPE} 0"])
        self.assertEqual(report["verdict"], "interrupted")


class Terminal:
    """A command whose standard streams are a terminal that it controls."""

    def __init__(self, command, columns=0, **environment):
        self.shown = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command,
                       {**ENVIRONMENT, "TERM": "xterm", **environment})
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ,
                    struct.pack("HHHH", 24, columns, 0, 0))

    def read(self, until=None):
        """Reads until what was shown matches; to the end without `until`."""
        deadline = time.monotonic() + PATIENCE_S
        while until is None or not re.search(until, self.shown):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.terminal], [], [], left)[0]:
                raise AssertionError(f"nothing more after {self.shown[-400:]}")
            try:
                part = os.read(self.terminal, 4096)
            except OSError:  # all who had the terminal open have ended
                part = b""
            if not part:
                break
            self.shown += part
        return self.shown

    def type(self, text):
        os.write(self.terminal, text)

    def wait(self):
        """Returns the exit status; -S where signal S ended the command."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.terminal)  # a hangup for who is still there


ENDLESS = [PROGRAM, "--ranks", "2", "-e", "64K", "-n", "10000000"]


class OnATerminal(unittest.TestCase):

    def test_ctrl_c_ends_a_loop_in_the_shell_and_saves_what_was_measured(self):
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/out.json"
            # bash ends its loop only where the program died of the signal.
            with Terminal(["bash", "-c", 'for i in 1 2 3; do "$@"; '
                           "echo the end of $i; done", "bash", *ENDLESS, "-J",
                           path], columns=80) as bash:
                bash.read(until=rb" %  .* left  64K float32 sum out of place")
                bash.type(b"\x03")
                shown = bash.read()
                self.assertEqual(bash.wait(), -signal.SIGINT)
            with open(path) as file:
                report = json.load(file)
        self.assertNotIn(b"the end of", shown)
        self.assertNotIn(b"allreduce: ", shown)
        # The bar is off its line; what the terminal echoes may stand there.
        self.assertRegex(shown, rb"\r\x1b\[K(\^C)?$")
        self.assertEqual(report["verdict"], "interrupted")
        self.assertEqual(report["interrupted_by"], "SIGINT")
        self.assertEqual(report["sizes"], [])
        self.assertEqual(report["unfinished"]["bytes"], 64 << 10)
        self.assertGreater(len(report["unfinished"]["rank_0_samples_us"]), 1)

    def test_ctrl_c_again_leaves_no_bar_of_a_rank_that_was_killed(self):
        with Terminal(ENDLESS, columns=80) as program:
            shown = program.read(until=rb"Rank  0 Pid +(\d+) (?s:.)* left  64K")
            rank_0 = int(re.search(rb"Rank  0 Pid +(\d+)", shown).group(1))
            os.kill(rank_0, signal.SIGSTOP)  # it cannot clear its bar
            deadline = time.monotonic() + PATIENCE_S
            while os.waitid(os.P_PID, program.pid,
                            os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                self.assertLess(time.monotonic(), deadline)
                program.type(b"\x03")
                time.sleep(0.05)
            self.assertRegex(program.read(), rb"\r\x1b\[K(\^C)*$")
            self.assertEqual(program.wait(), -signal.SIGINT)

    def test_sigterm_saves_what_was_measured(self):
        report = interrupted_report(self)
        self.assertEqual(report["verdict"], "interrupted")
        self.assertEqual(report["interrupted_by"], "SIGTERM")
        self.assertGreaterEqual(len(report["sizes"]), 1)
        self.assertEqual(report["sizes"][0]["bytes"], 1024)
        self.assertEqual(len(report["sizes"][0]["in_place"]["slowest_us"]),
                         500)

    def test_with_another_launcher_the_others_wait_for_rank_0s_report(self):
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/out.json"
            ranks = []
            for rank in range(2):
                variables = {"RINGPIPE_RANK": str(rank), "RINGPIPE_SIZE": "2",
                             "RINGPIPE_ROOT": f"unix:@ringpipe-{directory}"}
                ranks.append(subprocess.Popen(
                    [PROGRAM, "-b", "1K", "-e", "64M", "-f", "2", "-n", "500",
                     "-J", path], env={**ENVIRONMENT, **variables},
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            for line in ranks[0].stdout:
                if rows(line):
                    break
            # All get it before one of them says to the others that it did.
            start = time.monotonic()
            for number in signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT:
                for rank in ranks:
                    rank.send_signal(number)
            errors = ranks[1].communicate(timeout=PATIENCE_S)[1]
            # How long rank 0 takes is the machine's affair.
            self.assertGreater(time.monotonic() - start, 0.7)
            self.assertEqual(errors, "")
            self.assertEqual(ranks[0].communicate(timeout=PATIENCE_S)[1], "")
            self.assertEqual([rank.returncode for rank in ranks],
                             [-signal.SIGTERM, -signal.SIGTERM])
            with open(path) as file:
                self.assertEqual(json.load(file)["verdict"], "interrupted")

    def test_a_reader_who_does_not_read_does_not_keep_ctrl_c_from_saving(self):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/out.json"
            with subprocess.Popen(
                [PROGRAM, "--ranks", "2", "-b", "0", "-e", "4M", "-i", "4",
                 "-n", "1", "-J", path], env=ENVIRONMENT, stdout=writer,
                stderr=subprocess.PIPE, start_new_session=True) as launcher:
                deadline = time.monotonic() + PATIENCE_S
                while select.select([], [writer], [], 0)[1]:  # it has room
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.01)
                os.close(writer)
                os.killpg(launcher.pid, signal.SIGINT)
                _, errors = launcher.communicate(timeout=PATIENCE_S)
            os.close(reader)
            self.assertEqual(launcher.returncode, -signal.SIGINT)
            self.assertEqual(errors, b"")
            with open(path) as file:
                self.assertEqual(json.load(file)["verdict"], "interrupted")

    def longest_line(self, columns, **environment):
        with Terminal(ENDLESS, columns=columns, **environment) as program:
            shown = program.read(
                until=rb" left.*\r\x1b\[K.* left.*\r\x1b\[K")
            program.type(b"\x03")
            program.read()
            self.assertEqual(program.wait(), -signal.SIGINT)
        lines = shown.split(b"\r\x1b[K")
        return max(len(line) for line in lines[1:] if b" left" in line)

    def test_the_bar_fits_the_terminal(self):
        self.assertEqual(self.longest_line(24), 23)
        self.assertEqual(self.longest_line(0, COLUMNS="30"), 29)
        self.assertGreater(self.longest_line(200), 60)

    def test_a_dumb_terminal_gets_no_bar(self):
        terminal, stderr = pty.openpty()
        with subprocess.Popen(
            [PROGRAM, "--ranks", "2", "-b", "1K", "-e", "64M", "-f", "2", "-n",
             "2000"], env={**ENVIRONMENT, "TERM": "dumb"},
            stdout=subprocess.PIPE, stderr=stderr) as launcher:
            os.close(stderr)
            start = time.monotonic()
            for line in launcher.stdout:
                # Rows are still coming when a bar would be there.
                if rows(line.decode()) and time.monotonic() - start > 2.5:
                    break
            else:
                self.fail("the run was over too soon")
            self.assertEqual(select.select([terminal], [], [], 0)[0], [])
            launcher.terminate()
            launcher.stdout.read()
        os.close(terminal)


class Failure(unittest.TestCase):

    def test_a_killed_rank_ends_the_run(self):
        with subprocess.Popen(
            [PROGRAM, "--ranks", "3", "-e", "1M", "-n", "10000000"],
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True) as launcher:
            # The list of ranks is printed when all have joined.
            pid = None
            for line in launcher.stdout:
                match = re.match(r"#  Rank  2 Pid +(\d+)", line)
                if match:
                    pid = int(match.group(1))
                if "(elements)" in line:
                    break
            self.assertIsNotNone(pid)
            os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            _, errors = launcher.communicate(timeout=PATIENCE_S)
            # Both pipes at their end: no rank is left. Within 2 s, but for what
            # a busy machine adds.
            self.assertLess(time.monotonic() - killed, 10)
        self.assertEqual(launcher.returncode, 128 + signal.SIGKILL)
        self.assertRegex(errors, r"rank 2 \(pid %d\) was killed by signal 9" %
                         pid)
        # The others found out by themselves, and one of them says so.
        self.assertRegex(errors, r"peer lost: .*rank 2")

    def start_one_by_one(self, rank_name, size_name, *arguments):
        """Ranks that --ranks did not start, told who they are by variables."""
        root = f"unix:@allreduce-test-{os.getpid()}-{rank_name}-{time.time()}"
        ranks = []
        for rank in range(5):
            process = subprocess.Popen(
                [PROGRAM, *arguments],
                env={**ENVIRONMENT, "RINGPIPE_ROOT": root,
                     rank_name: str(rank), size_name: "5"},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            ranks.append(process)
        return ranks

    def test_a_rank_in_a_shell_of_its_own_says_what_ended_it(self):
        ranks = self.start_one_by_one("RINGPIPE_RANK", "RINGPIPE_SIZE", "-e",
                                      "1M", "-n", "10000000")
        for line in ranks[0].stdout:
            if "(elements)" in line:
                break
        ranks[1].kill()
        ranks[1].communicate()
        for rank in (0, 2, 3, 4):
            _, errors = ranks[rank].communicate(timeout=PATIENCE_S)
            self.assertEqual(ranks[rank].returncode, 1)
            self.assertRegex(errors, "^allreduce[^ ]*: peer lost: .*rank 1")

    def test_what_all_ranks_of_a_launcher_know_is_said_once(self):
        self.check_report_that_cannot_be_written("RINGPIPE_RANK",
                                                 "RINGPIPE_SIZE", 5)
        self.check_report_that_cannot_be_written("OMPI_COMM_WORLD_RANK",
                                                 "OMPI_COMM_WORLD_SIZE", 1)

    def check_report_that_cannot_be_written(self, rank_name, size_name, times):
        ranks = self.start_one_by_one(rank_name, size_name, "-e", "1K", "-J",
                                      "/no/such/directory/x.json")
        said = 0
        for rank in ranks:
            _, errors = rank.communicate(timeout=PATIENCE_S)
            self.assertEqual(rank.returncode, 1)
            said += errors.count("/no/such/directory")
        self.assertEqual(said, times)


if __name__ == "__main__":
    unittest.main()
