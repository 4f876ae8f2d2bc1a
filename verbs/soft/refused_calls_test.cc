// What came to Linux after 4.18, or is refused by the seccomp profiles of
// containers that do not know it: the device goes without.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "base/peer_process.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint32_t kMadvisePopulateWrite = 23;
constexpr std::uint32_t kSealFutureWrite = 0x10;

// From now on this process gets `error` for each of them; it keeps that.
void RefuseNewCalls(int error) {
  const auto refuse = SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error);
  // The low half of argument i, on a little-endian machine.
  const auto argument = [](int i) {
    return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * i);
  };
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 9, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(2)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMadvisePopulateWrite, 6, 5),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(1)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_ADD_SEALS, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(2)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kSealFutureWrite, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, refuse),
  };
  const sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    abort();
  }
}

bool AreRefused() {
  const int file = memfd_create("refused", MFD_ALLOW_SEALING);
  alignas(4096) static char page[4096];
  epoll_event event;
  return syscall(SYS_epoll_pwait2, -1, &event, 1, nullptr, nullptr, 0) == -1 &&
         errno != EBADF && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
         fcntl(file, F_ADD_SEALS, kSealFutureWrite) == -1 &&
         madvise(page, sizeof page, MADV_NORMAL) == 0 &&
         madvise(page, sizeof page, kMadvisePopulateWrite) == -1;
}

std::chrono::microseconds ProcessorTime() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto sum = [](timeval a, timeval b) {
    return std::chrono::seconds(a.tv_sec + b.tv_sec) +
           std::chrono::microseconds(a.tv_usec + b.tv_usec);
  };
  return sum(usage.ru_utime, usage.ru_stime);
}

class RefusedCalls : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Errors, RefusedCalls,
                         testing::Values(EPERM, ENOSYS, EINVAL, EACCES));

// Both sides of a connection, and the housekeeper's timers: nobody polls for
// the request that waits for a receive.
TEST_P(RefusedCalls, AreDoneWithout) {
  EndpointOptions options;
  options.private_memory = true;
  PeerProcess receiver([&](ValuePipe& pipe) {
    RefuseNewCalls(GetParam());
    Endpoint endpoint(options);
    pipe.Put(endpoint.identity());
    endpoint.Connect(pipe.Get<Identity>());
    pipe.Put(true);
    pipe.Get<bool>();  // the request is there
    endpoint.Receive(1, {endpoint.Sge(0, 8)});
    const auto completion = endpoint.Poll();
    return AreRefused() && completion && completion->status == IBV_WC_SUCCESS &&
           std::memcmp(endpoint.data(), "refused", 8) == 0;
  });
  PeerProcess sender([&](ValuePipe& pipe) {
    RefuseNewCalls(GetParam());
    Endpoint endpoint(options);
    pipe.Put(endpoint.identity());
    endpoint.Connect(pipe.Get<Identity>());
    std::memcpy(endpoint.data(), "refused", 8);
    endpoint.Send(2, {endpoint.Sge(0, 8)});
    pipe.Put(true);
    pipe.Get<bool>();  // it has come
    const auto completion = endpoint.Poll();
    return AreRefused() && completion && completion->status == IBV_WC_SUCCESS;
  });
  const auto to = receiver.pipe().Get<Identity>();
  receiver.pipe().Put(sender.pipe().Get<Identity>());
  receiver.pipe().Get<bool>();  // connected
  sender.pipe().Put(to);
  receiver.pipe().Put(sender.pipe().Get<bool>());
  EXPECT_TRUE(receiver.Join());
  sender.pipe().Put(true);
  EXPECT_TRUE(sender.Join());
}

TEST_P(RefusedCalls, LeaveTheHousekeeperAsleep) {
  PeerProcess idle([](ValuePipe&) {
    RefuseNewCalls(GetParam());
    Endpoint endpoint;
    const std::chrono::microseconds before = ProcessorTime();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return ProcessorTime() - before < std::chrono::milliseconds(100);
  });
  EXPECT_TRUE(idle.Join());
}

}  // namespace
}  // namespace ringpipe::verbs::soft
