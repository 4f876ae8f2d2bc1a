"""A directory with one shared library under several names."""

def _drop_in_directory_impl(ctx):
    links = []
    for name in ctx.attr.names:
        # Links, as installed: a program that loads the library by both names
        # must get one library, not two.
        link = ctx.actions.declare_file(ctx.attr.directory + "/" + name)
        ctx.actions.symlink(output = link, target_file = ctx.file.library)
        links.append(link)
    files = depset(links)
    runfiles = ctx.runfiles(files = links + [ctx.file.library])
    return [DefaultInfo(files = files, runfiles = runfiles)]

drop_in_directory = rule(
    implementation = _drop_in_directory_impl,
    attrs = {
        "directory": attr.string(mandatory = True),
        "library": attr.label(mandatory = True, allow_single_file = True),
        "names": attr.string_list(mandatory = True),
    },
)
