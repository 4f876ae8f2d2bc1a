#include "bench/run_facts.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <string_view>

namespace ringpipe {

std::string UtcDate() {
  const time_t now = time(nullptr);
  tm parts = {};
  gmtime_r(&now, &parts);
  char text[40];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Processor FindProcessor() {
  Processor processor;
  processor.model = "unknown";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) {
      processor.model = line.substr(colon + 2);
      break;
    }
  }
  processor.cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  processor.usable_cores = sched_getaffinity(0, sizeof set, &set) == 0
                               ? CPU_COUNT(&set)
                               : processor.cores;
  return processor;
}

std::map<std::string, std::string> ReportedVariables(
    const char* const* environment) {
  std::map<std::string, std::string> reported;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const auto equals = variable.find('=');
    if (equals == variable.npos || (!variable.starts_with("RINGPIPE_") &&
                                    !variable.starts_with("NCCL_"))) {
      continue;
    }
    const std::string_view name = variable.substr(0, equals);
    const bool secret = name.find("SECRET") != name.npos;
    reported.emplace(name, secret ? "(set)" : variable.substr(equals + 1));
  }
  return reported;
}

}  // namespace ringpipe
