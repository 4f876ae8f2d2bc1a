#include "base/io_loop.h"

#include <dirent.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "base/file_descriptor.h"
#include "base/liveness_bound.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

std::set<int> OpenDescriptors() {
  std::set<int> open;
  DIR* const directory = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.' &&
        std::atoi(entry->d_name) != dirfd(directory)) {
      open.insert(std::atoi(entry->d_name));
    }
  }
  closedir(directory);
  return open;
}

TEST(IoLoopTest, RunsHandlersUntilItIsStopped) {
  IoLoop loop;
  const auto work = asio::make_work_guard(loop.context());
  bool ran = false;
  asio::steady_timer timer(loop.context(), std::chrono::milliseconds(1));
  timer.async_wait([&](const boost::system::error_code& error) {
    ran = !error;
    loop.context().stop();
  });
  loop.Run();
  EXPECT_TRUE(ran);
  EXPECT_TRUE(loop.is_intact());
}

TEST(IoLoopTest, EndsWhenItsDescriptorsAreClosedAndClosesNoOther) {
  const std::set<int> before = OpenDescriptors();
  std::set<int> its;
  auto loop = std::make_unique<IoLoop>();
  const auto pending = std::make_shared<int>();
  {
    const auto work = asio::make_work_guard(loop->context());
    asio::steady_timer timer(loop->context(), std::chrono::hours(1));
    timer.async_wait([pending](const boost::system::error_code&) {});
    its = OpenDescriptors();
    for (const int fd : before) {
      its.erase(fd);
    }
    ASSERT_GE(its.size(), 3);
    std::thread runs([&] { loop->Run(); });
    asio::post(loop->context(), [&] {
      for (const int fd : its) {
        close(fd);
      }
    });
    const auto begin = Clock::now();
    runs.join();
    EXPECT_LT(Clock::now() - begin, LivenessBound(std::chrono::seconds(2)));
    EXPECT_FALSE(loop->is_intact());
  }
  std::set<int> others;
  while (others.size() < its.size()) {
    others.insert(dup(STDERR_FILENO));
  }
  loop.reset();
  EXPECT_EQ(pending.use_count(), 1);
  for (const int fd : others) {
    EXPECT_EQ(close(fd), 0) << fd;
  }
}

}  // namespace
}  // namespace ringpipe
