"""The file that compare_peers saves with --json, and whether a file is one.
README.md lists its fields."""

import json
import math

# Beside this file.
from comparison import PLACES, Failure

# The types of fields, in words.
WORDS = {dict: "an object", list: "a list", str: "a string", int: "a number",
         bool: "true or false"}
SCHEMA = {"name": "ringpipe-compare-peers", "version": 1}


def load(path):
    """The document. Raises Failure where there is none or it is damaged."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except ValueError as error:  # no JSON, or not UTF-8
        raise Failure(f"{path} is not JSON ({error}); give a file that --json "
                      "has saved") from error
    try:
        check(document)
    except Failure as failure:
        raise Failure(f"{path}: {failure}; give a file that --json has "
                      "saved") from failure
    return document


def check(document):
    """Raises Failure, which names the field that is missing or wrong."""
    _check_fields(document, "the file", {"schema": dict})
    if document["schema"] != SCHEMA:
        raise Failure(f"schema is {json.dumps(document['schema'])}, not "
                      f"{json.dumps(SCHEMA)}")
    _check_fields(document, "the file", {
        "date": str, "machine": str, "versions": dict, "touch": bool,
        "rounds": int, "contenders": dict, "left_out": dict, "cases": list})
    for number, case in enumerate(document["cases"]):
        _check_case(case, f"cases[{number}]")


def _check_case(case, where):
    _check_fields(case, where, {
        "ranks": int, "size": int, "iterations": int, "contenders": list,
        "failures": dict, "rounds": list})
    for number, samples in enumerate(case["rounds"]):
        here = f"{where}.rounds[{number}]"
        if not isinstance(samples, list):
            raise Failure(f"{here} is no list")
        for index, sample in enumerate(samples):
            _check_sample(sample, f"{here}[{index}]")


def _check_sample(sample, where):
    _check_fields(sample, where,
                  {"contender": str, "placements": list, "us": dict})
    if (len(sample["placements"]) != 2 or
            not all(isinstance(name, str) for name in sample["placements"])):
        raise Failure(f"{where}.placements is not two names")
    for place, times in sample["us"].items():
        if place not in PLACES:
            raise Failure(f"{where}.us has the field {place}, which is none of "
                          f"{', '.join(PLACES)}")
        if not isinstance(times, list) or not times or not all(
                isinstance(time, (int, float)) and math.isfinite(time) and
                time > 0 for time in times):
            raise Failure(f"{where}.us.{place} is no list of times")


def _check_fields(value, where, types):
    if not isinstance(value, dict):
        raise Failure(f"{where} is no object")
    for name, expected in types.items():
        if name not in value:
            raise Failure(f"{where} has no field {name}")
        if not isinstance(value[name], expected):
            raise Failure(f"{where}: {name} is {json.dumps(value[name])[:40]}, "
                          f"not {WORDS[expected]}")
