#include "cuda/fake_driver/interpreter.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cuda/fake_driver/ptx.h"
#include "gtest/gtest.h"

namespace fake_cuda {
namespace {

constexpr Address kBase = 0x1000;

// The text of a module with one kernel, k(data).
std::string ModuleOf(const std::string& body) {
  return ".version 6.0\n.target sm_50\n.address_size 64\n"
         ".visible .entry k(\n\t.param .u64 k_param_0\n)\n{\n"
         "\t.reg .pred %p<9>;\n\t.reg .b16 %rs<9>;\n\t.reg .b32 %r<9>;\n"
         "\t.reg .f32 %f<9>;\n\t.reg .b64 %rd<9>;\n\t.reg .f64 %fd<9>;\n"
         "\tld.param.u64 %rd0, [k_param_0];\n" +
         body + "\tret;\n\n}\n";
}

// Runs a kernel on `words`, which the device has at kBase.
void RunBody(const std::string& body, std::vector<std::uint32_t>& words,
             Interpreter::Shape shape = {1, 1}) {
  const auto kernels = ParsePtx(ModuleOf(body));
  std::vector<unsigned char> parameters(8);
  std::memcpy(parameters.data(), &kBase, 8);
  auto* const bytes = reinterpret_cast<unsigned char*>(words.data());
  const Window window = {kBase, kBase + 4 * words.size(), bytes};
  Interpreter(kernels.at("k"), shape, parameters, [&](Address) {
    return window;
  }).Run();
}

// The result of a body that leaves it in %r0.
std::uint32_t ResultOf(const std::string& body, std::uint32_t a = 0,
                       std::uint32_t b = 0) {
  std::vector<std::uint32_t> words = {a, b, 0};
  RunBody("ld.u32 %r1, [%rd0];\nld.u32 %r2, [%rd0+4];\n" + body +
              "st.u32 [%rd0+8], %r0;\n",
          words);
  return words[2];
}

float FloatOf(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t BitsOf(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

TEST(InterpreterTest, IntegersWrapAround) {
  EXPECT_EQ(ResultOf("add.s32 %r0, %r1, %r2;\n", 0x7fffffff, 1), 0x80000000);
  EXPECT_EQ(ResultOf("sub.s32 %r0, %r1, %r2;\n", 0, 1), 0xffffffff);
  EXPECT_EQ(ResultOf("mul.lo.s32 %r0, %r1, %r2;\n", 0x10000, 0x10001), 0x10000);
}

TEST(InterpreterTest, QuotientsAreTruncatedAndSignedOnesAreSigned) {
  EXPECT_EQ(ResultOf("div.s32 %r0, %r1, %r2;\n", -7u, 2), -3u);
  EXPECT_EQ(ResultOf("div.u32 %r0, %r1, %r2;\n", -7u, 2), 0x7ffffffc);
  EXPECT_EQ(ResultOf("rem.s32 %r0, %r1, %r2;\n", -7u, 2), -1u);
  EXPECT_EQ(ResultOf("div.s32 %r0, %r1, %r2;\n", 0x80000000, -1u), 0x80000000);
}

TEST(InterpreterTest, MinimumAndMaximumKnowSigns) {
  EXPECT_EQ(ResultOf("min.s32 %r0, %r1, %r2;\n", -1u, 1), -1u);
  EXPECT_EQ(ResultOf("min.u32 %r0, %r1, %r2;\n", -1u, 1), 1u);
  EXPECT_EQ(ResultOf("max.s32 %r0, %r1, %r2;\n", -1u, 1), 1u);
}

TEST(InterpreterTest, ShiftsGoNoFurtherThanTheWidth) {
  EXPECT_EQ(ResultOf("shl.b32 %r0, %r1, %r2;\n", 1, 31), 0x80000000);
  EXPECT_EQ(ResultOf("shl.b32 %r0, %r1, %r2;\n", 1, 32), 0u);
  EXPECT_EQ(ResultOf("shr.u32 %r0, %r1, %r2;\n", 0x80000000, 31), 1u);
  EXPECT_EQ(ResultOf("shr.u32 %r0, %r1, %r2;\n", 0x80000000, 40), 0u);
  EXPECT_EQ(ResultOf("shr.s32 %r0, %r1, %r2;\n", 0x80000000, 40), -1u);
}

TEST(InterpreterTest, BitFieldsAreExtendedByTheirSign) {
  EXPECT_EQ(ResultOf("bfe.u32 %r0, %r1, 8, 8;\n", 0x0000ff00), 0xffu);
  EXPECT_EQ(ResultOf("bfe.s32 %r0, %r1, 8, 8;\n", 0x0000ff00), -1u);
  EXPECT_EQ(ResultOf("bfe.s32 %r0, %r1, 8, 8;\n", 0x00007f00), 0x7fu);
  EXPECT_EQ(ResultOf("bfe.s32 %r0, %r1, 28, 8;\n", 0x80000000), -8u);
}

TEST(InterpreterTest, ConversionsExtendAndTruncate) {
  EXPECT_EQ(ResultOf("cvt.s16.s8 %rs1, %r1;\ncvt.s32.s16 %r0, %rs1;\n", 0xff),
            -1u);
  EXPECT_EQ(
      ResultOf("cvt.u16.u32 %rs1, %r1;\ncvt.u32.u16 %r0, %rs1;\n", 0x12345678),
      0x5678u);
  EXPECT_EQ(ResultOf("cvt.rn.f32.s32 %f1, %r1;\nmov.b32 %r0, %f1;\n", -3u),
            BitsOf(-3.0f));
}

TEST(InterpreterTest, FloatsAreRoundedToNearestAndKeepDenormals) {
  const std::string load = "ld.f32 %f1, [%rd0];\nld.f32 %f2, [%rd0+4];\n";
  const std::string store = "mov.b32 %r0, %f0;\n";
  EXPECT_EQ(FloatOf(ResultOf(load + "add.rn.f32 %f0, %f1, %f2;\n" + store,
                             BitsOf(16777216.0f), BitsOf(1.0f))),
            16777216.0f);
  const float denormal = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(FloatOf(ResultOf(load + "add.rn.f32 %f0, %f1, %f2;\n" + store,
                             BitsOf(denormal), BitsOf(denormal))),
            2 * denormal);
  EXPECT_EQ(FloatOf(ResultOf(load + "div.rn.f32 %f0, %f1, %f2;\n" + store,
                             BitsOf(1.0f), BitsOf(3.0f))),
            1.0f / 3.0f);
}

TEST(InterpreterTest, NanOfSinglePrecisionIsTheCanonicalOne) {
  EXPECT_EQ(ResultOf("ld.f32 %f1, [%rd0];\nadd.rn.f32 %f0, %f1, %f1;\n"
                     "mov.b32 %r0, %f0;\n",
                     0xffc12345),
            0x7fffffffu);
}

TEST(InterpreterTest, ComparisonsKnowNan) {
  const auto holds = [](const std::string& compare, float a, float b) {
    return ResultOf("ld.f32 %f1, [%rd0];\nld.f32 %f2, [%rd0+4];\nsetp." +
                        compare +
                        ".f32 %p1, %f1, %f2;\nselp.b32 %r0, 1, 0, %p1;\n",
                    BitsOf(a), BitsOf(b)) == 1;
  };
  const float nan = std::nanf("");
  EXPECT_TRUE(holds("lt", 1, 2));
  EXPECT_FALSE(holds("lt", nan, 2));
  EXPECT_TRUE(holds("ltu", nan, 2));
  EXPECT_FALSE(holds("ne", nan, nan));
  EXPECT_TRUE(holds("neu", nan, nan));
  EXPECT_TRUE(holds("nan", 1, nan));
  EXPECT_FALSE(holds("num", 1, nan));
}

TEST(InterpreterTest, ThreadsThatPartMeetAgain) {
  // Even threads write 2 t, odd ones 3 t; then each adds 1.
  std::vector<std::uint32_t> words(64);
  RunBody(
      "mov.u32 %r1, %tid.x;\nmov.u32 %r5, %ctaid.x;\nmov.u32 %r6, %ntid.x;\n"
      "mul.lo.s32 %r5, %r5, %r6;\nadd.s32 %r1, %r1, %r5;\n"
      "and.b32 %r2, %r1, 1;\nsetp.eq.s32 %p1, %r2, 0;\n"
      "@%p1 bra EVEN;\n"
      "mul.lo.s32 %r3, %r1, 3;\nbra.uni BOTH;\n"
      "EVEN:\nmul.lo.s32 %r3, %r1, 2;\n"
      "BOTH:\n@!%p1 add.s32 %r3, %r3, 1;\n@%p1 add.s32 %r3, %r3, 1;\n"
      "mul.wide.u32 %rd1, %r1, 4;\nadd.s64 %rd2, %rd0, %rd1;\n"
      "st.u32 [%rd2], %r3;\n",
      words, {4, 16});
  for (std::uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(words[i], (i % 2 == 0 ? 2 * i : 3 * i) + 1) << i;
  }
}

TEST(InterpreterTest, VectorsAreReadAndWrittenWhole) {
  std::vector<std::uint32_t> words = {1, 2, 3, 4, 0, 0, 0, 0};
  RunBody(
      "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0];\n"
      "st.global.v4.u32 [%rd0+16], {%r4, %r3, %r2, %r1};\n",
      words);
  EXPECT_EQ(words, (std::vector<std::uint32_t>{1, 2, 3, 4, 4, 3, 2, 1}));
}

// The error of a fault.
Result FaultOf(const std::string& body) {
  std::vector<std::uint32_t> words(4);
  try {
    RunBody(body, words);
  } catch (const Fault& fault) {
    return fault.error;
  }
  return kSuccess;
}

TEST(InterpreterTest, AccessesAreAlignedAndWithinMemory) {
  EXPECT_EQ(FaultOf("ld.u32 %r1, [%rd0+12];\n"), kSuccess);
  EXPECT_EQ(FaultOf("ld.u32 %r1, [%rd0+16];\n"), kIllegalAddress);
  EXPECT_EQ(FaultOf("ld.u64 %rd1, [%rd0+16];\n"), kIllegalAddress);
  EXPECT_EQ(FaultOf("st.u8 [%rd0+-1], %r1;\n"), kIllegalAddress);
  EXPECT_EQ(FaultOf("ld.u32 %r1, [%rd0+2];\n"), kMisalignedAddress);
  EXPECT_EQ(FaultOf("ld.v2.u32 {%r1, %r2}, [%rd0+4];\n"), kMisalignedAddress);
  EXPECT_EQ(FaultOf("ld.param.u64 %rd1, [k_param_0+8];\n"), kIllegalAddress);
}

TEST(InterpreterTest, WhatIsNotKnownIsAnErrorAndNotSkipped) {
  for (const char* const statement :
       {"bar.sync 0;\n", "add.sat.s32 %r0, %r1, %r2;\n",
        "add.ftz.f32 %f0, %f1, %f2;\n", "add.rz.f32 %f0, %f1, %f2;\n",
        "div.approx.f32 %f0, %f1, %f2;\n", "div.f32 %f0, %f1, %f2;\n",
        "fma.rn.f32 %f0, %f1, %f2, %f1;\n", "ld.shared.u32 %r1, [%rd0];\n",
        "ld.volatile.u32 %r1, [%rd0];\n", "mul.hi.s32 %r0, %r1, %r2;\n",
        "cvt.rzi.s32.f32 %r0, %f1;\n", "add.s32 %r0, %r1, %r99;\n",
        "add.s32 %r0, %r1;\n", "mov.u32 %r0, %clock;\n", "bra NOWHERE;\n",
        "min.f32 %f0, %f1, %f2;\n", "atom.add.u32 %r0, [%rd0], %r1;\n"}) {
    EXPECT_THROW(ParsePtx(ModuleOf(statement)), UnknownPtx) << statement;
  }
  EXPECT_NO_THROW(ParsePtx(ModuleOf("add.s32 %r0, %r1, %r2;\n")));
}

TEST(InterpreterTest, ModulesForNewerDevicesAndOtherDirectivesAreRefused) {
  std::string text = ModuleOf("");
  text.replace(text.find("sm_50"), 5, "sm_100");
  EXPECT_THROW(ParsePtx(text), UnknownPtx);
  text = ModuleOf("");
  text.replace(text.find("6.0"), 3, "9.9");
  EXPECT_THROW(ParsePtx(text), UnknownPtx);
  EXPECT_THROW(ParsePtx(ModuleOf("") + ".func f() { ret; }\n"), UnknownPtx);
}

}  // namespace
}  // namespace fake_cuda
