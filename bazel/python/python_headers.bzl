"""A repository made of the headers of the system's Python, for extension modules."""

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

def _python_headers_impl(repository_ctx):
    answer = repository_ctx.execute([
        _PYTHON,
        "-c",
        "import sysconfig; print(sysconfig.get_path('include'))",
    ])
    if answer.return_code != 0:
        fail("%s failed: %s" % (_PYTHON, answer.stderr))
    include = repository_ctx.path(answer.stdout.strip())
    if not include.get_child("Python.h").exists:
        fail("no Python.h in %s: apt-get install %s" %
             (include, repository_ctx.attr.apt_package))
    repository_ctx.symlink(include, "include")
    repository_ctx.file("BUILD", _BUILD, executable = False)

python_headers = repository_rule(
    implementation = _python_headers_impl,
    attrs = {"apt_package": attr.string(mandatory = True)},
    local = True,
)
