// Private memory of another process where the kernel forbids process_vm_*.
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/peer_process.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"
#include "verbs/soft/forbidden_copies.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint32_t kBytes = 300'000;  // more than all slots

void DoNothing() {}

enum class Obstacle { kUndumpable, kSeccomp };

// (adversary seed, obstacle, type)
class Fallback : public testing::TestWithParam<
                     std::tuple<std::uint64_t, Obstacle, ibv_qp_type>> {
 protected:
  Fallback() {
    options_.adversary_seed = std::get<0>(GetParam());
    options_.private_memory = true;
    options_.type = std::get<2>(GetParam());
  }
  static bool undumpable() {
    return std::get<1>(GetParam()) == Obstacle::kUndumpable;
  }
  EndpointOptions options_;
};

INSTANTIATE_TEST_SUITE_P(
    Modes, Fallback,
    testing::Combine(testing::Values(0, 11),
                     testing::Values(Obstacle::kUndumpable, Obstacle::kSeccomp),
                     testing::Values(IBV_QPT_RC, IBV_QPT_UC)));

std::byte Pattern(std::uint32_t i) {
  return static_cast<std::byte>(i * 7 + i / 251);
}

// The target: one SEND, one WRITE with immediate; then its answer.
bool Target(ValuePipe& pipe, const EndpointOptions& options,
            void (*prepare)()) {
  prepare();
  Endpoint endpoint(options);
  pipe.Put(endpoint.identity());
  endpoint.Connect(pipe.Get<Identity>());
  endpoint.Receive(1, {endpoint.Sge(1, 1000), endpoint.Sge(2000, kBytes)});
  endpoint.Receive(2, {});
  pipe.Put(true);
  const auto sent = endpoint.Poll();
  const auto written = endpoint.Poll();
  bool right = sent && written && sent->status == IBV_WC_SUCCESS &&
               sent->byte_len == kBytes && written->status == IBV_WC_SUCCESS &&
               written->imm_data == 5;
  for (std::uint32_t i = 0; i < kBytes; ++i) {
    const std::uint32_t at = i < 1000 ? 1 + i : 1000 + i;
    right = right && endpoint.data()[at] == Pattern(i) &&
            endpoint.data()[400'000 + i] == Pattern(i);
  }
  pipe.Put(right);
  pipe.Get<bool>();
  return right;
}

// The requester, in a process of its own because of what it gives up.
bool Source(ValuePipe& pipe, ValuePipe& target, const EndpointOptions& options,
            void (*prepare)()) {
  prepare();
  Endpoint endpoint(options);
  const auto identity = target.Get<Identity>();
  target.Put(endpoint.identity());
  endpoint.Connect(identity);
  for (std::uint32_t i = 0; i < kBytes; ++i) {
    endpoint.data()[i] = Pattern(i);
  }
  target.Get<bool>();
  // The obstacle is one: a copy by the kernel is refused.
  iovec local = {endpoint.data(), 1};
  iovec remote = {reinterpret_cast<void*>(identity.address), 1};
  const pid_t pid = pipe.Get<pid_t>();
  if (process_vm_writev(pid, &local, 1, &remote, 1, 0) != -1 ||
      errno != EPERM) {
    return false;
  }
  endpoint.Send(1, {endpoint.Sge(0, 200'000), endpoint.Sge(200'000, 100'000)});
  endpoint.Write(2, {endpoint.Sge(0, kBytes)}, identity, 400'000,
                 IBV_SEND_SIGNALED, 5);
  const auto sent = endpoint.Poll();
  const auto written = endpoint.Poll();
  if (options.type == IBV_QPT_UC) {  // which has no READ
    return target.Get<bool>() && sent && sent->status == IBV_WC_SUCCESS &&
           written && written->status == IBV_WC_SUCCESS;
  }
  // And back, into two places.
  memset(endpoint.data(), 0, 2 * kBytes);
  endpoint.Read(3, {endpoint.Sge(5, 1000), endpoint.Sge(2000, kBytes - 1000)},
                identity, 400'000);
  const auto read = endpoint.Poll();
  bool same = endpoint.data()[2000 + kBytes - 1000] == std::byte{0};
  for (std::uint32_t i = 0; i < kBytes; ++i) {
    same = same && endpoint.data()[i < 1000 ? 5 + i : 1000 + i] == Pattern(i);
  }
  return target.Get<bool>() && sent && sent->status == IBV_WC_SUCCESS &&
         written && written->status == IBV_WC_SUCCESS && read &&
         read->status == IBV_WC_SUCCESS && same;
}

TEST_P(Fallback, BytesTravelThroughSlots) {
  const EndpointOptions options = options_;
  const auto prepare_target = undumpable() ? BecomeUndumpable : DoNothing;
  const auto prepare_source = undumpable() ? BecomeUndumpable : ForbidProcessVm;
  PeerProcess target(
      [&](ValuePipe& pipe) { return Target(pipe, options, prepare_target); });
  PeerProcess source([&](ValuePipe& pipe) {
    const bool right = Source(pipe, target.pipe(), options, prepare_source);
    target.pipe().Put(true);
    return right;
  });
  source.pipe().Put(target.pid());
  EXPECT_TRUE(source.Join());
  EXPECT_TRUE(target.Join());
}

// --- The end of a receive that is being filled -------------------------------

// A page that the next thread to touch it stands still at.
std::atomic<std::byte*> gate = nullptr;
std::atomic<bool> reached = false;
std::atomic<bool> open_gate = false;

void StandStill(int signal, siginfo_t* info, void* /*context*/) {
  std::byte* const page = gate;
  if (page == nullptr || info->si_addr < page ||
      info->si_addr >= page + getpagesize()) {
    ::signal(signal, SIG_DFL);  // it happens again, and ends the process
    return;
  }
  reached = true;
  while (!open_gate) {
    sched_yield();
  }
  mprotect(page, getpagesize(), PROT_READ | PROT_WRITE);
}

// What is flushed is the program's again: nobody writes to it any more.
TEST(FlushedReceive, IsNotBeingFilledOutOfASlot) {
  EndpointOptions options;
  options.private_memory = true;
  PeerProcess sender([&](ValuePipe& pipe) {
    ForbidProcessVm();
    Endpoint endpoint(options);
    pipe.Put(endpoint.identity());
    endpoint.Connect(pipe.Get<Identity>());
    endpoint.Send(1, {endpoint.Sge(0, 8)});
    pipe.Get<bool>();  // until it has been seen
    return true;
  });
  Endpoint receiver(options);
  const auto from = sender.pipe().Get<Identity>();
  auto* const page = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(receiver.data()) + getpagesize()) &
      -static_cast<std::uintptr_t>(getpagesize()));
  ASSERT_EQ(receiver.Receive(
                2, {receiver.Sge(page - receiver.data(), getpagesize())}),
            0);
  struct sigaction action = {};
  action.sa_sigaction = &StandStill;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGSEGV, &action, nullptr), 0);
  gate = page;
  ASSERT_EQ(mprotect(page, getpagesize(), PROT_NONE), 0);
  receiver.Connect(from);
  sender.pipe().Put(receiver.identity());
  while (!reached) {
    sched_yield();
  }
  receiver.ToError();
  EXPECT_TRUE(receiver.Quiet()) << "flushed while it is being filled";
  open_gate = true;
  EXPECT_EQ(receiver.Poll().value().status, IBV_WC_WR_FLUSH_ERR);
  ::signal(SIGSEGV, SIG_DFL);
  sender.pipe().Put(true);
  EXPECT_TRUE(sender.Join());
}

}  // namespace
}  // namespace ringpipe::verbs::soft
