// What the device says of itself, as programs that know real ones read it.
#include <errno.h>
#include <infiniband/verbs.h>

#include <vector>

#include "gtest/gtest.h"
#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

class Attributes : public testing::Test {
 protected:
  ~Attributes() override { CloseDevice(context_); }

  SoftDevice device_;
  ibv_context* const context_ = OpenDevice(&device_);
};

TEST_F(Attributes, NameAVendorThatNobodyIs) {
  ibv_device_attr attr;
  ASSERT_EQ(QueryDevice(context_, &attr), 0);
  EXPECT_NE(attr.vendor_id, 0u);
  EXPECT_NE(attr.vendor_id & 0x020000, 0u) << "not locally administered";
}

TEST_F(Attributes, PromiseACompletionQueueAsLongAsOthers) {
  ibv_device_attr attr;
  ASSERT_EQ(QueryDevice(context_, &attr), 0);
  EXPECT_GE(attr.max_cqe, 1 << 20);
  ibv_cq* const cq = CreateCq(context_, attr.max_cqe, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_GE(cq->cqe, 1 << 20);
  EXPECT_EQ(DestroyCq(cq), 0);
  EXPECT_EQ(CreateCq(context_, attr.max_cqe + 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Attributes, ComeWithTheWholeGidTableOrAnError) {
  std::vector<ibv_gid_entry> entries(1024);
  const auto query = [&](std::size_t most) {
    return QueryGidTable(context_, entries.data(), most, 0,
                         sizeof entries.front());
  };
  const ssize_t count = query(entries.size());
  ASSERT_GT(count, 0);
  EXPECT_EQ(query(count), count);
  EXPECT_EQ(query(count - 1), -EINVAL);
}

}  // namespace
}  // namespace ringpipe::verbs::soft
