// For tests: obstacles to copies between processes. Each is for a process of
// its own, which keeps it, and ends that process where it cannot be set up.
#ifndef RINGPIPE_VERBS_SOFT_FORBIDDEN_COPIES_H_
#define RINGPIPE_VERBS_SOFT_FORBIDDEN_COPIES_H_

#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace ringpipe::verbs::soft {

// What becomes of process_vm_readv and process_vm_writev: SECCOMP_RET_*.
inline void FilterProcessVm(std::uint32_t read, std::uint32_t write) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, read),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, write),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    abort();
  }
}

// The kernel refuses this process copies to and from others.
inline void ForbidProcessVm() {
  FilterProcessVm(SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ERRNO | EPERM);
}

// This process dies, as by SIGKILL, when it writes to another.
inline void DieAtProcessVmWrite() {
  FilterProcessVm(SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
}

// None may reach this process, nor this one another that is like it: root
// could, but for its capabilities. (In a sandbox there may be no other user to
// become.)
inline void BecomeUndumpable() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0 ||
      prctl(PR_SET_DUMPABLE, 0) != 0) {
    abort();
  }
}

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_FORBIDDEN_COPIES_H_
