#include "tests/schedules/closed_form.h"

#include <utility>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

double ValueOf(std::string_view formula, const ClosedFormValues& values) {
  const Result<double> value = Evaluate(formula, values);
  EXPECT_TRUE(value.ok()) << value.status().ToString();
  return value.ok() ? *value : -1;
}

TEST(ClosedFormTest, WhatStandsSideBySideIsMultiplied) {
  const ClosedFormValues values = {
      {"p", 8}, {"lg p", 3}, {"n", 100}, {"β", 2}, {"k", 4}};
  EXPECT_EQ(ValueOf("p-1", values), 7);
  EXPECT_EQ(ValueOf("2(p-1)", values), 14);
  EXPECT_EQ(ValueOf("2(p-1)/p nβ", values), 350);
  EXPECT_EQ(ValueOf("(p-2+k)(1 + n/k β)", values), 510);
  EXPECT_EQ(ValueOf("lg p (β+n) - 1", values), 305);
  EXPECT_EQ(ValueOf("(lg p - (p-1)/p)nβ", values), 425);
  EXPECT_EQ(ValueOf("0.5n", values), 50);
}

TEST(ClosedFormTest, WhatIsNoFormulaIsAnErrorWithThePlace) {
  const ClosedFormValues values = {{"p", 8}};
  for (const auto& [formula, rest] :
       {std::pair("p+q", "q"), std::pair("(p", ""), std::pair("p)", ")"),
        std::pair("", ""), std::pair("2p*3", "*3")}) {
    const Status status = Evaluate(formula, values).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << formula;
    EXPECT_TRUE(
        status.message().ends_with("from \"" + std::string(rest) + "\" on"))
        << status.ToString();
  }
}

TEST(ClosedFormTest, ValuesAreThoseOfSoManyRanks) {
  const ClosedFormValues six = ClosedFormValuesFor({0, 6});
  EXPECT_EQ(ValueOf("⌊lg p⌋", six), 2);
  EXPECT_EQ(ValueOf("⌈lg p⌉", six), 3);
  EXPECT_EQ(ValueOf("a", six), 4);
  EXPECT_EQ(ValueOf("h", six), 0);
  EXPECT_EQ(ValueOf("s", six), 6);  // 2 and 4
  EXPECT_EQ(ValueOf("t", six), 7);  // 0, 1, 10, 11, 100, 101
  EXPECT_EQ(ValueOf("w", six), 5);  // 4: 4 + 0 + 1; 2: 2 + 2 + 0
  EXPECT_EQ(ValueOf("r", six), 2);
  EXPECT_EQ(ValueOf("c", six), 3);
  EXPECT_EQ(ValueOf("h", ClosedFormValuesFor({0, 7})), 1);
  constexpr int kHosts[] = {4, 4, 2, 4, 2, 2};
  EXPECT_EQ(ValueOf("r", ClosedFormValuesFor({0, 6, 0, kHosts})), 2);
}

}  // namespace
}  // namespace ringpipe
