"""An aspect that checks the C++ sources of targets with clang-tidy.

    bazel build --config=tidy //...

Targets with the tag "no_tidy" are left out.

An action a source, so that Bazel checks again only what has changed, and a disk cache
holds for it too.
"""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

# The names of the actions, by which the toolchain knows flags.
_COMPILE = {"c": "c-compile", "cc": "c++-compile"}

def _compiler_flags(ctx, source, compilation_context):
    """The flags with which the toolchain would compile a source."""
    cc_toolchain = find_cc_toolchain(ctx)
    options = ctx.fragments.cpp.copts + (
        ctx.fragments.cpp.cxxopts if source.extension == "cc" else []
    )
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    return cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = _COMPILE[source.extension],
        variables = cc_common.create_compile_variables(
            cc_toolchain = cc_toolchain,
            feature_configuration = features,
            include_directories = compilation_context.includes,
            preprocessor_defines = compilation_context.defines,
            quote_include_directories = compilation_context.quote_includes,
            source_file = source.path,
            system_include_directories = compilation_context.system_includes,
            user_compile_flags = options + ctx.rule.attr.copts,
        ),
    )

def _check(ctx, target, source, compilation_context, headers):
    """Checks one source; returns the file that says so."""
    stamp = ctx.actions.declare_file("_tidy/%s/%s.tidy" % (target.label.name, source.basename))
    ctx.actions.run(
        executable = ctx.file._script,
        arguments = [stamp.path, source.path] +
                    _compiler_flags(ctx, source, compilation_context),
        inputs = depset(
            [source, ctx.file._configuration] + headers,
            transitive = [compilation_context.headers],
        ),
        outputs = [stamp],
        mnemonic = "ClangTidy",
        progress_message = "Checking " + source.short_path,
        use_default_shell_env = True,
    )
    return stamp

def _clang_tidy_impl(target, ctx):
    # Not what other people wrote (external repositories), nor what is generated.
    files = getattr(ctx.rule.files, "srcs", [])
    sources = [f for f in files if f.extension in _COMPILE and f.is_source]
    if (target.label.workspace_name or not sources or not hasattr(ctx.rule.attr, "copts") or
        "no_tidy" in ctx.rule.attr.tags):
        return [OutputGroupInfo(clang_tidy = depset())]

    # A program has no compilation context of its own: what its dependencies have, and
    # the root of the workspace.
    own = cc_common.create_compilation_context(
        headers = depset(getattr(ctx.rule.files, "hdrs", [])),
        quote_includes = depset([".", ctx.bin_dir.path]),
    )
    infos = [dep[CcInfo] for dep in ctx.rule.attr.deps if CcInfo in dep]
    compilation_context = cc_common.merge_cc_infos(
        cc_infos = [CcInfo(compilation_context = own)] + infos,
    ).compilation_context
    headers = [f for f in files if f.extension not in _COMPILE]
    return [OutputGroupInfo(clang_tidy = depset([
        _check(ctx, target, source, compilation_context, headers)
        for source in sources
    ]))]

clang_tidy = aspect(
    implementation = _clang_tidy_impl,
    attrs = {
        "_cc_toolchain": attr.label(
            default = Label("@rules_cc//cc:current_cc_toolchain"),
        ),
        "_configuration": attr.label(
            allow_single_file = True,
            default = Label("//:.clang-tidy"),
        ),
        "_script": attr.label(
            allow_single_file = True,
            default = Label("//bazel/clang_tidy:clang_tidy.sh"),
        ),
    },
    fragments = ["cpp"],
    toolchains = use_cc_toolchain(),
)
