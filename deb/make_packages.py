#!/usr/bin/python3
"""Packs ringpipe for Debian: the same bytes of the same files, whenever on one system.

    make_packages.py FOLDER INSTALL_TREE WHEEL EXTENSION

writes libringpipe0, libringpipe-dev and python3-ringpipe into FOLDER. INSTALL_TREE is
//engine:install's archive, from which the library, the headers and LICENSE come; the
package comes from WHEEL, but its extension is EXTENSION, which looks for the library
where the system has it.

The packages are for the Debian on which they are built, and for newer ones:
dpkg-shlibdeps says of which libraries they need which versions.
"""

import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

REVISION = 1
MAINTAINER = "The ringpipe authors <ringpipe@localhost>"
# What the changelog says, and all files' time: 1 November 2026.
DATE = "Sun, 01 Nov 2026 00:00:00 +0000"
DATE_S = 1793491200
TRIPLET = sysconfig.get_config_var("MULTIARCH")
LIBRARY = "libringpipe.so.0"

FIELDS = {
    "libringpipe0": """\
Section: libs
Multi-Arch: same
Depends: {libraries}
Recommends: ibverbs-providers, librdmacm1
Description: collective communication between processes
 ringpipe adds up arrays across the processes of a parallel job, and has the
 other collective calls too: reduce-scatter, all-gather, broadcast, barrier,
 reduce, gather, scatter and all-to-all. Processes on one host exchange data
 through shared memory, hosts over RDMA, or over TCP where they have no RDMA
 hardware.
 .
 This package has the library. The recommended packages are for hosts that have
 RDMA hardware: they are loaded at run time.
""",
    "libringpipe-dev": """\
Section: libdevel
Multi-Arch: same
Depends: libringpipe0 (= {version})
Suggests: pkgconf, cmake
Description: collective communication between processes (development files)
 ringpipe adds up arrays across the processes of a parallel job, over shared
 memory, RDMA or TCP.
 .
 This package has the headers for C and C++, and what pkg-config and CMake need
 to find the library.
""",
    "python3-ringpipe": """\
Section: python
Depends: {libraries}, python3 (>= 3.11~)
Recommends: python3-numpy
Description: collective communication between processes (Python 3)
 ringpipe adds up arrays across the processes of a parallel job, over shared
 memory, RDMA or TCP.
 .
 This package has the module ringpipe, which takes arrays of numpy and others,
 and ringpipe.chainermn, which has the interface of ChainerMN's communicators.
""",
}

# Byte code is of the interpreters that are installed, so it is made there.
POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ] && command -v py3compile >/dev/null; then
  py3compile -p python3-ringpipe
fi
"""
PRERM = """\
#!/bin/sh
set -e
if command -v py3clean >/dev/null; then
  py3clean -p python3-ringpipe
