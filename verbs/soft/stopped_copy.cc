#include "verbs/soft/stopped_copy.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

namespace ringpipe::verbs::soft {
namespace {

constexpr std::size_t kPageBytes = 4096;

// The page that nobody may touch; nullptr: none. A signal handler and an
// interposed function have nowhere else to find it.
std::atomic<std::byte*> trap = nullptr;

// Of this thread, so that it does not run on while another one takes the
// signal.
void StopAndDisarm(std::byte* page) {
  raise(SIGSTOP);
  mprotect(page, kPageBytes, PROT_READ | PROT_WRITE);
}

void OnFault(int signal, siginfo_t* info, void* /*context*/) {
  std::byte* const page = trap.exchange(nullptr);
  auto* const address = static_cast<std::byte*>(info->si_addr);
  if (page == nullptr || address < page || address >= page + kPageBytes) {
    ::signal(signal, SIG_DFL);  // it happens again, and ends the process
    return;
  }
  StopAndDisarm(page);
}

}  // namespace

void StopInNextCopyFrom(void* page) {
  struct sigaction action = {};
  action.sa_sigaction = &OnFault;
  action.sa_flags = SA_SIGINFO;
  trap = static_cast<std::byte*>(page);
  if (sigaction(SIGSEGV, &action, nullptr) != 0 ||
      mprotect(page, kPageBytes, PROT_NONE) != 0) {
    abort();
  }
}

}  // namespace ringpipe::verbs::soft

// In a program that links this the device calls it instead of libc's.
extern "C" ssize_t process_vm_writev(pid_t pid, const iovec* local,
                                     unsigned long local_count,
                                     const iovec* remote,
                                     unsigned long remote_count,
                                     unsigned long flags) noexcept {
  namespace soft = ringpipe::verbs::soft;
  if (std::byte* const page = soft::trap.exchange(nullptr)) {
    soft::StopAndDisarm(page);
  }
  return syscall(SYS_process_vm_writev, pid, local, local_count, remote,
                 remote_count, flags);
}
