"""What needs the CUDA toolkit: tests that compare with it."""

# For target_compatible_with: wildcards skip the target where there is no toolkit.
NEEDS_CUDA = select({
    "//bazel/cuda:enabled": [],
    "//conditions:default": ["//bazel:incompatible"],
})
