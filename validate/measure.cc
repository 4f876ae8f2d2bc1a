#include "validate/measure.h"

#include <string>

#include "validate/identity.h"
#include "validate/measure_phases.h"
#include "validate/measure_run.h"
#include "validate/port_findings.h"

namespace ringpipe::validate {
namespace {

// The links of one plane: all in use, then those that stand out by themselves.
Status MeasurePlane(MeasureRun& run) {
  const int plane = static_cast<int>(run.into.planes.size());
  run.into.planes.push_back(
      {run.rail < 0 ? "all rails" : "rail " + std::to_string(run.rail),
       run.rail, run.plan.message_bytes,
       LinkSamples(run.size, run.plan.repeats)});
  run.Enter(Phase::kBandwidth);
  RINGPIPE_RETURN_IF_ERROR(MeasureShifts(run, run.into.planes.back()));
  run.Enter(Phase::kIsolated);
  return MeasureIsolated(run, plane);
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
  RINGPIPE_RETURN_IF_ERROR(MeasurePlane(run));
  if (wanted.latency) {
    run.Enter(Phase::kLatency);
    RINGPIPE_RETURN_IF_ERROR(MeasureLatencies(run));
  }
  if (wanted.patterns) {
    run.Enter(Phase::kPatterns);
    RINGPIPE_RETURN_IF_ERROR(MeasurePatterns(run));
  }
  if (wanted.collectives) {
    run.Enter(Phase::kCollectives);
    RINGPIPE_RETURN_IF_ERROR(MeasureAllReduces(run));
  }
  if (run.plan.stress_seconds > 0) {
    run.Enter(Phase::kStress);
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
  links.run.collectives = false;
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
