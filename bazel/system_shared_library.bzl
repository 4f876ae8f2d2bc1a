"""A repository made of one shared library that is installed on this machine."""

def _system_shared_library_impl(repository_ctx):
    soname = repository_ctx.attr.soname
    found = None

    # The compiler driver answers with the bare name where it finds nothing.
    compiler = repository_ctx.which("cc")
    if compiler:
        answer = repository_ctx.execute([compiler, "-print-file-name=" + soname])
        path = answer.stdout.strip()
        if path.startswith("/"):
            found = repository_ctx.path(path)
    if not found or not found.exists:
        fail("%s was not found: apt-get install %s" %
             (soname, repository_ctx.attr.apt_package))
    repository_ctx.symlink(found.realpath, soname)
    repository_ctx.file("BUILD", "exports_files([\"%s\"])\n" % soname)

system_shared_library = repository_rule(
    implementation = _system_shared_library_impl,
    attrs = {
        "apt_package": attr.string(mandatory = True),
        "soname": attr.string(mandatory = True),
    },
    local = True,
)
