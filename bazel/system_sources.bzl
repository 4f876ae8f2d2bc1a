"""A repository made of a source tree that is installed on this machine."""

def _system_sources_impl(repository_ctx):
    root = repository_ctx.path(repository_ctx.attr.path)
    if not root.exists:
        fail("%s does not exist: apt-get install %s" % (root, repository_ctx.attr.apt_package))
    for entry in root.readdir():
        repository_ctx.symlink(entry, entry.basename)
    repository_ctx.symlink(repository_ctx.attr.build_file, "BUILD")

system_sources = repository_rule(
    implementation = _system_sources_impl,
    attrs = {
        "apt_package": attr.string(mandatory = True),
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "path": attr.string(mandatory = True),
    },
    local = True,
)
