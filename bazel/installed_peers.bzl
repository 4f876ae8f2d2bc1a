"""Which of the libraries that ringpipe is compared with this machine has.

The repository holds config.bzl with
  INSTALLED           {name: whether it was found}, for the names of _PROBES
bench/peers has a program for each; where a library is not found it is not built.
"""

# What has to compile: (compiler, language, header).
_PROBES = {
    "gloo": ("c++", "c++", "gloo/allreduce.h"),
    "mpich": ("mpicc.mpich", "c", "mpi.h"),
    "openmpi": ("mpicc.openmpi", "c", "mpi.h"),
}

def _installed_peers_impl(repository_ctx):
    installed = {}
    for name, (compiler, language, header) in _PROBES.items():
        path = repository_ctx.which(compiler)
        source = name + ".probe"
        repository_ctx.file(source, "#include <%s>\n" % header, executable = False)
        installed[name] = bool(path) and repository_ctx.execute(
            [path, "-fsyntax-only", "-x", language, source],
        ).return_code == 0
    repository_ctx.file("BUILD", "", executable = False)
    repository_ctx.file("config.bzl", """\"\"\"What was found on this machine.\"\"\"

INSTALLED = %r
""" % installed, executable = False)

installed_peers = repository_rule(
    implementation = _installed_peers_impl,
    # Run again whenever a server starts.
    local = True,
)
