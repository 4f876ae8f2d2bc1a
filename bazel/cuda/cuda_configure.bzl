"""Finds the CUDA toolkit of this machine.

The repository holds
  config.bzl          CUDA_FOUND, CUDA_PATH
  //:cudart_static    the runtime's headers and static library
  //:nvcc             the compiler, so that another one rebuilds
Where there is no toolkit, the targets are empty.

The toolkit is looked for in $CUDA_HOME, then in /usr/local/cuda.
"""

# Major versions whose nvcc does not know the language of the sources.
_WITHOUT_CXX20 = ["9", "10", "11"]

_FOUND = """
load("@rules_cc//cc:cc_library.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "cudart_static",
    srcs = ["lib/libcudart_static.a"],
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/crt/**",
    ]),
    includes = ["include"],
    linkopts = [
        "-ldl",
        "-lpthread",
        "-lrt",
    ],
)

filegroup(
    name = "nvcc",
    srcs = ["bin/nvcc"],
)
"""

_NOT_FOUND = """
load("@rules_cc//cc:cc_library.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(name = "cudart_static")

filegroup(name = "nvcc")
"""

def _find_toolkit(repository_ctx):
    """Returns the toolkit's folder and its libcudart_static.a, or Nones."""
    root = repository_ctx.os.environ.get("CUDA_HOME", "") or "/usr/local/cuda"
    if repository_ctx.path(root + "/bin/nvcc").exists:
        for lib in ["lib64", "lib", "targets/x86_64-linux/lib"]:
            cudart = "%s/%s/libcudart_static.a" % (root, lib)
            if repository_ctx.path(cudart).exists:
                return root, cudart
    return None, None

def _cuda_configure_impl(repository_ctx):
    root, cudart = _find_toolkit(repository_ctx)
    if not root and repository_ctx.os.environ.get("CUDA_HOME"):
        # buildifier: disable=print
        print("no CUDA toolkit in $CUDA_HOME (%s): building without" %
              repository_ctx.os.environ["CUDA_HOME"])
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
        repository_ctx.symlink(cudart, "lib/libcudart_static.a")
        repository_ctx.symlink(root + "/bin/nvcc", "bin/nvcc")
    repository_ctx.file("BUILD", _FOUND if root else _NOT_FOUND, executable = False)
    repository_ctx.file("config.bzl", """\"\"\"What was found of CUDA on this machine.\"\"\"

CUDA_FOUND = %s
CUDA_PATH = "%s"
""" % (bool(root), root or ""), executable = False)

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["CUDA_HOME"],
    # Run again whenever a server starts, and on a change of CUDA_HOME.
    local = True,
)
