#!/usr/bin/python3
"""Checks that ./setup installs whatever the build and the tests read on a machine.

    tools/check_packages.py [--without=PACKAGE]...

A package that is installed here by chance hides that ./setup lacks it.  So this
works out what "./setup" installs on an empty Debian, and looks for files of other
packages among

- the headers that the last build included (run "bazel build //..." first),
- the libraries that it linked, and those that its programs load,
- the programs, libraries and absolute paths that are named in the sources of
  tests, scripts and build rules,
- the Python modules that they import.

--without leaves a package out of ./setup's list, to see this check fail.

Exits 1 where it finds one, and says who reads it and which package it is of; 3
where nothing is built.
"""

import argparse
import ast
import collections
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

import compile_commands

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# What a file's path must begin with to be of a package.  Files elsewhere are the
# machine's (/etc, /proc) or optional (CUDA in /usr/local).
PACKAGED = ("/usr/", "/lib", "/bin/", "/sbin/")
OPTIONAL = ("/usr/local/",)
NOTHING_BUILT = 3
LIBRARY = r"lib[\w+-]+\.so(\.\d+)*"

Use = collections.namedtuple("Use", "path reader")


def run(*command):
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    return done.stdout, done.stderr, done.returncode


# --- What ./setup installs on an empty machine ------------------------------------


def installed_by(packages):
    """The packages that apt-get would install where there is none."""
    output, errors, status = run(
        "apt-get", "--simulate", "--no-install-recommends", "-o", "Dir::State::status=/dev/null",
        "install", "apt", *essential_packages(), *packages)
    if status != 0:
        sys.exit("check_packages: apt-get cannot resolve ./setup's packages (run apt-get update "
                 f"where its lists are empty):\n{errors}")
    return set(re.findall(r"^Inst (\S+)", output, re.MULTILINE))


def essential_packages():
    available, _, _ = run("apt-cache", "dumpavail")
    return [match[1] for paragraph in available.split("\n\n")
            if "\nEssential: yes" in paragraph
            and (match := re.match(r"Package: (\S+)", paragraph))]


# --- What the build reads -----------------------------------------------------------


def dependency_file_paths(text):
    """The prerequisites in a compiler's dependency file."""
    return text.replace("\\\n", " ").partition(": ")[2].split()


def build_uses(actions, execution_root):
    """Yields what compiling and linking read, by the actions' own records."""
    libraries = collections.defaultdict(set)
    for action in actions:
        arguments = action.get("arguments", [])
        if "-MF" in arguments:
            file = execution_root / arguments[arguments.index("-MF") + 1]
            source = arguments[arguments.index("-c") + 1]
            if file.exists():  # else it was not built here: another platform
                for path in dependency_file_paths(file.read_text(encoding="utf-8")):
                    # What is relative is the project's, or linked into the tree.
                    path = path if path[0] == "/" else (execution_root / path).resolve()
                    yield Use(str(path), source)
        elif "-o" in arguments:
            output = arguments[arguments.index("-o") + 1]
            for argument in arguments:
                if argument.startswith("-l"):
                    libraries[argument[2:]].add(output)
            yield from loaded_libraries(execution_root / output, output)
    for name, readers in libraries.items():
        yield from linked_library(name, min(readers))


def linked_library(name, reader):
    names = [name[1:]] if name.startswith(":") else [f"lib{name}.so", f"lib{name}.a"]
    for file in names:
        path, _, _ = run("g++", f"-print-file-name={file}")
        if path.startswith("/"):
            yield Use(path.strip(), reader)
            return
    yield Use(f"-l{name}", reader)


def loaded_libraries(program, reader):
    if program.exists():
        output, _, _ = run("ldd", str(program))
        for path in re.findall(r"=> (/\S+)", output):
            yield Use(path, reader)


# --- What sources name --------------------------------------------------------------


def python_names(text):
    """What a Python source names: what may be a program, paths, and its imports.

    A program is the first of a list (a command line), or shutil.which's argument.
    """
    programs, paths, modules = set(), set(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            paths.add(node.value)
        elif isinstance(node, ast.List):
            programs.update(strings(node.elts[:1]))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "which":
            programs.update(strings(node.args))
        elif isinstance(node, ast.Import):
            modules.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(node.module.partition(".")[0])
    return programs | {path for path in paths if is_path(path)}, modules


def strings(nodes):
    return {node.value for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)}


# What may stand before a command of a shell script.
BEFORE = {"!", "if", "then", "do", "else", "elif", "while", "until", "exec", "env", "command", "-v"}


def shell_names(text):
    """What a shell script runs, and the paths in it; its comments aside."""
    text = re.sub(r"(?m)(^|\s)#.*$", " ", text)
    names = set(filter(is_path, re.findall(r"[\w./+@-]+", text)))
    for command in re.split(r"[;|&(){}`\n]", text):
        words = [word for word in command.split() if word not in BEFORE]
        names.update(words[:1])
    return names


def c_names(text):
    """The paths and libraries in the string literals of C, C++ or a build rule."""
    return set(filter(is_path, re.findall(r'"([\w./+@-]+)"', text)))


