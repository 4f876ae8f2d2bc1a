#include "validate/network.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/list_directory.h"

namespace ringpipe::validate {
namespace {

namespace fs = std::filesystem;

// A card has a device; a bridge or a veth has none, and any speed.
int FastestCard(const fs::path& interfaces) {
  int fastest = 0;
  std::error_code error;
  for (const std::string& name : ListDirectory(interfaces)) {
    int speed = 0;
    if (fs::exists(interfaces / name / "device", error) &&
        std::ifstream(interfaces / name / "speed") >> speed) {
      fastest = std::max(fastest, speed);
    }
  }
  return fastest;
}

}  // namespace

// Two lines begin with "Tcp:": names, then numbers.
void ReadTcp(const std::string& proc, HostNetwork& network) {
  std::ifstream file(fs::path(proc) / "net" / "snmp");
  std::string line;
  std::istringstream names;
  while (std::getline(file, line)) {
    if (!line.starts_with("Tcp:")) {
      continue;
    }
    if (names.str().empty()) {
      names.str(line);
      continue;
    }
    std::istringstream numbers(line);
    std::string name, number;
    while (names >> name && numbers >> number) {
      std::uint64_t* const counter = name == "OutSegs" ? &network.segments
                                     : name == "RetransSegs"
                                         ? &network.retransmitted
                                         : nullptr;
      if (counter != nullptr) {
        std::istringstream(number) >> *counter;
      }
    }
  }
}

HostNetwork ReadNetwork(const std::string& sysfs, const std::string& proc,
                        const std::string& host) {
  HostNetwork network;
  network.host = host;
  network.megabits_per_s = FastestCard(fs::path(sysfs) / "class" / "net");
  ReadTcp(proc, network);
  return network;
}

}  // namespace ringpipe::validate
