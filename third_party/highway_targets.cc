// What Highway's headers want of its library: which instruction sets the CPU
// has. Debian has that library as a shared one alone, which a program that is
// copied to another machine would not find there.
#include <atomic>
#include <cstdint>

#include "hwy/targets.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace hwy {
namespace {

// SetSupportedTargetsForTest's; 0: the CPU's.
std::atomic<std::int64_t> for_test{0};

#if HWY_ARCH_X86
// Not by __builtin_cpu_supports: clang 14 does not know the name. That the
// system keeps its registers is what "avx" says.
bool HasF16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

// Those that the CPU and the operating system support, beside the one that the
// compiler's flags take for granted.
std::int64_t Detect() {
  std::int64_t targets = 0;
#if HWY_ARCH_X86
  // What the headers tell the compiler of each (ops/set_macros-inl.h).
  // AVX3_DL, which nobody here asks for, is left out.
  const bool ssse3 =
      __builtin_cpu_supports("sse2") && __builtin_cpu_supports("ssse3");
  const bool sse4 = ssse3 && __builtin_cpu_supports("sse4.1") &&
                    __builtin_cpu_supports("sse4.2") &&
                    __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("aes");
  const bool avx2 =
      sse4 && __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
      __builtin_cpu_supports("fma") && HasF16c();
  const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512bw");
  targets |= ssse3 ? HWY_SSSE3 : 0;
  targets |= sse4 ? HWY_SSE4 : 0;
  targets |= avx2 ? HWY_AVX2 : 0;
  targets |= avx3 ? HWY_AVX3 : 0;
#endif
  return targets;
}

}  // namespace

std::int64_t SupportedTargets() {
  const std::int64_t test = for_test.load();
  return test != 0 ? test : Detect() | HWY_STATIC_TARGET;
}

void SetSupportedTargetsForTest(std::int64_t targets) { for_test = targets; }

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