def genrule_names(text):
    """The first words of the commands in a BUILD file."""
    return set(re.findall(r'cmd = "([\w.+-]+)', text))


def is_path(text):
    return text.startswith(PACKAGED) or re.fullmatch(LIBRARY, text) is not None


def source_uses(file):
    """Yields the files outside of the repository that a source names."""
    text = file.read_text(encoding="utf-8", errors="replace")
    reader = str(file.relative_to(ROOT))
    first_line = text.partition("\n")[0]
    modules = set()
    if file.suffix == ".py" or "python3" in first_line:
        names, modules = python_names(text)
    elif re.match(r"#!.*[/ ](ba|da)?sh\b", first_line):
        names = shell_names(text)
    elif file.suffix in (".c", ".cc", ".h"):
        names = c_names(text)
    elif file.name == "BUILD" or file.suffix in (".bzl", ".BUILD"):
        names = c_names(text) | genrule_names(text)
    else:
        return
    for name in names:
        if path := find(name):
            yield Use(path, reader)
    for module in modules:
        if not (file.parent / f"{module}.py").exists() and (path := find_module(module)):
            yield Use(path, reader)


def find(name):
    """The path of a program, a library or a path in a source; None if it is neither."""
    if name.startswith(PACKAGED):
        return name if pathlib.Path(name).is_file() else None
    if re.fullmatch(LIBRARY, name):
        return loadable_libraries().get(name)
    return None if "/" in name else shutil.which(name, path=PROGRAM_PATH)


def find_module(name):
    """The file of a module; None where it is built in or the project's own."""
    if name in sys.builtin_module_names or (ROOT / name).is_dir():
        return None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec and spec.origin and spec.origin.startswith("/") else None


def loadable_libraries(cache={}):  # pylint: disable=dangerous-default-value
    """Maps the names of shared libraries that the loader finds to paths."""
    if not cache:
        output, _, _ = run("/sbin/ldconfig", "-p")
        for name, path in re.findall(r"^\s+(\S+) .*=> (\S+)$", output, re.MULTILINE):
            cache.setdefault(name, path)
    return cache


# --- Whose they are -----------------------------------------------------------------


def spellings(path):
    """The paths under which dpkg may know a file: with and without /usr, and where
    its links lead."""
    result = []
    while True:
        # /lib is a link to /usr/lib, and packages name either.
        path = str(pathlib.Path(path).parent.resolve() / pathlib.Path(path).name)
        result += [path, path.removeprefix("/usr") if path.startswith("/usr/") else f"/usr{path}"]
        link = pathlib.Path(path)
        if not link.is_symlink():
            return result
        path = str(link.parent / link.readlink())


def owners(paths):
    """Maps each path to the packages of the file and of what its links lead to."""
    known = collections.defaultdict(set)
    by_path = {path: spellings(path) for path in paths}
    every = sorted({spelling for names in by_path.values() for spelling in names})
    for start in range(0, len(every), 2000):
        output, _, _ = run("dpkg-query", "--search", *every[start:start + 2000])
        for line in output.splitlines():
            packages, _, path = line.partition(": ")
            known[path] |= {package.partition(":")[0] for package in packages.split(", ")}
    return {path: set().union(*(known[name] for name in names))
            for path, names in by_path.items()}


def complaints(uses, owners_of, installed):
    """What is read of packages that are not in `installed`, one line a package.

    A file may be of several packages (a directory of theirs, a diversion): one of
    them suffices.
    """
    foreign = {}
    for use in sorted(uses):
        packages = owners_of[use.path]
        if not packages & installed:
            foreign.setdefault(", ".join(sorted(packages)) or "no package", use)
    return [f"{packages}: {use.reader} reads {use.path}"
            for packages, use in sorted(foreign.items())]


def all_uses():
    execution_root = pathlib.Path(compile_commands.bazel("info", "execution_root").strip())
    actions = compile_commands.actions("^(CppCompile|CppLink)$", "//...")
    uses = set(build_uses(actions, execution_root))
    if not any(use.path.startswith("/usr/include/") for use in uses):
        print('check_packages: there is nothing built to look at; run "bazel build //..."',
              file=sys.stderr)
        sys.exit(NOTHING_BUILT)
    listed, _, _ = run("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others",
                       "--exclude-standard")
    for name in listed.split("\0"):
        # ./setup names packages, which are often called as their programs are.
        if name and name != "setup" and (ROOT / name).is_file():
            uses.update(source_uses(ROOT / name))
    return {use for use in uses
            if use.path.startswith(("-l", *PACKAGED)) and not use.path.startswith(OPTIONAL)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without", action="append", default=[], metavar="PACKAGE")
    args = parser.parse_args()
    packages, _, _ = run(str(ROOT / "setup"), "--list")
    installed = installed_by(set(packages.split()) - set(args.without))
    uses = all_uses()
    lines = complaints(uses, owners({use.path for use in uses}), installed)
    for line in lines:
        print(f"not in the closure of ./setup: {line}")
    print(f"check_packages: {len({use.path for use in uses})} files, {len(installed)} packages, "
          f"{len(lines)} missing")
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
