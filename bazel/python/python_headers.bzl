"""A repository made of the headers of the system's Python, for extension modules, and of
the names that wheels and Debian's packages give this system."""

# That of the toolchain in this folder.
_PYTHON = "/usr/bin/python3"

_BUILD = """
load("@rules_cc//cc:cc_library.bzl", "cc_library")

# No library: an extension takes its symbols from the interpreter.
cc_library(
    name = "headers",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
    visibility = ["//visibility:public"],
)
"""

# Of the C library here, the oldest that what is linked with it is sure to run with.
_TAG = "import os; print('manylinux_' + os.confstr('CS_GNU_LIBC_VERSION').split()[1]" + \
       ".replace('.', '_') + '_' + os.uname().machine)"

# As "dpkg --print-architecture" has it, where there is a dpkg.
_ARCHITECTURE = "import os; name = os.uname().machine; " + \
                "print({'x86_64': 'amd64', 'aarch64': 'arm64'}.get(name, name))"

def _asked(repository_ctx, program):
    answer = repository_ctx.execute([_PYTHON, "-c", program])
    if answer.return_code != 0:
        fail("%s failed: %s" % (_PYTHON, answer.stderr))
    return answer.stdout.strip()

def _python_headers_impl(repository_ctx):
    include = repository_ctx.path(_asked(
        repository_ctx,
        "import sysconfig; print(sysconfig.get_path('include'))",
    ))
    if not include.get_child("Python.h").exists:
        fail("no Python.h in %s: apt-get install %s" %
             (include, repository_ctx.attr.apt_package))
    repository_ctx.symlink(include, "include")
    repository_ctx.file("BUILD", _BUILD, executable = False)
    repository_ctx.file(
        "platform.bzl",
        "WHEEL_PLATFORM = \"%s\"\nDEBIAN_ARCHITECTURE = \"%s\"\n" %
        (_asked(repository_ctx, _TAG), _asked(repository_ctx, _ARCHITECTURE)),
        executable = False,
    )

python_headers = repository_rule(
    implementation = _python_headers_impl,
    attrs = {"apt_package": attr.string(mandatory = True)},
    local = True,
)
