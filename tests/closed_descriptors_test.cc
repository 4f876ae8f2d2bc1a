// A rank whose descriptors another part of its program has closed, as
// closefrom(3) does or a library that daemonizes: its communicator ends at
// once, with that reason, and leaves the files alone that have got the numbers.
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/liveness_bound.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kStartTime(60);  // generous: sanitizers, a busy machine

// Files of the user's, which get the numbers that were closed: memory files,
// and sockets by which other programs talk.
class UsersFiles {
 public:
  UsersFiles() {
    for (int i = 0; i < 40; ++i) {
      const int file = memfd_create("mine", 0);
      if (write(file, "mine", 4) == 4) {
        lseek(file, 0, SEEK_SET);
      }
      files_.push_back({file, InodeOf(file)});
      std::array<int, 2> ends = {};
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0) {
        sockets_.push_back({ends[0], InodeOf(ends[0])});
        sockets_.push_back({ends[1], InodeOf(ends[1])});
      }
    }
  }

  // "" where they are as they were.
  std::string Damage() const {
    for (const auto& [file, inode] : files_) {
      std::array<char, 8> text = {};
      if (InodeOf(file) != inode) {
        return "file " + std::to_string(file) + " was closed";
      }
      if (lseek(file, 0, SEEK_CUR) != 0) {
        return "file " + std::to_string(file) + " was read or written";
      }
      if (pread(file, text.data(), text.size(), 0) != 4) {
        return "file " + std::to_string(file) + " was changed";
      }
    }
    for (const auto& [socket, inode] : sockets_) {
      char byte;
      if (InodeOf(socket) != inode) {
        return "socket " + std::to_string(socket) + " was closed";
      }
      if (recv(socket, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
        return "socket " + std::to_string(socket) + " has got something";
      }
    }
    return "";
  }

 private:
  static ino_t InodeOf(int fd) {
    struct stat file = {};
    return fstat(fd, &file) == 0 ? file.st_ino : 0;
  }

  std::vector<std::pair<int, ino_t>> files_;
  std::vector<std::pair<int, ino_t>> sockets_;
};

void CloseDescriptors() { syscall(SYS_close_range, 3, ~0U, 0); }

// In which system call the thread sleeps, as /proc has it.
void AwaitSleepOf(pid_t thread) {
  const std::string path =
      "/proc/self/task/" + std::to_string(thread) + "/syscall";
  for (int number = -1; number != SYS_ppoll;) {
    std::array<char, 32> text = {};
    const int file = open(path.c_str(), O_RDONLY);
    if (read(file, text.data(), text.size() - 1) > 0) {
      number = std::atoi(text.data());
    }
    close(file);
  }
}

// --- Roles ---

// Has its descriptors closed; then TEST_THEN says what it does.
int LosesDescriptors(Way) {
  auto created = Communicator::Create(*CommunicatorOptions::FromProcess());
  if (!created.ok() || !(*created)->Barrier().ok()) {
    return 1;
  }
  std::unique_ptr<Communicator> communicator = std::move(created).value();
  Print("running");
  AwaitGo();
  const std::string then = std::getenv("TEST_THEN");
  std::unique_ptr<UsersFiles> files;
  const auto close_all = [&files] {
    CloseDescriptors();
    files = std::make_unique<UsersFiles>();
  };
  if (then == "sleeps in a call") {
    std::thread closes([&, caller = gettid()] {
      AwaitSleepOf(caller);
      close_all();
    });
    Print(communicator->Barrier().ToString());
    closes.join();
  } else {
    close_all();
    Print(then == "calls"       ? communicator->Barrier().ToString()
          : then == "exchanges" ? communicator->Exchange("").status().ToString()
                                : "nothing");
  }
  communicator.reset();
  const std::string damage = files->Damage();
  Print("destroyed " + damage);
  return damage.empty() ? 0 : 2;
}

int WaitsForIt(Way) {
  auto communicator = Communicator::Create(*CommunicatorOptions::FromProcess());
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  Print("running");
  AwaitGo();
  Print((*communicator)->Barrier().ToString());
  return 0;
}

// --- Tests ---

// (the way, whose descriptors are closed, what it does then)
class ClosedDescriptorsTest
    : public ::testing::TestWithParam<std::tuple<Way, int, const char*>> {};

TEST_P(ClosedDescriptorsTest, EndTheCommunicatorAtOnceAndHarmNoOtherFile) {
  const auto [way, closed, then] = GetParam();
  const std::string job = NewJob();
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back(
        way, rank == closed ? "loses descriptors" : "waits for it", rank, 3,
        job, std::vector{"TEST_THEN=" + std::string(then)});
  }
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  RankProcess& loses = ranks[closed];
  loses.Go();
  // Whoever calls it has to wait there, or the call could end in order.
  const bool calls = std::string(then).find("call") != std::string::npos;
  if (!calls) {
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != closed) {
        ranks[rank].Go();
      }
    }
  }
  const auto begin = steady_clock::now();
  const std::string status = loses.ReadLine(kStartTime);
  if (std::string(then) != "destroys") {
    EXPECT_NE(status.find("descriptors of ringpipe's were closed"),
              std::string::npos)
        << status;
  }
  EXPECT_EQ(loses.ReadLine(kStartTime), "destroyed ");
  EXPECT_EQ(loses.Wait(kStartTime), 0);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == closed) {
      continue;
    }
    if (calls) {
      ranks[rank].Go();
    }
    const std::string error = ranks[rank].ReadLine(kStartTime);
    EXPECT_NE(error.find("rank " + std::to_string(closed)), std::string::npos)
        << error;
    EXPECT_NE(error, "ok");
  }
  EXPECT_LT(steady_clock::now() - begin, LivenessBound(seconds(2)));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ClosedDescriptorsTest,
    ::testing::Combine(::testing::ValuesIn(WaysOf("closed_descriptors_test")),
                       ::testing::Values(0, 1),
                       ::testing::Values("calls", "exchanges", "destroys",
                                         "sleeps in a call")),
    [](const auto& info) {
      std::string name = std::string(Name(std::get<0>(info.param))) + "_rank" +
                         std::to_string(std::get<1>(info.param)) + "_" +
                         std::get<2>(info.param);
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  return RunRoleOrTests(argc, argv,
                        {{"loses descriptors", &LosesDescriptors},
                         {"waits for it", &WaitsForIt}});
}
