"""Test results as a JUnit file."""

import os
import time
import unittest
import xml.etree.ElementTree as ElementTree


class Report:
    """Test cases, written to a file."""

    def __init__(self, suite):
        self._suite = ElementTree.Element("testsuite", name=suite)

    def add(self, class_name, name, seconds=0.0, tag=None, message=""):
        """A case; `tag` is None where it passed, or "failure" or "skipped"."""
        case = ElementTree.SubElement(
            self._suite, "testcase", classname=class_name, name=name,
            time=f"{seconds:.3f}")
        if tag:
            found = ElementTree.SubElement(case, tag, message=_printable(message)[-500:])
            found.text = _printable(message)

    def extend(self, path):
        """The cases of a file that was written by another Report."""
        self._suite.extend(ElementTree.parse(path).getroot().iter("testcase"))

    def failed(self):
        return self._suite.find("testcase/failure") is not None

    def write(self, path):
        """All at once: nobody reads half a file."""
        part = f"{path}.part"
        ElementTree.ElementTree(self._suite).write(
            part, encoding="utf-8", xml_declaration=True)
        os.replace(part, path)


def _printable(text):
    """XML has no way to write most control characters."""
    return "".join(c if c in "\n\t" or ord(c) >= 32 else "?" for c in text)


class ReportingResult(unittest.TextTestResult):
    """As it comes, to the terminal; and after each test to a file."""

    def __init__(self, path, *arguments, **named):
        super().__init__(*arguments, **named)
        self._path = path
        self._report = Report("guest")
        self._start = time.monotonic()

    def startTest(self, test):
        super().startTest(test)
        self._start = time.monotonic()

    def _add(self, test, tag=None, message=""):
        class_name, _, name = test.id().rpartition(".")
        self._report.add(class_name.rpartition(".")[2], name,
                         time.monotonic() - self._start, tag, message)
        self._report.write(self._path)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._add(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._add(test, "failure", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        super().addError(test, err)
        self._add(test, "failure", self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._add(test, "skipped", reason)
