#include <unistd.h>

#include <ctime>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/host_name.h"
#include "engine/hosts.h"
#include "validate/identity.h"
#include "validate/measure_phases.h"
#include "validate/measure_run.h"
#include "validate/network.h"
#include "validate/ports.h"

namespace ringpipe::validate {
namespace {

std::string Date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

bool IsFirstOfHost(const MeasureRun& run) {
  for (int rank = 0; rank < run.rank; ++rank) {
    if (run.into.ranks[rank].host == run.into.ranks[run.rank].host) {
      return false;
    }
  }
  return true;
}

// Of this rank's host, with what they have counted until now.
std::vector<Port> OwnPortsNow(const MeasureRun& run) {
  std::vector<Port> own;
  for (const Port& port : run.into.ports) {
    if (port.host == run.into.ranks[run.rank].host) {
      own.push_back(port);
    }
  }
  ReadCountersAfter(run.options.sysfs, own);
  return own;
}

// The first rank of each host speaks of its ports.
Status SharePorts(MeasureRun& run, const std::vector<Port>& own) {
  RINGPIPE_ASSIGN_OR_RETURN(
      const auto blobs, run.communicator.Exchange(PortsToJson(
                            IsFirstOfHost(run) ? own : std::vector<Port>())));
  std::vector<Port> all;
  for (const std::string& blob : blobs) {
    RINGPIPE_ASSIGN_OR_RETURN(const std::vector<Port> ports,
                              PortsFromJson(blob));
    all.insert(all.end(), ports.begin(), ports.end());
  }
  run.into.ports = std::move(all);
  return Status::Ok();
}

Status ShareNetworks(MeasureRun& run) {
  const std::string& host = run.into.ranks[run.rank].host;
  const HostNetwork now = ReadNetwork(run.options.sysfs, "/proc", host);
  std::vector<double> own;
  if (IsFirstOfHost(run)) {
    own = {now.megabits_per_s,
           static_cast<double>(now.segments - run.network_before.segments),
           static_cast<double>(now.retransmitted -
                               run.network_before.retransmitted),
           static_cast<double>(run.steps),
           static_cast<double>(run.lossy_steps)};
  }
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, run.Share(own));
  run.into.networks.clear();
  for (int rank = 0; rank < run.size; ++rank) {
    if (all[rank].size() == 5) {
      run.into.networks.push_back({run.into.ranks[rank].host, all[rank][0],
                                   static_cast<std::uint64_t>(all[rank][1]),
                                   static_cast<std::uint64_t>(all[rank][2]),
                                   static_cast<std::uint64_t>(all[rank][3]),
                                   static_cast<std::uint64_t>(all[rank][4])});
    }
  }
  return Status::Ok();
}

}  // namespace

Status Meet(MeasureRun& run) {
  RINGPIPE_ASSIGN_OR_RETURN(const Environment environment,
                            Environment::FromProcess());
  RINGPIPE_ASSIGN_OR_RETURN(const Residence residence,
                            Residence::Own(environment));
  Identity own;
  own.host_name = HostName();
  own.host_id = residence.host;
  own.pid = getpid();
  own.device = run.communicator.device();
  own.processors.assign(residence.processors.begin(),
                        residence.processors.end());
  RINGPIPE_ASSIGN_OR_RETURN(const auto blobs,
                            run.communicator.Exchange(own.Serialize()));
  std::vector<Identity> identities;
  for (const std::string& blob : blobs) {
    RINGPIPE_ASSIGN_OR_RETURN(Identity identity, Identity::Parse(blob));
    identities.push_back(std::move(identity));
  }
  run.into.version = Version();
  run.into.date = Date();
  run.into.way = run.size < 2 ? "" : WayOf(own.device);
  run.into.ranks = NameRanks(identities);
  run.network_before = ReadNetwork(run.options.sysfs, "/proc", "");
  return SharePorts(
      run, ReadPorts(run.options.sysfs, run.into.ranks[run.rank].host));
}

Status ShareCountersAfter(MeasureRun& run) {
  if (run.rail < 0) {
    RINGPIPE_RETURN_IF_ERROR(ShareNetworks(run));
  }
  return SharePorts(run, OwnPortsNow(run));
}

void KeepOwnCountersAfter(MeasureRun& run) {
  const std::vector<Port> own = OwnPortsNow(run);
  std::erase_if(run.into.ports, [&](const Port& port) {
    return port.host == run.into.ranks[run.rank].host;
  });
  run.into.ports.insert(run.into.ports.end(), own.begin(), own.end());
}

}  // namespace ringpipe::validate
