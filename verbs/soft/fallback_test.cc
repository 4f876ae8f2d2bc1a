// Private memory of another process where the kernel forbids process_vm_*.
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"
#include "verbs/soft/peer_process.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint32_t kBytes = 300'000;  // more than all slots

void ForbidProcessVm() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    abort();
  }
}

// None may reach this process, nor this one another that is like it: root
// could, but for its capabilities. (In a sandbox there may be no other user to
// become.)
void BecomeUndumpable() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0 ||
      prctl(PR_SET_DUMPABLE, 0) != 0) {
    abort();
  }
}

void DoNothing() {}

enum class Obstacle { kUndumpable, kSeccomp };

// (adversary seed, obstacle)
class Fallback
    : public testing::TestWithParam<std::tuple<std::uint64_t, Obstacle>> {
 protected:
  Fallback() {
    options_.adversary_seed = std::get<0>(GetParam());
    options_.private_memory = true;
  }
  static bool undumpable() {
    return std::get<1>(GetParam()) == Obstacle::kUndumpable;
  }
  EndpointOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Fallback,
                         testing::Combine(testing::Values(0, 11),
                                          testing::Values(Obstacle::kUndumpable,
                                                          Obstacle::kSeccomp)));

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
  return target.Get<bool>() && sent && sent->status == IBV_WC_SUCCESS &&
         written && written->status == IBV_WC_SUCCESS;
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

}  // namespace
}  // namespace ringpipe::verbs::soft
