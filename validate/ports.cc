#include "validate/ports.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/list_directory.h"

namespace ringpipe::validate {
namespace {

namespace fs = std::filesystem;

std::string FirstLine(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) {
    line.pop_back();
  }
  return line;
}

// Of "4: ACTIVE": "ACTIVE".
std::string BehindColon(const std::string& text) {
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

double LeadingNumber(const std::string& text) {
  std::istringstream stream(text);
  double number = 0;
  return stream >> number ? number : 0;
}

// Of "100 Gb/sec (4X EDR)": 100, 4 and "EDR".
void ParseRate(Port& port) {
  port.gigabits_per_s = LeadingNumber(port.rate);
  const std::size_t open = port.rate.find('(');
  const std::size_t close = port.rate.find(')');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    return;
  }
  const std::string inside = port.rate.substr(open + 1, close - open - 1);
  const std::size_t x = inside.find('X');
  if (x != std::string::npos) {
    port.lanes = static_cast<int>(LeadingNumber(inside));
    const std::size_t speed = inside.find_first_not_of(' ', x + 1);
    port.speed = speed == std::string::npos ? "" : inside.substr(speed);
  }
}

// The kinds of address that the port has, and its network interface.
void ReadGids(const fs::path& folder, Port& port) {
  for (const std::string& index :
       ListDirectory(folder / "gid_attrs" / "types")) {
    const std::string type = FirstLine(folder / "gid_attrs" / "types" / index);
    if (!type.empty() && std::find(port.gid_types.begin(), port.gid_types.end(),
                                   type) == port.gid_types.end()) {
      port.gid_types.push_back(type);
    }
    if (port.interface.empty()) {
      port.interface = FirstLine(folder / "gid_attrs" / "ndevs" / index);
    }
  }
  std::sort(port.gid_types.begin(), port.gid_types.end());
}

// "16.0 GT/s PCIe"; "8". Unknown, and for devices that are not on PCI: 0.
void ReadPci(const fs::path& device, Port& port) {
  const fs::path pci = device / "device";
  port.pci_gigatransfers_per_s =
      LeadingNumber(FirstLine(pci / "current_link_speed"));
  port.pci_most_gigatransfers_per_s =
      LeadingNumber(FirstLine(pci / "max_link_speed"));
  port.pci_lanes =
      static_cast<int>(LeadingNumber(FirstLine(pci / "current_link_width")));
  port.pci_most_lanes =
      static_cast<int>(LeadingNumber(FirstLine(pci / "max_link_width")));
}

std::map<std::string, std::uint64_t> ReadCounters(const fs::path& folder) {
  std::map<std::string, std::uint64_t> counters;
  for (const char* kind : {"counters", "hw_counters"}) {
    for (const std::string& name : ListDirectory(folder / kind)) {
      const std::string text = FirstLine(folder / kind / name);
      std::uint64_t value = 0;
      const auto [end, error] =
          std::from_chars(text.data(), text.data() + text.size(), value);
      // "lifespan" is a setting.
      if (error == std::errc() && end == text.data() + text.size() &&
          name != "lifespan") {
        counters[name] = value;
      }
    }
  }
  return counters;
}

fs::path FolderOf(const std::string& sysfs, const Port& port) {
  return fs::path(sysfs) / "class" / "infiniband" / port.device / "ports" /
         std::to_string(port.number);
}

Port ReadPort(const std::string& sysfs, const std::string& host,
              const std::string& device, int number) {
  Port port;
  port.host = host;
  port.device = device;
  port.number = number;
  const fs::path folder = FolderOf(sysfs, port);
  port.state = BehindColon(FirstLine(folder / "state"));
  port.physical_state = BehindColon(FirstLine(folder / "phys_state"));
  port.link_layer = FirstLine(folder / "link_layer");
  port.rate = FirstLine(folder / "rate");
  ParseRate(port);
  ReadGids(folder, port);
  if (!port.interface.empty()) {
    const fs::path interface =
        fs::path(sysfs) / "class" / "net" / port.interface;
    port.interface_mtu =
        static_cast<int>(LeadingNumber(FirstLine(interface / "mtu")));
    // -1: the driver does not know.
    port.interface_megabits_per_s = std::max(
        0, static_cast<int>(LeadingNumber(FirstLine(interface / "speed"))));
  }
  ReadPci(fs::path(sysfs) / "class" / "infiniband" / device, port);
  port.before = ReadCounters(folder);
  return port;
}

}  // namespace

std::vector<Port> ReadPorts(
    const std::string& sysfs, const std::string& host,
    const std::function<int(const std::string& interface)>&
        most_megabits_per_s) {
  std::vector<Port> ports;
  const fs::path devices = fs::path(sysfs) / "class" / "infiniband";
  for (const std::string& device : ListDirectory(devices)) {
    std::vector<int> numbers;
    for (const std::string& name : ListDirectory(devices / device / "ports")) {
      if (const int number = static_cast<int>(LeadingNumber(name));
          number > 0) {
        numbers.push_back(number);
      }
    }
    std::sort(numbers.begin(), numbers.end());
    for (const int number : numbers) {
      ports.push_back(ReadPort(sysfs, host, device, number));
      Port& port = ports.back();
      if (!port.interface.empty()) {
        port.interface_most_megabits_per_s =
            most_megabits_per_s(port.interface);
      }
    }
  }
  return ports;
}

void ReadCountersAfter(const std::string& sysfs, std::vector<Port>& ports) {
  for (Port& port : ports) {
    port.after = ReadCounters(FolderOf(sysfs, port));
  }
}

}  // namespace ringpipe::validate
