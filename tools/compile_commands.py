#!/usr/bin/python3
"""Writes compile_commands.json, for clangd.

    tools/compile_commands.py [--output=FILE] [--targets=PATTERN] [BAZEL OPTION]...

It asks Bazel for the compiler's command lines (bazel aquery) and builds
nothing; run "bazel build //..." first where sources are generated.
"""

import argparse
import json
import pathlib
import subprocess
import sys

# What clang doesn't know, or what makes its warnings errors: GCC's are errors,
# which of clang's are is for .clang-tidy to say.
_GCC_ONLY = {"-fno-canonical-system-headers", "-fno-gnu-unique", "-Wno-tsan", "-Werror"}
# Bazel's redefinition of __DATE__ and its like, which clang-tidy reports.
_REDACTED = ("-D__DATE__=", "-D__TIME__=", "-D__TIMESTAMP__=")


def bazel(*args):
    done = subprocess.run(["bazel", args[0], "--ui_event_filters=-info", "--noshow_progress",
                           *args[1:]], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"compile_commands: bazel {args[0]} failed, see above")
    return done.stdout


def actions(mnemonics, targets, *options):
    """The actions of targets whose mnemonic matches, as "bazel aquery" has them."""
    text = bazel("aquery", "--output=jsonproto", "--include_artifacts=false", *options,
                 f'mnemonic("{mnemonics}", {targets})')
    return json.loads(text).get("actions", [])


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE",
                        help="default: compile_commands.json in the workspace")
    parser.add_argument("--targets", default="//...", metavar="PATTERN",
                        help="default: //...")
    args, options = parser.parse_known_args()

    workspace = bazel("info", "workspace").strip()
    # The links in the workspace (bazel-out) may be of another configuration.
    execution_root = bazel("info", "execution_root").strip()
    # Repositories are linked into the execution root by a build alone.
    output_base = bazel("info", "output_base").strip()

    def absolute(argument):
        if argument.startswith("external/"):
            return f"{output_base}/{argument}"
        if argument.startswith("bazel-out/"):
            return f"{execution_root}/{argument}"
        return argument

    commands = {}
    for action in actions("^CppCompile$", args.targets, *options):
        arguments = action["arguments"]
        source = arguments[arguments.index("-c") + 1]
        if source.startswith(("external/", "bazel-out/")):
            continue
        commands[source] = {
            "arguments": [
                absolute(a) for a in arguments
                if a not in _GCC_ONLY and not a.startswith(_REDACTED)
            ],
            "directory": workspace,
            "file": source,
        }
    output = args.output or pathlib.Path(workspace) / "compile_commands.json"
    output.write_text(
        json.dumps([commands[source] for source in sorted(commands)], indent=1) + "\n",
        encoding="utf-8")
    print(f"{output}: {len(commands)} sources")


if __name__ == "__main__":
    main()