fi
"""


class Maker:
    """The trees of the packages, in a folder of their own."""

    def __init__(self, folder, version):
        self.folder = pathlib.Path(folder)
        self.version = f"{version}-{REVISION}"
        self.architecture = run("dpkg", "--print-architecture").strip()

    def put(self, package, path, data, mode=0o644):
        """Gives the package the file `path`, in which `data` is."""
        file = self.folder / package / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data if isinstance(data, bytes) else data.encode())
        file.chmod(mode)

    def put_control(self, package):
        """All about the package: its files are in place."""
        tree = self.folder / package
        files = sorted(path for path in tree.rglob("*")
                       if "DEBIAN" not in path.relative_to(tree).parts)
        self.put(package, "DEBIAN/control", "".join([
            f"Package: {package}\n",
            "Source: ringpipe\n",
            f"Version: {self.version}\n",
            f"Architecture: {self.architecture}\n",
            f"Maintainer: {MAINTAINER}\n",
            f"Installed-Size: {sum(map(kibibytes, files))}\n",
            "Priority: optional\n",
            FIELDS[package].format(version=self.version, libraries=self.libraries(package))]))
        self.put(package, "DEBIAN/md5sums", "".join(
            f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n"
            for path in files if path.is_file() and not path.is_symlink()))

    def libraries(self, package):
        """What the package's programs and libraries need of others, as a field has it."""
        binaries = [str(path) for path in (self.folder / package).rglob("*.so*")
                    if path.is_file() and not path.is_symlink()]
        if not binaries:
            return ""
        (self.folder / "debian").mkdir(exist_ok=True)
        (self.folder / "debian/control").write_text("Source: ringpipe\n", encoding="utf-8")
        (self.folder / "shlibs").write_text(
            f"libringpipe 0 libringpipe0 (= {self.version})\n", encoding="utf-8")
        # Warnings are about the interpreter's functions, which are of no library.
        found = run("dpkg-shlibdeps", "-O", "--warnings=0", f"-L{self.folder}/shlibs",
                    f"-l{self.folder}/libringpipe0/usr/lib/{TRIPLET}", *binaries,
                    cwd=self.folder)
        return re.fullmatch(r"shlibs:Depends=(.+)\n", found)[1]

    def build(self, package, output):
        """Writes the package's file."""
        tree = self.folder / package
        for path in [tree, *tree.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
            os.utime(path, (DATE_S, DATE_S), follow_symlinks=False)
        # The compressor's threads would cut the data elsewhere on another machine.
        run("dpkg-deb", "--root-owner-group", "-Zxz", "--threads-max=1", "--build", tree,
            pathlib.Path(output) / f"{package}_{self.version}_{self.architecture}.deb",
            env={**os.environ, "SOURCE_DATE_EPOCH": str(DATE_S)})


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def kibibytes(path):
    return -(-path.lstat().st_size // 1024) if path.is_file() and not path.is_symlink() else 1


def stripped(path):
    with tempfile.TemporaryDirectory() as folder:
        run("strip", "--strip-unneeded", "-o", f"{folder}/stripped", path)
        return pathlib.Path(folder, "stripped").read_bytes()


def header_version(header):
    return ".".join(re.search(rf"#define RINGPIPE_VERSION_{part} (\d+)", header)[1]
                    for part in ("MAJOR", "MINOR", "PATCH"))


def system_pc(text):
    """ringpipe.pc of a tree that lies anywhere, as it is in /usr: nothing is to be
    remembered of where the library is, since the loader knows."""
    text, number = re.subn(r"^prefix=.*\nlibdir=.*$",
                           f"prefix=/usr\nlibdir=${{prefix}}/lib/{TRIPLET}", text, flags=re.M)
    without = text.replace(" -Wl,-rpath,${libdir}", "")
    if number != 1 or without == text:
        sys.exit("make_packages: ringpipe.pc is not as it was when this was written:\n" + text)
    return without


def put_documents(maker, package, license_text):
    share = f"usr/share/doc/{package}"
    maker.put(package, f"{share}/copyright", license_text)
    changelog = (f"ringpipe ({maker.version}) unstable; urgency=medium\n\n"
                 f"  * Built from ringpipe's own tree.\n\n -- {MAINTAINER}  {DATE}\n")
    maker.put(package, f"{share}/changelog.Debian.gz",
              gzip.compress(changelog.encode(), 9, mtime=0))


def put_library(maker, tree):
    package = "libringpipe0"
    maker.put(package, f"usr/lib/{TRIPLET}/{LIBRARY}", stripped(tree / "lib" / LIBRARY))
    maker.put(package, "DEBIAN/shlibs", f"libringpipe 0 libringpipe0 (>= {maker.version})\n")
    maker.put(package, "DEBIAN/triggers", "activate-noawait ldconfig\n")


def put_development_files(maker, tree):
    package, libraries = "libringpipe-dev", f"usr/lib/{TRIPLET}"
    for header in (tree / "include/ringpipe").iterdir():
        maker.put(package, f"usr/include/ringpipe/{header.name}", header.read_bytes())
    for file in (tree / "lib/cmake/ringpipe").iterdir():
        maker.put(package, f"{libraries}/cmake/ringpipe/{file.name}", file.read_bytes())
    maker.put(package, f"{libraries}/pkgconfig/ringpipe.pc",
              system_pc((tree / "lib/pkgconfig/ringpipe.pc").read_text(encoding="utf-8")))
    (maker.folder / package / libraries / "libringpipe.so").symlink_to(LIBRARY)


def put_python(maker, wheel, extension):
    package, modules = "python3-ringpipe", "usr/lib/python3/dist-packages"
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            # RECORD would let pip remove what is dpkg's.
            if not re.search(r"\.so(\.\d+)?$|/RECORD$|/LICENSE$", name):
                maker.put(package, f"{modules}/{name}", archive.read(name))
            if name.endswith("/WHEEL"):
                installer = name.replace("/WHEEL", "/INSTALLER")
                maker.put(package, f"{modules}/{installer}", "debian\n")
    maker.put(package, f"{modules}/ringpipe/_native.abi3.so", stripped(extension))
    maker.put(package, "DEBIAN/postinst", POSTINST, 0o755)
    maker.put(package, "DEBIAN/prerm", PRERM, 0o755)


def main(output, install_tree, wheel, extension):
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder, "tree")
        with tarfile.open(install_tree) as archive:
            archive.extractall(tree)
        maker = Maker(pathlib.Path(folder, "packages"), header_version(
            (tree / "include/ringpipe/ringpipe.h").read_text(encoding="utf-8")))
        put_library(maker, tree)
        put_development_files(maker, tree)
        put_python(maker, wheel, extension)
        for package in FIELDS:
            put_documents(maker, package,
                          (tree / "share/doc/ringpipe/LICENSE").read_text(encoding="utf-8"))
            maker.put_control(package)
            maker.build(package, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
