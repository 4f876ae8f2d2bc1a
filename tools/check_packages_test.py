"""Tests of check_packages: what it finds in sources, and what it complains of."""

import unittest

from tools import check_packages
from tools.check_packages import Use


class NamesTest(unittest.TestCase):

    def test_a_dependency_file_lists_what_was_included(self):
        self.assertEqual(
            check_packages.dependency_file_paths(
                "a.o: a.cc /usr/include/rdma/rdma_cma.h \\\n /usr/include/c.h\n"),
            ["a.cc", "/usr/include/rdma/rdma_cma.h", "/usr/include/c.h"])

    def test_python_names_programs_paths_libraries_and_modules(self):
        names, modules = check_packages.python_names(
            '"""file: a word of the documentation."""\n'
            'import pyverbs.device\n'
            'from os import path\n'
            'subprocess.run(["ip", "route", name])\n'
            'shutil.which("strace")\n'
            'open("/usr/share/dict/words")\n'
            'ctypes.CDLL("libucp.so.0")\n')
        self.assertEqual(names, {"ip", "strace", "/usr/share/dict/words", "libucp.so.0"})
        self.assertEqual(modules, {"pyverbs", "os"})

    def test_shell_names_what_it_runs(self):
        names = check_packages.shell_names(
            "# zip it\n"
            "if strip a.ko; then make -j2 | tee log; fi\n"
            'command -v qemu >/dev/null || echo "no mkisofs"\n'
            "x=$(objdump -d y) && /usr/bin/xz z\n")
        self.assertLessEqual({"strip", "make", "tee", "qemu", "objdump", "/usr/bin/xz"}, names)
        self.assertFalse({"zip", "mkisofs", "a.ko", "log"} & names)

    def test_a_source_names_paths_and_libraries_not_words(self):
        self.assertEqual(
            check_packages.c_names('Run("strip", "/usr/bin/strip", "libibverbs.so.1", "/etc/x");'),
            {"/usr/bin/strip", "libibverbs.so.1"})


class ComplaintsTest(unittest.TestCase):
    OWNERS = {"/usr/include/c.h": {"libc6-dev"},
              "/usr/include/rdma/rdma_cma.h": {"librdmacm-dev"},
              "/usr/bin/g++": {"g++", "g++-12"},
              "-lgone": set()}

    def complaints(self, installed, *paths):
        return check_packages.complaints({Use(path, "reader") for path in paths}, self.OWNERS,
                                         installed)

    def test_none_where_setup_installs_all(self):
        self.assertEqual(
            self.complaints({"libc6-dev", "g++-12"}, "/usr/include/c.h", "/usr/bin/g++"), [])

    def test_a_header_of_a_package_that_setup_does_not_install(self):
        self.assertEqual(
            self.complaints({"libc6-dev"}, "/usr/include/c.h", "/usr/include/rdma/rdma_cma.h"),
            ["librdmacm-dev: reader reads /usr/include/rdma/rdma_cma.h"])

    def test_a_library_that_no_package_has(self):
        self.assertEqual(self.complaints({"libc6-dev"}, "-lgone"),
                         ["no package: reader reads -lgone"])


class OwnersTest(unittest.TestCase):

    def test_the_package_of_a_file_by_either_spelling_and_through_links(self):
        shell = "/bin/sh"
        owners = check_packages.owners({shell, "/usr/bin/dash", "/usr/bin/no-such-program"})
        self.assertIn("dash", owners[shell])
        self.assertIn("dash", owners["/usr/bin/dash"])
        self.assertEqual(owners["/usr/bin/no-such-program"], set())


if __name__ == "__main__":
    unittest.main()
