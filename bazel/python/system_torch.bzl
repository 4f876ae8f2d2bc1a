"""Whether this machine has PyTorch, and what its extensions are called.

The repository holds config.bzl with
  TORCH_INCOMPATIBLE  for target_compatible_with: [] where PyTorch 1.13 is there for the
                      toolchain's Python, with its headers; otherwise what has wildcards
                      such as //... skip the target
  EXTENSION_SUFFIX    with which names of extension modules end, for this Python alone
  PYTHON_TAG          what wheels call this Python: cp311
//third_party:torch is what to depend on.
"""

# That of the toolchain in this folder.
_PYTHON = "/usr/bin/python3"

# Prints suffix and tag and, where it is there, the version: importing it would take
# seconds. Headers of another version would be another interface.
_PROBE = """
import importlib.util, os, sys, sysconfig
print(sysconfig.get_config_var('EXT_SUFFIX'))
print('cp%d%d' % sys.version_info[:2])
found = importlib.util.find_spec('torch')
headers = ('torch/csrc/distributed/c10d/ProcessGroup.hpp', 'pybind11/pybind11.h')
if found and all(os.path.exists('/usr/include/' + header) for header in headers):
    version = {}
    with open(os.path.join(os.path.dirname(found.origin), 'version.py')) as file:
        exec(file.read(), version)
    print(version['__version__'])
"""

def _system_torch_impl(repository_ctx):
    answer = repository_ctx.execute([_PYTHON, "-c", _PROBE])
    if answer.return_code != 0:
        fail("%s failed: %s" % (_PYTHON, answer.stderr))
    lines = answer.stdout.split("\n")
    found = lines[2].startswith("1.13.")
    repository_ctx.file("BUILD", "", executable = False)
    repository_ctx.file("config.bzl", """\"\"\"What was found on this machine.\"\"\"

TORCH_INCOMPATIBLE = %r
EXTENSION_SUFFIX = "%s"
PYTHON_TAG = "%s"
""" % ([] if found else ["@ringpipe//bazel:incompatible"], lines[0], lines[1]), executable = False)

system_torch = repository_rule(
    implementation = _system_torch_impl,
    # Run again whenever a server starts.
    local = True,
)
