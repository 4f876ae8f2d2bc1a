#!/usr/bin/python3
"""Packs the package as a wheel: the same bytes of the same files, whenever and wherever.

    make_wheel.py WHEEL FILE...

FILEs are those of the package, its two shared libraries, PyTorch's extension or not,
ringpipe.h (which says the version) and LICENSE. The libraries are stripped. They must need no newer C library than
the name of the wheel says.
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile

# What follows a + says what the wheel has that others have not.
NAME = re.compile(r"ringpipe-(?P<version>[\d.]+)(?P<local>\+torch[\d.]+)?"
                  r"-(?P<tag>\w+-\w+-manylinux_\d+_\d+_\w+)\.whl$")
# Where files go that are not the package's under their own names.
LIBRARIES = {"_native.abi3.so": "_native.abi3.so", "libringpipe.so": "libringpipe.so.0"}
# The earliest that a zip has.
TIME = (1980, 1, 1, 0, 0, 0)

METADATA = """\
Metadata-Version: 2.1
Name: ringpipe
Version: {version}
Summary: Collective communication between processes, over shared memory and RDMA
License: MIT
License-File: LICENSE
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Requires-Python: >=3.11
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
"""

WHEEL = """\
Wheel-Version: 1.0
Generator: ringpipe
Root-Is-Purelib: false
Tag: {tag}
"""


def header_version(text):
    numbers = [re.search(rf"#define RINGPIPE_VERSION_{part} (\d+)", text)[1]
               for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(numbers)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def inside_package(path):
    """Where a file of the package is in its folder, which is called ringpipe."""
    _, folder, name = path.rpartition("/ringpipe/")
    if not folder:
        sys.exit(f"make_wheel: {path} is in no folder ringpipe/, so its place is not known")
    return name


def stripped(path):
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "stripped")
        subprocess.run(["strip", "--strip-unneeded", "-o", output, path], check=True)
        return read(output)


def check_c_library(path, tag):
    """That the library runs with the C library that the wheel's name promises it."""
    promised = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_", tag).groups()))
    symbols = subprocess.run(["nm", "--dynamic", path], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    needed = max(tuple(map(int, version.split(".")))
                 for version in re.findall(r"@GLIBC_([\d.]+)", symbols))
    if needed > promised:
        version = ".".join(map(str, needed))
        sys.exit(f"make_wheel: {os.path.basename(path)} needs the C library {version} or newer, "
                 f"and the wheel is to be for {tag}; build both on one machine")


def contents(paths, version, tag):
    """{name in the wheel: bytes}, without RECORD."""
    information = f"ringpipe-{version}.dist-info"
    files = {f"{information}/METADATA": METADATA.format(version=version).encode(),
             f"{information}/WHEEL": WHEEL.format(tag=tag).encode()}
    for path in paths:
        name = os.path.basename(path)
        if name in LIBRARIES:
            check_c_library(path, tag)
            files[f"ringpipe/{LIBRARIES[name]}"] = stripped(path)
        elif name.startswith("_torch."):
            check_c_library(path, tag)
            files[f"ringpipe/{name}"] = stripped(path)
        elif name == "LICENSE":
            files[f"{information}/LICENSE"] = read(path)
        elif name != "ringpipe.h":
            files[f"ringpipe/{inside_package(path)}"] = read(path)
    return files


def record(files, name):
    lines = []
    for file, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
        lines.append(f"{file},sha256={digest.decode()},{len(data)}\n")
    return "".join([*lines, f"{name},,\n"]).encode()


def write(wheel, files):
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, whose modes follow
            entry.external_attr = (0o100755 if ".so" in name else 0o100644) << 16
            archive.writestr(entry, data, compresslevel=9)


def main(wheel, *paths):
    name = NAME.search(os.path.basename(wheel))
    version = header_version(next(read(path).decode() for path in paths
                                  if os.path.basename(path) == "ringpipe.h"))
    if name["version"] != version:
        sys.exit(f"make_wheel: {os.path.basename(wheel)} is to be built, and ringpipe.h has "
                 f"version {version}; mend the name in python/BUILD")
    version += name["local"] or ""
    files = contents(paths, version, name["tag"])
    record_name = f"ringpipe-{version}.dist-info/RECORD"
    files[record_name] = record(files, record_name)
    write(wheel, files)


if __name__ == "__main__":
    main(*sys.argv[1:])
