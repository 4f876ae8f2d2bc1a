#include "bootstrap/launcher_process.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace ringpipe {
namespace {

constexpr int kMostAncestors = 16;
constexpr std::array<std::string_view, 9> kLauncherNames = {
    "hydra_pmi_proxy", "mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich",
    "mpiexec.hydra",   "orted",  "prted",   "torchrun"};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// /proc/PID/stat is "PID (NAME) STATE PPID ... START_TIME ...", where NAME may
// contain anything.
struct ProcessStat {
  std::string name;
  pid_t parent = 0;
  std::string start_time;
};

ProcessStat ReadStat(pid_t pid) {
  ProcessStat stat;
  const std::string text = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) {
    return stat;
  }
  stat.name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  std::string field;
  for (int number = 3; number <= 22 && rest >> field; ++number) {
    if (number == 4) {
      std::from_chars(field.data(), field.data() + field.size(), stat.parent);
    }
    if (number == 22) {
      stat.start_time = field;
    }
  }
  return stat;
}

bool IsLauncher(const std::string& name) {
  for (const std::string_view known : kLauncherNames) {
    if (name == known) {
      return true;
    }
  }
  return false;
}

bool StartedWith(pid_t pid, const std::string& entry) {
  const std::string null(1, '\0');
  const std::string environment =
      null + ReadFile("/proc/" + std::to_string(pid) + "/environ");
  return environment.find(null + entry + null) != std::string::npos;
}

}  // namespace

std::string LauncherProcess(const std::string& variable,
                            const std::string& value) {
  pid_t pid = getppid();
  ProcessStat stat = ReadStat(pid);
  for (int i = 0; i < kMostAncestors; ++i) {
    if (stat.parent <= 1 || IsLauncher(stat.name) ||
        !StartedWith(pid, variable + "=" + value)) {
      break;
    }
    pid = stat.parent;
    stat = ReadStat(pid);
  }
  std::array<char, 64> pid_namespace{};
  const ssize_t bytes =
      readlink("/proc/self/ns/pid", pid_namespace.data(), pid_namespace.size());
  return std::to_string(pid) + "." + stat.start_time + "." +
         std::string(pid_namespace.data(), bytes > 0 ? bytes : 0);
}

}  // namespace ringpipe
