#include "bench/tensors.h"

#include <numeric>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

// As the literature and frameworks count them.
TEST(TensorsTest, ResNet50Has161OfWhichAllAre25557032Parameters) {
  const auto tensors = TensorsOf("resnet50");
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  EXPECT_EQ(tensors->size(), 161U);
  EXPECT_EQ(std::accumulate(tensors->begin(), tensors->end(), std::size_t{0}),
            25'557'032U);
}

TEST(TensorsTest, AnotherModelIsRefused) {
  const Status status = TensorsOf("resnet51").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("allowed is resnet50"), std::string::npos);
}

}  // namespace
}  // namespace ringpipe
