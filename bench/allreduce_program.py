"""Runs the bench/allreduce that is the first argument of the test."""

import os
import re
import subprocess
import sys

PATIENCE_S = 100
PROGRAM = os.path.abspath(sys.argv.pop(1))

# Without variables that would make the test part of somebody else's job.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not re.match(r"(RINGPIPE|OMPI|PMI|PMIX|SLURM)_|(MASTER|LOCAL)_|RANK$|"
                    r"WORLD_SIZE$|BUILD_WORKING_DIRECTORY$", name)
}


def run(*arguments, environment=None, **options):
    return subprocess.run(
        [PROGRAM, *arguments],
        env={**ENVIRONMENT, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **options)


def rows(text):
    """The lines of the table, as lists of words."""
    return [line.split() for line in text.splitlines()
            if line and not line.startswith("#")]
