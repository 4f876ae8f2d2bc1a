#include "verbs/memlock.h"

#include <linux/capability.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace ringpipe::verbs {
namespace {

// The number behind "NAME:" at the start of a line; 0 if there is none.
std::uint64_t Field(const std::string& text, const std::string& name,
                    int base) {
  const std::string wanted = "\n" + name + ":";
  const std::size_t at = ("\n" + text).find(wanted);
  if (at == std::string::npos) {
    return 0;
  }
  // The found position counts the newline that was put in front.
  return std::strtoull(text.c_str() + at + wanted.size() - 1, nullptr, base);
}

}  // namespace

std::string MemlockAdvice() {
  return "raise it with 'ulimit -l unlimited', 'memlock' in "
         "/etc/security/limits.conf, LimitMEMLOCK=infinity in the systemd unit "
         "(slurmd's, for jobs under Slurm) or 'docker run --ulimit memlock=-1'";
}

Status CheckMemlock(std::uint64_t bytes, std::uint64_t locked,
                    std::uint64_t limit) {
  if (limit == RLIM_INFINITY || (locked <= limit && bytes <= limit - locked)) {
    return Status::Ok();
  }
  return {StatusCode::kResourceExhausted,
          "registering " + std::to_string(bytes) + " bytes beside the " +
              std::to_string(locked) +
              " that are pinned already passes RLIMIT_MEMLOCK, " +
              std::to_string(limit) + " bytes: " + MemlockAdvice()};
}

Status CheckProcessMemlock(std::uint64_t bytes) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return Status::Ok();
  }
  std::ifstream file("/proc/self/status");
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  const MemlockUse use = ParseMemlockUse(text);
  return use.exempt ? Status::Ok()
                    : CheckMemlock(bytes, use.pinned_bytes, limit.rlim_cur);
}

MemlockUse ParseMemlockUse(const std::string& status_text) {
  const std::uint64_t capabilities = Field(status_text, "CapEff", 16);
  return {Field(status_text, "VmPin", 10) * 1024,
          (capabilities >> CAP_IPC_LOCK & 1) != 0};
}

}  // namespace ringpipe::verbs
