// Whether memory may be pinned: RLIMIT_MEMLOCK, before the kernel says ENOMEM.
#ifndef RINGPIPE_VERBS_MEMLOCK_H_
#define RINGPIPE_VERBS_MEMLOCK_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace ringpipe::verbs {

// Whether `bytes` more may be pinned: kResourceExhausted with advice if not.
// `limit` is RLIMIT_MEMLOCK's soft limit in bytes (RLIM_INFINITY: none),
// `locked` what the process has pinned already.
Status CheckMemlock(std::uint64_t bytes, std::uint64_t locked,
                    std::uint64_t limit);

// The same for this process as it is now; always ok with CAP_IPC_LOCK, for
// which the kernel knows no limit.
Status CheckProcessMemlock(std::uint64_t bytes);

// What to do where locked memory is short, as the end of a message.
std::string MemlockAdvice();

// What a process holds against the limit.
struct MemlockUse {
  // VmPin. mlock()ed memory (VmLck) is limited by the same number, but the
  // kernel counts the two apart.
  std::uint64_t pinned_bytes = 0;
  bool exempt = false;  // CAP_IPC_LOCK is among the effective capabilities
};

// From the text of /proc/self/status. What is missing there counts as none.
MemlockUse ParseMemlockUse(const std::string& status_text);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_MEMLOCK_H_
