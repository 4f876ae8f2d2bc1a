"""released: programs and libraries as they are handed out."""

_COPT = "//command_line_option:copt"
_LINKOPT = "//command_line_option:linkopt"

def _release_impl(settings, _attr):
    if any([option.startswith("-fsanitize") for option in settings[_COPT]]):
        return settings
    return {
        # Optimised across sources, which takes a tenth of the time off short calls
        # (bench/README.md), and too long for the links of all tests. It also finds what
        # no compiler of one source does: two types of one name.
        _COPT: settings[_COPT] + ["-g0", "-flto=auto"],
        _LINKOPT: settings[_LINKOPT] + [
            "-flto=auto",
            "-O2",
            "-Werror=odr",
            "-Werror=lto-type-mismatch",
            # With several partitions the linker (gold) loses inline functions of shared
            # libraries, and what __builtin_cpu_supports needs it looks for too early.
            "-flto-partition=one",
            # GCC errs here about strings that are shorter than a string holds in itself.
            "-Wno-stringop-overread",
            # Without the lines: half of the size.
            "-Wl,--strip-debug",
        ],
    }

_release = transition(
    implementation = _release_impl,
    inputs = [_COPT, _LINKOPT],
    outputs = [_COPT, _LINKOPT],
)

def _released_impl(ctx):
    return [DefaultInfo(
        files = depset(ctx.files.of),
        runfiles = ctx.runfiles(files = ctx.files.of),
    )]

# The files of other targets, built so; with sanitizers they are as they would be anyway.
released = rule(
    implementation = _released_impl,
    attrs = {
        "of": attr.label_list(
            cfg = _release,
            mandatory = True,
        ),
        "_allowlist_function_transition": attr.label(
            default = Label("@bazel_tools//tools/allowlists/function_transition_allowlist"),
        ),
    },
)
