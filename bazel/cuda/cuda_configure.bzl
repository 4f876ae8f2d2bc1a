"""Finds the CUDA toolkit of this machine, which only tests use.

The repository holds
  config.bzl     CUDA_FOUND
  //:headers     cuda.h
  //:nvcc        the compiler
Where there is no toolkit, the targets are empty.

The toolkit is looked for in $CUDA_HOME, then in /usr/local/cuda.
"""

# Major versions whose nvcc does not know the language of the sources.
_WITHOUT_CXX20 = ["9", "10", "11"]

_FOUND = """
load("@rules_cc//cc:cc_library.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/crt/**",
    ]),
    includes = ["include"],
)

filegroup(
    name = "nvcc",
    srcs = ["bin/nvcc"],
)
"""

_NOT_FOUND = """
load("@rules_cc//cc:cc_library.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(name = "headers")

filegroup(name = "nvcc")
"""

def _cuda_configure_impl(repository_ctx):
    home = repository_ctx.os.environ.get("CUDA_HOME", "")
    root = home or "/usr/local/cuda"
    if not repository_ctx.path(root + "/bin/nvcc").exists:
        root = None
        if home:
            # buildifier: disable=print
            print("no CUDA toolkit in $CUDA_HOME (%s): building without" % home)
    if root:
        result = repository_ctx.execute([root + "/bin/nvcc", "--version"])
        if result.return_code != 0:
            fail("nvcc --version failed: " + result.stderr)
        version = result.stdout.partition("release ")[2].partition(",")[0]
        if version.partition(".")[0] in _WITHOUT_CXX20:
            # buildifier: disable=print
            print("the CUDA toolkit in %s is %s, and 12.0 or later is needed: building without" %
                  (root, version))
            root = None
    if root:
        repository_ctx.symlink(root + "/include", "include")
        repository_ctx.symlink(root + "/bin/nvcc", "bin/nvcc")
    repository_ctx.file("BUILD", _FOUND if root else _NOT_FOUND, executable = False)
    repository_ctx.file("config.bzl", """\"\"\"What was found of CUDA on this machine.\"\"\"

CUDA_FOUND = %s
""" % bool(root), executable = False)

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["CUDA_HOME"],
    # Run again whenever a server starts, and on a change of CUDA_HOME.
    local = True,
)
