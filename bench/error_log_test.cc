#include "bench/error_log.h"

#include <gtest/gtest.h>

#include <climits>
#include <vector>

namespace ringpipe {
namespace {

class ErrorLogTest : public testing::Test {
 protected:
  void Take(int rank, StatusCode code, const std::string& message) {
    log_.Take(ErrorLog::Record(rank, {code, message}));
  }

  std::vector<std::string> lines_;
  ErrorLog log_{[this](const std::string& line) { lines_.push_back(line); }};
};

TEST_F(ErrorLogTest, TheSameErrorOfManyRanksIsPrintedOnce) {
  for (int rank = 3; rank >= 0; --rank) {
    Take(rank, StatusCode::kUnavailable, "no such device");
  }
  EXPECT_EQ(lines_,
            std::vector<std::string>{"rank 3: unavailable: no such device"});
}

TEST_F(ErrorLogTest, AnErrorOfAllRanksIsPrintedOnceAlsoWhereOneToldAnother) {
  Take(2, StatusCode::kUnavailable, "rank 3: no such device");
  Take(3, StatusCode::kUnavailable, "no such device");
  Take(0, StatusCode::kUnavailable, "rank 1: no such device");
  EXPECT_EQ(lines_, std::vector<std::string>{
                        "rank 2: unavailable: rank 3: no such device"});
}

TEST_F(ErrorLogTest, OneRanksLossIsSaidOnceInWhateverWords) {
  Take(0, StatusCode::kPeerLost, "rank 2 died");
  Take(1, StatusCode::kPeerLost, "connection to rank 2 lost");
  Take(3, StatusCode::kAborted, "failed before");
  EXPECT_EQ(lines_.size(), 1u);
  Take(2, StatusCode::kDeviceError, "the cause");
  EXPECT_EQ(lines_.size(), 2u);
}

TEST_F(ErrorLogTest, AnAbortAfterAnErrorIsNotPrinted) {
  Take(0, StatusCode::kUnavailable, "cannot write to standard output");
  Take(1, StatusCode::kAborted, "rank 0: cannot write to standard output");
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(ErrorLogTest, NothingIsPrintedAfterAStop) {
  EXPECT_EQ(log_.stop_signal(), 0);
  log_.Take(ErrorLog::StopRecord(13) +
            ErrorLog::Record(1, {StatusCode::kPeerLost, "rank 0 died"}));
  EXPECT_EQ(log_.stop_signal(), 13);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(ErrorLogTest, RecordsComeInPiecesAndTogether) {
  const std::string records =
      ErrorLog::Record(0, {StatusCode::kInternal, "one"}) +
      ErrorLog::Record(-1, {StatusCode::kInternal, "two\nlines"});
  for (const char c : records) {
    log_.Take({&c, 1});
  }
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0], "rank 0: internal error: one");
  EXPECT_EQ(lines_[1], "internal error: two lines");
}

TEST_F(ErrorLogTest, ALongRecordStillIsOneWrite) {
  const std::string record =
      ErrorLog::Record(0, {StatusCode::kInternal, std::string(100000, 'x')});
  EXPECT_LT(record.size(), static_cast<std::size_t>(PIPE_BUF));
  EXPECT_EQ(record.back(), '\n');
}

}  // namespace
}  // namespace ringpipe
