"""Debian's packages are the same bytes each time, say what they need, and have all of it.

    packages_test.py MAKE_PACKAGES INSTALL_TREE WHEEL EXTENSION C_PROGRAM PACKAGE...

The files are used here without dpkg's database; deb/try_packages installs them.
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
import tempfile
import unittest

from tests.launch import job

MAKE_PACKAGES, *SOURCES, C_PROGRAM = (pathlib.Path(argument).absolute()
                                      for argument in sys.argv[1:6])
PACKAGES = {pathlib.Path(argument).name.partition("_")[0]: pathlib.Path(argument).absolute()
            for argument in sys.argv[6:]}
TRIPLET = sysconfig.get_config_var("MULTIARCH")
LIBRARIES = f"usr/lib/{TRIPLET}"
MODULES = "usr/lib/python3/dist-packages"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
PYTHON_PROGRAM = """
import array
import ringpipe

def add(number):
    with ringpipe.Communicator() as comm:
        x = array.array("d", [comm.rank + number] * 1000)
        comm.allreduce(x)
        return x[999], ringpipe.__file__

if __name__ == "__main__":
    print(ringpipe.spawn(add, 4, (0.5,)))
"""


def run(*command, **options):
    options = {"env": ENVIRONMENT, "timeout": 100, **options}
    return subprocess.run([str(word) for word in command], check=True, text=True,
                          stdout=subprocess.PIPE, **options).stdout


def fields(package):
    text = run("dpkg-deb", "--field", PACKAGES[package])
    return dict(re.findall(r"^([\w-]+): (.*)$", text, re.MULTILINE))


def names(relations):
    """Of packages, without their versions: "a (>= 1), b" is {a, b}."""
    return {relation.split()[0] for relation in relations.split(", ") if relation}


class PackagesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.roots = {}
        for package, file in PACKAGES.items():
            cls.roots[package] = cls.folder / package
            run("dpkg-deb", "--raw-extract", file, cls.roots[package])
        cls.whole = cls.folder / "whole"
        for file in PACKAGES.values():
            run("dpkg-deb", "--extract", file, cls.whole)

    def setUp(self):
        self.addCleanup(job.kill_descendants)

    def run_program(self, *command, **variables):
        process = job.Process([str(word) for word in command], {
            **ENVIRONMENT, "LD_LIBRARY_PATH": str(self.whole / LIBRARIES), **variables})
        self.addCleanup(process.close)
        self.addCleanup(process.kill)
        return process

    def binaries(self):
        """(package, path) of what is compiled."""
        found = [(package, path) for package, root in self.roots.items()
                 for path in root.rglob("*") if path.is_file() and not path.is_symlink()
                 and path.read_bytes()[:4] == b"\x7fELF"]
        self.assertEqual(sorted(path.name for _, path in found),
                         ["_native.abi3.so", "libringpipe.so.0"])
        return found

    def test_the_same_files_are_the_same_packages(self):
        copies = []
        for number, source in enumerate(SOURCES):
            copies.append(self.folder / f"source{number}" / source.name)
            copies[-1].parent.mkdir()
            shutil.copy(source, copies[-1])
            copies[-1].chmod(0o600)
            os.utime(copies[-1], (number, number))
        again = self.folder / "again"
        again.mkdir()
        run(sys.executable, MAKE_PACKAGES, again, *copies, umask=0o77,
            env={"PATH": "/usr/bin:/bin", "TZ": "Asia/Tokyo", "DPKG_DEB_THREADS_MAX": "3"})
        self.assertEqual(sorted(path.name for path in again.iterdir()),
                         sorted(path.name for path in PACKAGES.values()))
        for package in PACKAGES.values():
            self.assertEqual((again / package.name).read_bytes(), package.read_bytes(), package)

    def test_the_fields_say_what_they_are(self):
        self.assertEqual(sorted(PACKAGES), ["libringpipe-dev", "libringpipe0", "python3-ringpipe"])
        for package, section in (("libringpipe0", "libs"), ("libringpipe-dev", "libdevel"),
                                 ("python3-ringpipe", "python")):
            found = fields(package)
            self.assertEqual(PACKAGES[package].name,
                             f"{package}_{found['Version']}_{found['Architecture']}.deb")
            self.assertEqual((found["Package"], found["Section"]), (package, section))
            self.assertRegex(found["Maintainer"], r"^.+ <.+>$")
            changelog = gzip.decompress(
                (self.whole / f"usr/share/doc/{package}/changelog.Debian.gz").read_bytes())
            self.assertTrue(changelog.startswith(f"ringpipe ({found['Version']}) ".encode()))
            self.assertIn("Copyright", (self.whole / f"usr/share/doc/{package}/copyright")
                          .read_text(encoding="utf-8"))

    def test_they_depend_on_what_they_load(self):
        version = fields("libringpipe0")["Version"]
        self.assertIn(f"libringpipe0 (= {version})", fields("libringpipe-dev")["Depends"])
        self.assertIn(f"libringpipe0 (= {version})", fields("python3-ringpipe")["Depends"])
        self.assertIn("python3", names(fields("python3-ringpipe")["Depends"]))
        # Loaded at run time, where there is RDMA hardware.
        self.assertEqual(names(fields("libringpipe0")["Recommends"]),
                         {"ibverbs-providers", "librdmacm1"})
        for package, path in self.binaries():
            dynamic = run("readelf", "--dynamic", path)
            for library in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
                if library == "libringpipe.so.0":
                    continue
                owner = run("dpkg", "--search", f"*/{TRIPLET}/{library}").partition(":")[0]
                with self.subTest(package=package, library=library):
                    self.assertIn(owner, names(fields(package)["Depends"]))

    def test_the_c_library_that_they_ask_for_is_new_enough(self):
        for package, path in self.binaries():
            needed = max(tuple(map(int, version.split("."))) for version in
                         re.findall(r"@GLIBC_([\d.]+)", run("nm", "--dynamic", path)))
            asked = re.search(r"libc6 \(>= ([\d.]+)\)", fields(package)["Depends"])[1]
            self.assertGreaterEqual(tuple(map(int, asked.split("."))), needed, package)

    def test_no_search_path_stays_from_where_they_were_built(self):
        for _, path in self.binaries():
            self.assertNotRegex(run("readelf", "--dynamic", path), "RPATH|RUNPATH", path)
        pc = (self.whole / LIBRARIES / "pkgconfig/ringpipe.pc").read_text(encoding="utf-8")
        self.assertNotIn("rpath", pc)
        self.assertIn("prefix=/usr\n", pc)

    def test_they_are_stripped(self):
        for _, path in self.binaries():
            self.assertNotRegex(run("readelf", "--wide", "--sections", path), r"\.(symtab|debug)")

    def test_owners_modes_and_sums(self):
        for package, file in PACKAGES.items():
            for line in run("dpkg-deb", "--contents", file).splitlines():
                mode, owner, _, _, _, path = line.split()[:6]
                self.assertEqual(owner, "root/root", line)
                self.assertIn(mode, ("drwxr-xr-x", "-rw-r--r--", "lrwxrwxrwx"), line)
                self.assertNotIn("__pycache__", path)
            sums = (self.roots[package] / "DEBIAN/md5sums").read_text(encoding="utf-8")
            listed = dict(reversed(line.split("  ")) for line in sums.splitlines())
            actual = {str(path.relative_to(self.roots[package])):
                      hashlib.md5(path.read_bytes()).hexdigest()
                      for path in (self.roots[package] / "usr").rglob("*")
                      if path.is_file() and not path.is_symlink()}
            self.assertEqual(listed, actual)

    def test_a_c_program_is_built_with_them(self):
        # As if what is in "whole" were in /.
        environment = {**ENVIRONMENT, "PKG_CONFIG_SYSROOT_DIR": str(self.whole),
                       "PKG_CONFIG_LIBDIR": str(self.whole / LIBRARIES / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "ringpipe", env=environment).split()
        program = self.folder / "c_program"
        run("gcc", "-Wall", "-Werror", C_PROGRAM, "-o", program, *flags)
        self.check_program(program)

    def test_cmake_finds_them(self):
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.18)\n"
            "project(consumer C)\n"
            "find_package(ringpipe 0.1 REQUIRED)\n"
            f"add_executable(cmake_program {C_PROGRAM})\n"
            "target_link_libraries(cmake_program ringpipe::ringpipe)\n", encoding="utf-8")
        build = self.folder / "cmake"
        run("cmake", "-S", self.folder, "-B", build, f"-DCMAKE_PREFIX_PATH={self.whole}/usr")
        run("cmake", "--build", build)
        self.check_program(build / "cmake_program")

    def check_program(self, program):
        ranks = [self.run_program(program, RINGPIPE_RANK=str(rank), RINGPIPE_SIZE="3",
                                  RINGPIPE_ROOT=f"unix:@{self.id()}-{os.getpid()}")
                 for rank in range(3)]
        for rank in ranks:
            self.assertEqual(rank.finish().stdout, "ok 8\n", rank.stderr)

    def test_the_module_works(self):
        program = self.folder / "program.py"
        program.write_text(PYTHON_PROGRAM, encoding="utf-8")
        process = self.run_program("/usr/bin/python3", "-B", program,
                                   PYTHONPATH=str(self.whole / MODULES)).finish()
        path = self.whole / MODULES / "ringpipe/__init__.py"
        self.assertEqual(process.stdout, f"{[(8.0, str(path))] * 4}\n", process.stderr)


if __name__ == "__main__":
    del sys.argv[1:]
    job.adopt_orphans()
    unittest.main()
