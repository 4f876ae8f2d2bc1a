#include "validate/measure.h"

#include <algorithm>
#include <string>
#include <vector>

#include "validate/identity.h"
#include "validate/link_classes.h"
#include "validate/measure_phases.h"
#include "validate/measure_run.h"
#include "validate/port_findings.h"

namespace ringpipe::validate {
namespace {

Status AddPlane(MeasureRun& run, const std::string& name, std::uint64_t bytes,
                bool both_ways = false) {
  run.into.planes.push_back({name, run.rail, bytes, LinkSamples(run.size, 0)});
  return MeasureShifts(run, static_cast<int>(run.into.planes.size()) - 1,
                       both_ways);
}

// The links of one plane: all in use, then those that stand out by themselves.
Status MeasurePlane(MeasureRun& run) {
  const int plane = static_cast<int>(run.into.planes.size());
  run.Enter(Phase::kBandwidth);
  RINGPIPE_RETURN_IF_ERROR(AddPlane(
      run, run.rail < 0 ? "all rails" : "rail " + std::to_string(run.rail),
      run.plan.message_bytes));
  run.Enter(Phase::kIsolated);
  return MeasureIsolated(run, plane);
}

// What a link does otherwise: with short messages; both ways at once, where
// each host has one rank, so that links share nothing else.
Status MeasureOtherWays(MeasureRun& run) {
  constexpr std::uint64_t kShorter = 16;
  run.Enter(Phase::kBandwidth);
  RINGPIPE_RETURN_IF_ERROR(
      AddPlane(run, "short messages", run.plan.message_bytes / kShorter));
  const std::vector<int> hosts = HostNumbers(run.into);
  if (*std::max_element(hosts.begin(), hosts.end()) + 1 < run.size) {
    return Status::Ok();
  }
  return AddPlane(run, "both ways at once", run.plan.message_bytes,
                  /*both_ways=*/true);
}

Status RunPhases(MeasureRun& run) {
  const RunOptions& wanted = run.options.run;
  run.doing = "who takes part";
  RINGPIPE_RETURN_IF_ERROR(Meet(run));
  if (run.options.announce) {
    for (const Finding& finding : FindPortFaults(run.into.ports)) {
      run.options.announce(finding.text);
    }
  }
  if (run.size < 2) {
    return Status::Ok();
  }
  run.doing = "how fast a message is";
  RINGPIPE_RETURN_IF_ERROR(Prepare(run));
  if (run.options.announce) {
    run.options.announce(DescribeCost(run.plan));
  }
  // Latencies first: they tell which hosts share a switch.
  if (wanted.latency) {
    run.Enter(Phase::kLatency);
    RINGPIPE_RETURN_IF_ERROR(MeasureLatencies(run));
  }
  if (wanted.links) {
    RINGPIPE_RETURN_IF_ERROR(MeasurePlane(run));
    RINGPIPE_RETURN_IF_ERROR(MeasureOtherWays(run));
  }
  if (wanted.links && wanted.patterns) {
    run.Enter(Phase::kPatterns);
    RINGPIPE_RETURN_IF_ERROR(MeasurePatterns(run));
  }
  if (run.plan.stress_seconds > 0) {
    run.Enter(Phase::kStress);
    constexpr double kLongSeconds = 10;
    if (run.options.announce && run.plan.stress_seconds >= kLongSeconds) {
      run.options.announce("the stress test begins");
    }
    RINGPIPE_RETURN_IF_ERROR(RunStress(run));
  }
  return ShareCountersAfter(run);
}

// A failure ends the measurement, and is a result. What only this rank knows
// of, such as that it has no memory, all hear.
Status Ended(MeasureRun& run, const Status& status) {
  if (!status.ok()) {
    run.into.EndBy(status, run.doing, LostRank(status));
    if (!run.into.ranks.empty()) {
      KeepOwnCountersAfter(run);
    }
    if (run.communicator.failure().ok()) {
      run.communicator.Abort(status.message());
    }
  }
  return status;
}

}  // namespace

Status Measure(Communicator& communicator, const MeasureOptions& options,
               Measurements* into) {
  const Clock::time_point start = Clock::now();
  MeasureRun run(communicator, options, *into);
  const Status status = RunPhases(run);
  into->seconds = SecondsSince(start);
  return Ended(run, status);
}

Status MeasureRail(Communicator& communicator, int rail,
                   const MeasureOptions& options, Measurements* into) {
  MeasureOptions links = options;
  links.run.latency = false;
  links.run.patterns = false;
  links.run.stress_seconds = 0;
  MeasureRun run(communicator, links, *into);
  run.rail = rail;
  Status status = Prepare(run);
  if (status.ok()) {
    status = MeasurePlane(run);
  }
  if (status.ok()) {
    status = ShareCountersAfter(run);
  }
  return Ended(run, status);
}

}  // namespace ringpipe::validate
