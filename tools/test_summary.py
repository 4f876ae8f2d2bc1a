#!/usr/bin/python3
"""Says how many test cases of one or more runs of "bazel test" passed.

    bazel test --build_event_json_file=asan.json --config=asan //...
    tools/test_summary.py [--failed=WHAT]... [--skipped=WHAT]... [--cut=RUN]... asan.json...

Prints what failed or was skipped, and then, as the last line,
"N passed, M failed" or "N passed, M failed, K skipped".  Exits 1 if anything
failed or nothing passed.

It counts the test cases of tests that list theirs, as GoogleTest's do, and any
other test as one.  A target that does not build is one failure, and so is a run
of Bazel that failed for a reason of its own or did not end.  Of a run that --cut
names, because it was interrupted when its time was over, the tests that had not
ended are skipped.  The name of a file, less its suffix, is the name of the run.
"""

import argparse
import collections
import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree

# How Bazel ends when all is well, or when what went wrong is counted already.
_EXPECTED_ENDS = {"SUCCESS", "TESTS_FAILED", "NO_TESTS_FOUND"}

Outcome = collections.namedtuple("Outcome", "kind name detail")


def path_of(uri):
    return pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(uri).path))


def read_cases(uri):
    """Returns the test cases in a test.xml, or None where it can't be read."""
    try:
        return list(xml.etree.ElementTree.parse(path_of(uri)).iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        return None


def last_words(uri):
    """Returns the end of a test.log, in one line; nothing where it can't be read."""
    try:
        words = path_of(uri).read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return ""
    end = " ".join(words)[-300:]
    return f": ... {end}" if end else ""


def case_outcome(label, case):
    # Bazel's own test.xml, for a test that wrote none, has no class name.
    suite = case.get("classname")
    name = f"{label} {suite}.{case.get('name')}" if suite else label
    for kind, tag in (("failed", "failure"), ("failed", "error"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            message = found.get("message") or found.text or ""
            return Outcome(kind, name, " ".join(message.split())[:200])
    if case.get("status") == "notrun":
        return Outcome("skipped", name, "disabled")
    return Outcome("passed", name, "")


def test_outcomes(label, result):
    """Yields the outcomes of one testResult event."""
    passed = result.get("status") == "PASSED"
    uris = {output.get("name"): output.get("uri", "") for output in result.get("testActionOutput", [])}
    cases = read_cases(uris.get("test.xml", ""))
    if cases is None:
        cases = []
        if passed:
            yield Outcome("passed", label, "")
    end = "" if passed else last_words(uris.get("test.log", ""))
    failures = 0
    for case in cases:
        outcome = case_outcome(label, case)
        if outcome.kind == "failed":
            failures += 1
            if outcome.name == label:  # all that Bazel knows is an exit status
                outcome = outcome._replace(detail=outcome.detail + end)
        yield outcome
    if not passed and not failures:
        # It crashed or ran out of time before it could list its cases.
        yield Outcome("failed", label, result.get("status", "no status").lower() + end)


def run_outcomes(events, was_cut=False):
    """Yields the outcomes of one run of Bazel."""
    tests = set()
    results = {}
    not_built = []
    interrupted = set()
    end = None
    for event in events:
        ident = event.get("id", {})
        if "configured" in event:
            if "testSize" in event["configured"]:
                tests.add(ident["targetConfigured"]["label"])
        elif (was_cut and event.get("aborted", {}).get("reason") == "USER_INTERRUPTED"
              and ident.keys() & {"testResult", "targetCompleted"}):
            label = next(iter(ident.values()))["label"]
            if label in tests:
                interrupted.add(label)
        elif "testResult" in event:
            key = ident["testResult"]
            # Of several attempts the last one counts.
            attempt = (key["label"], key.get("configuration", {}).get("id"),
                       key.get("run"), key.get("shard"))
            results[attempt] = event["testResult"]
        elif "targetCompleted" in ident:
            label = ident["targetCompleted"]["label"]
            reason = event.get("aborted", {}).get("reason")
            if reason == "SKIPPED":
                if label in tests:
                    yield Outcome("skipped", label, "incompatible with this machine")
            elif not event.get("completed", {}).get("success"):
                not_built.append(label)
        elif "finished" in event:
            end = event["finished"].get("exitCode", {}).get("name", "SUCCESS")

    for (label, *_), result in results.items():
        yield from test_outcomes(label, result)
    for label in not_built:
        yield Outcome("failed", label, "does not build")
    for label in interrupted:
        yield Outcome("skipped", label, "not ended when the time was over")
    if was_cut and end == "INTERRUPTED":
        return
    if end is None:
        yield Outcome("failed", "bazel", "did not end")
    elif end not in _EXPECTED_ENDS and not not_built:
        yield Outcome("failed", "bazel", end)


def read_events(path):
    """Returns the events in a file; a last line that was cut off is left out."""
    events = []
    try:
        with open(path, encoding="utf-8") as stream:
            for line in stream:
                events.append(json.loads(line))
    except (OSError, json.JSONDecodeError):
        pass
    return events


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failed", action="append", default=[], metavar="WHAT",
                        help="one more failure, of something that is no test")
    parser.add_argument("--skipped", action="append", default=[], metavar="WHAT",
                        help="one more that was skipped")
    parser.add_argument("--cut", action="append", default=[], metavar="RUN",
                        help="a run that was interrupted")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    args = parser.parse_args()

    counts = collections.Counter(failed=len(args.failed), skipped=len(args.skipped))
    lines = [f"FAILED {what}" for what in args.failed]
    lines += [f"SKIPPED {what}" for what in args.skipped]
    for path in args.files:
        for outcome in run_outcomes(read_events(path), path.stem in args.cut):
            counts[outcome.kind] += 1
            if outcome.kind != "passed":
                detail = f": {outcome.detail}" if outcome.detail else ""
                lines.append(f"{outcome.kind.upper()} {outcome.name} ({path.stem}){detail}")
    for line in sorted(lines, reverse=True):  # What failed comes last, to be seen.
        print(line)
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed{skipped}")
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
