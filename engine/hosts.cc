#include "engine/hosts.h"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <fstream>
#include <utility>

#include "auth/byte_stream.h"

namespace ringpipe {
namespace {

// Of a mask of processors: as many as Linux can have.
constexpr std::size_t kMostProcessorBytes = 1024;

// Empty where the kernel does not say.
std::string OwnProcessors() {
  alignas(cpu_set_t) std::array<char, kMostProcessorBytes> mask = {};
  auto* const set = reinterpret_cast<cpu_set_t*>(mask.data());
  if (sched_getaffinity(0, mask.size(), set) != 0) {
    return {};
  }
  std::string processors(mask.data(), mask.size());
  processors.resize(processors.find_last_not_of('\0') + 1);
  return processors;
}

int CountBits(const std::string& mask) {
  int bits = 0;
  for (const char byte : mask) {
    bits += std::popcount(static_cast<unsigned char>(byte));
  }
  return bits;
}

void Join(std::string& mask, const std::string& other) {
  mask.resize(std::max(mask.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) {
    mask[i] = static_cast<char>(mask[i] | other[i]);
  }
}

Status UnlikeNeighbours(int shares, int does_not) {
  return {StatusCode::kInvalidArgument,
          "rank " + std::to_string(shares) +
              " shares its memory with the ranks of its host, and rank " +
              std::to_string(does_not) +
              " of the same host does not (RINGPIPE_HOST_MEMORY=never, or "
              "RINGPIPE_DEVICE=soft): set both variables alike on all ranks"};
}

}  // namespace

Result<std::string> HostIdentity(const Environment& environment,
                                 const std::string& proc) {
  if (!environment.host_id.empty()) {
    return "RINGPIPE_HOST_ID=" + environment.host_id;
  }
  const std::string boot_id = proc + "/sys/kernel/random/boot_id";
  const std::string network = proc + "/self/ns/net";
  errno = 0;
  std::ifstream file(boot_id);
  std::string boot;
  struct stat net = {};
  const bool has_boot = std::getline(file, boot) && !boot.empty();
  if (!has_boot || stat(network.c_str(), &net) != 0) {
    // To guess would take ranks of different hosts for neighbours.
    const int error = errno != 0 ? errno : file.bad() ? ENOMEM : ENODATA;
    return ErrnoStatus(error == ENOMEM ? StatusCode::kResourceExhausted
                                       : StatusCode::kUnavailable,
                       "cannot read " + (has_boot ? network : boot_id) +
                           ", which tells this host from others (mount /proc, "
                           "or set RINGPIPE_HOST_ID to the host's name on all "
                           "of its ranks)",
                       error);
  }
  return boot + " net:" + std::to_string(net.st_ino);
}

Result<Residence> Residence::Own(const Environment& environment) {
  Residence own;
  RINGPIPE_ASSIGN_OR_RETURN(own.host, HostIdentity(environment));
  own.shares_memory = environment.shares_host_memory();
  own.processors = OwnProcessors();
  return own;
}

std::string Residence::Serialize() const {
  ByteWriter text;
  text.U8(shares_memory ? 1 : 0);
  text.String(processors);
  text.String(host);
  return text.Take();
}

Result<Residence> Residence::Parse(const std::string& text) {
  ByteReader reader(text);
  Residence residence;
  residence.shares_memory = reader.U8() != 0;
  residence.processors = reader.String(kMostProcessorBytes);
  residence.host = reader.String(text.size());
  if (!reader.finished()) {
    return Status(StatusCode::kMismatch,
                  "a rank described its host in a form that cannot be read: do "
                  "all ranks run the same version of ringpipe?");
  }
  return residence;
}

Result<Hosts> FindHosts(const std::vector<Residence>& ranks, int rank) {
  Hosts hosts;
  hosts.ranks_here = 0;
  std::string processors;
  for (const Residence& other : ranks) {
    const bool here = other.host == ranks[rank].host;
    const int number = static_cast<int>(hosts.of_rank.size());
    hosts.of_rank.push_back(other.host);
    const int first = static_cast<int>(
        std::find(hosts.of_rank.begin(), hosts.of_rank.end(), other.host) -
        hosts.of_rank.begin());
    hosts.numbers.push_back(first);
    if (ranks[first].shares_memory != other.shares_memory) {
      return other.shares_memory ? UnlikeNeighbours(number, first)
                                 : UnlikeNeighbours(first, number);
    }
    hosts.in_memory.push_back(here && other.shares_memory);
    if (here) {
      ++hosts.ranks_here;
      Join(processors, other.processors);
    }
  }
  if (hosts.ranks_here == 1) {
    hosts.in_memory[rank] = false;
  }
  hosts.all_in_memory =
      std::count(hosts.in_memory.begin(), hosts.in_memory.end(), false) == 0;
  hosts.processors = CountBits(processors);
  return hosts;
}

Result<Hosts> ParseHosts(const std::vector<std::string>& ranks, int rank) {
  std::vector<Residence> parsed;
  for (const std::string& text : ranks) {
    RINGPIPE_ASSIGN_OR_RETURN(Residence residence, Residence::Parse(text));
    parsed.push_back(std::move(residence));
  }
  return FindHosts(parsed, rank);
}

}  // namespace ringpipe
