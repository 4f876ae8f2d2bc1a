"""cuda_library: a library with CUDA sources, for cc_* targets to depend on."""

load("@local_cuda//:config.bzl", "CUDA_PATH")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

# Machine code for each, and PTX of the last for later devices.  These are known
# to every nvcc from 12.0 to 13.
_ARCHITECTURES = [
    "80",
    "90",
]

_MODE_FLAGS = {
    "dbg": ["-O0", "-g", "-lineinfo"],
    "fastbuild": ["-O1"],
    "opt": ["-O3", "-DNDEBUG", "-lineinfo"],
}

def if_cuda(then, otherwise = []):
    """A select() for attributes of cc_* targets.

    Args:
      then: the value where CUDA is enabled.
      otherwise: the value where it is not.

    Returns:
      the select().
    """
    return select({
        "//bazel/cuda:enabled": then,
        "//conditions:default": otherwise,
    })

def _nvcc(ctx, source, compilation_context, cc_toolchain):
    """Compiles one source; returns the object file."""
    stem = source.basename[:-len(source.extension) - 1]
    output = ctx.actions.declare_file("_objs/%s/%s.o" % (ctx.label.name, stem))

    args = ctx.actions.args()
    args.add("-c", source)
    args.add("-o", output)
    args.add("-x", "cu")
    args.add("-std=c++20")
    args.add("-ccbin", cc_toolchain.compiler_executable)
    for arch in _ARCHITECTURES:
        args.add("-gencode=arch=compute_%s,code=sm_%s" % (arch, arch))
    args.add("-gencode=arch=compute_{0},code=compute_{0}".format(_ARCHITECTURES[-1]))
    args.add_all(_MODE_FLAGS[ctx.var["COMPILATION_MODE"]])

    # Not -Wpedantic: the C++ that nvcc generates is full of extensions.
    args.add_all(["-Xcompiler", "-Wall,-Wextra"])

    # Position independent, so that one object does for shared libraries too.
    args.add_all(["-Xcompiler", "-fPIC"])

    # The sanitizers of --config=asan and its like, for the host code.  With them
    # the host compiler's warnings are no errors, as in .bazelrc.
    sanitizers = [copt for copt in ctx.fragments.cpp.copts if copt.startswith("-fsanitize")]
    args.add_all(sanitizers, before_each = "-Xcompiler")
    if not sanitizers:
        args.add_all(["-Werror", "all-warnings"])

    args.add_all(compilation_context.defines, before_each = "-D")
    args.add_all(compilation_context.includes, before_each = "-I")
    args.add_all(compilation_context.quote_includes, before_each = "-I")
    args.add_all(compilation_context.system_includes, before_each = "-isystem")
    args.add_all(ctx.attr.copts)

    ctx.actions.run(
        # By its own path: from a link it doesn't find the rest of the toolkit.
        executable = CUDA_PATH + "/bin/nvcc",
        arguments = [args],
        inputs = depset(
            [source] + ctx.files._nvcc,
            transitive = [compilation_context.headers],
        ),
        outputs = [output],
        mnemonic = "CudaCompile",
        progress_message = "Compiling " + source.short_path,
        use_default_shell_env = True,
    )
    return output

def _cuda_library_impl(ctx):
    cc_toolchain = find_cc_toolchain(ctx)
    feature_configuration = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = [dep[CcInfo] for dep in ctx.attr.deps + [ctx.attr._cudart]]

    workspace_root = ctx.label.workspace_root or "."
    compilation_context = cc_common.merge_cc_infos(
        cc_infos = [
            CcInfo(
                compilation_context = cc_common.create_compilation_context(
                    defines = depset(ctx.attr.defines),
                    headers = depset(ctx.files.hdrs),
                    quote_includes = depset([workspace_root, ctx.bin_dir.path]),
                ),
            ),
        ] + deps,
    ).compilation_context
    objects = depset([
        _nvcc(ctx, source, compilation_context, cc_toolchain)
        for source in ctx.files.srcs
    ])
    linking_context, linking_outputs = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        cc_toolchain = cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = objects,
            pic_objects = objects,
        ),
        disallow_dynamic_library = True,
        feature_configuration = feature_configuration,
        linking_contexts = [dep.linking_context for dep in deps],
    )
    library = linking_outputs.library_to_link
    return [
        CcInfo(
            compilation_context = compilation_context,
            linking_context = linking_context,
        ),
        DefaultInfo(files = depset([
            archive
            for archive in [library.static_library, library.pic_static_library]
            if archive
        ])),
    ]

_cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "copts": attr.string_list(doc = "further options for nvcc"),
        "defines": attr.string_list(doc = "macros, for dependents too"),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".cuh", ".h", ".hpp"]),
        "srcs": attr.label_list(allow_files = [".cu"]),
        "_cc_toolchain": attr.label(
            default = Label("@rules_cc//cc:current_cc_toolchain"),
        ),
        "_cudart": attr.label(
            default = Label("@local_cuda//:cudart_static"),
            providers = [CcInfo],
        ),
        "_nvcc": attr.label(
            allow_files = True,
            cfg = "exec",
            default = Label("@local_cuda//:nvcc"),
        ),
    },
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)

def cuda_library(name, **kwargs):
    """A library with CUDA sources; wildcards skip it where CUDA is disabled.

    Depend on it through if_cuda(), so that nothing asks for it there.

    Args:
      name: the target's name.
      **kwargs: attributes: srcs, hdrs, deps, defines, copts and the usual ones.
    """
    _cuda_library(
        name = name,
        target_compatible_with = select({
            "//bazel/cuda:enabled": [],
            "//conditions:default": ["//bazel:incompatible"],
        }),
        **kwargs
    )
