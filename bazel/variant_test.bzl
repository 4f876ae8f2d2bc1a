"""A test that runs another test's program, in another environment."""

def _variant_test_impl(ctx):
    program = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(
        output = program,
        target_file = ctx.executable.of,
        is_executable = True,
    )
    return [
        DefaultInfo(
            executable = program,
            runfiles = ctx.attr.of[DefaultInfo].default_runfiles,
        ),
        coverage_common.instrumented_files_info(ctx, dependency_attributes = ["of"]),
        testing.TestEnvironment(ctx.attr.env),
    ]

# Neither compiles nor links anything. Size, shards and tags are its own.
variant_test = rule(
    implementation = _variant_test_impl,
    test = True,
    attrs = {
        "env": attr.string_dict(mandatory = True),
        "of": attr.label(
            cfg = "target",
            executable = True,
            mandatory = True,
        ),
    },
)
