"""Sources with a mistake, which a test has to notice."""

load("@rules_cc//cc:cc_binary.bzl", "cc_binary")
load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("@rules_shell//shell:sh_test.bzl", "sh_test")

_SOURCES = [
    "cuda_accelerator.cc",
    "cuda_error.cc",
    "cuda_stream_mark.cc",
    "reduce_kernels.cc",
]
_HEADERS = [
    "cuda_context.h",
    "cuda_error.h",
    "cuda_lane.h",
    "cuda_stream_mark.h",
    "reduce_kernels.h",
]
_PTX = "//cuda/kernels:reduce.ptx"

def _test(name, unchanged, noticed_by, says, env):
    sh_test(
        name = name + "_test",
        size = "small",
        srcs = ["mutant_test.sh"],
        args = [
            "$(location :%s_program)" % name,
            "$(location %s)" % unchanged,
            noticed_by,
            "'%s'" % says,
        ],
        data = [
            ":" + name + "_program",
            unchanged,
            "//cuda/fake_driver:libcuda.so.1",
        ],
        env = dict(
            env,
            FAKE_CUDA_SEED = "1",
            LD_LIBRARY_PATH = "cuda/fake_driver",
        ),
        tags = ["no_sanitizer"],
    )

def mutant_of(name, sources, cases, unchanged, noticed_by, says):
    """NAME_test passes if the test `noticed_by` fails with NAME.patch, and not without.

    A patch that does not apply, or makes what does not compile, fails the build, and so
    NAME_test too.

    Args:
      name: of the patch, and of what is made of it.
      sources: labels of the files that the patch changes: sources of libraries on
          which `cases` depends. They are linked before these libraries, of which the
          same objects then stay out.
      cases: a library of tests.
      unchanged: the program of these tests without the patch.
      noticed_by: one of the tests.
      says: a text without a single quote that this test prints when it fails, or before
          it hangs, by the mistake, and not when it fails otherwise. "hangs": it does not
          end, and prints nothing.
    """
    patch = name + ".patch"
    paths = {source: source[2:].replace(":", "/") for source in sources}
    changed = [name + "/" + path for path in paths.values()]
    native.genrule(
        name = name + "_sources",
        testonly = True,
        srcs = [patch] + sources,
        outs = changed,
        cmd = " && ".join(
            ["patch=$$PWD/$(location %s)" % patch, "work=$$(mktemp -d)"] +
            [
                "mkdir -p $$(dirname $$work/%s) && cp $(location %s) $$work/%s" % (path, source, path)
                for source, path in paths.items()
            ] +
            ["(cd $$work && GIT_CEILING_DIRECTORIES=/ git apply $$patch)"] +
            ["cp $$work/%s $(location %s/%s)" % (path, name, path) for path in paths.values()] +
            ["rm -r $$work"],
        ),
    )
    cc_binary(
        name = name + "_program",
        testonly = True,
        srcs = changed,
        tags = ["no_sanitizer"],
        deps = [cases],
    )
    _test(name, unchanged, noticed_by, says, {})

def mutant(name, noticed_by, says, delay_us = 20):
    """The same of CUDA's accelerator, whose headers and kernels a patch may change too.

    Args:
      name: of the patch, and of what is made of it.
      noticed_by: a test of //cuda:cuda_accelerator_test.
      says: as above.
      delay_us: FAKE_CUDA_DELAY_US. Where the test and the device race, so much that
          the device is later on a busy machine too.
    """
    patch = name + ".patch"
    sources = [name + "/" + source for source in _SOURCES]

    # Where an include of "cuda/..." looks: the originals are not in the sandbox.
    headers = [name + "/cuda/" + header for header in _HEADERS]
    ptx = name + "/reduce_ptx.cc"
    native.genrule(
        name = name + "_sources",
        testonly = True,
        srcs = [patch, _PTX] +
               ["//cuda:" + file for file in _SOURCES + _HEADERS],
        outs = sources + headers + [ptx],
        cmd = " && ".join(
            [
                "patch=$$PWD/$(location %s)" % patch,
                "work=$$(mktemp -d)",
                "mkdir -p $$work/cuda/kernels",
                "cp %s $$work/cuda" % " ".join([
                    "$(location //cuda:%s)" % file
                    for file in _SOURCES + _HEADERS
                ]),
                "cp $(location %s) $$work/cuda/kernels" % _PTX,
                "(cd $$work && GIT_CEILING_DIRECTORIES=/ git apply $$patch)",
            ] +
            ["cp $$work/cuda/%s $(location %s/%s)" % (s, name, s) for s in _SOURCES] +
            ["cp $$work/cuda/%s $(location %s/cuda/%s)" % (h, name, h) for h in _HEADERS] +
            [
                "$(location //cuda/kernels:embed_ptx) $$work/cuda/kernels/reduce.ptx > $(location %s)" % ptx,
                "rm -r $$work",
            ],
        ),
        tools = ["//cuda/kernels:embed_ptx"],
    )
    cc_library(
        name = name + "_accelerator",
        testonly = True,
        srcs = sources + headers + [ptx],
        copts = [
            "-iquote$(GENDIR)/cuda/mutants/" + name,
            "-Wno-unused-but-set-variable",
            "-Wno-unused-function",
        ],
        tags = ["no_sanitizer"],
        deps = [
            "//base:deadline",
            "//base:status",
            "//cuda:accelerator_interface",
            "//cuda:cuda_memory",
            "//cuda/kernels:reduce_ptx_interface",
            "//reduction:data_type",
        ],
    )
    cc_binary(
        name = name + "_program",
        testonly = True,
        tags = ["no_sanitizer"],
        deps = [
            "//cuda:cuda_accelerator_test_cases",
            # In this order: the cases need the accelerator.
            ":" + name + "_accelerator",
        ],
    )
    _test(
        name,
        "//cuda:cuda_accelerator_test",
        noticed_by,
        says,
        {"FAKE_CUDA_DELAY_US": str(delay_us)},
    )
