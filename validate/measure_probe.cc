#include <algorithm>

#include "validate/measure_phases.h"
#include "validate/measure_run.h"
#include "validate/partners.h"

namespace ringpipe::validate {
namespace {

// The first look: until a message takes so long, and at most so large.
constexpr double kProbeSeconds = 0.02;
constexpr std::uint64_t kMostProbeBytes = 8 << 20;

Status ProbeLinks(MeasureRun& run, Probe& probe) {
  Buffers memory(run.communicator);
  RINGPIPE_RETURN_IF_ERROR(memory.Allocate(kMostProbeBytes));
  const auto send_on = [&](std::uint64_t bytes) -> Result<double> {
    double seconds = 0;
    for (int step = 0; step < ShiftSteps(run.size, 1); ++step) {
      const Pairing pairing = ShiftPairing(run.size, 1, step, run.rank);
      RINGPIPE_RETURN_IF_ERROR(run.communicator.Barrier());
      for (int turn = 0; turn < 2; ++turn) {
        const Clock::time_point start = Clock::now();
        RINGPIPE_RETURN_IF_ERROR(run.communicator.SendReceive(
            memory.send(), pairing.to, memory.receive(), pairing.from, bytes,
            DataType::kUint8));
        seconds = pairing.from >= 0 ? SecondsSince(start) : seconds;
      }
    }
    return run.MedianOfRanks(seconds);
  };
  std::uint64_t bytes = 64 << 10;
  double seconds = 0;
  for (;;) {
    RINGPIPE_ASSIGN_OR_RETURN(seconds, send_on(bytes));
    if (seconds >= kProbeSeconds || bytes == kMostProbeBytes) {
      break;
    }
    bytes = std::min(bytes * 8, kMostProbeBytes);
  }
  probe.bytes_per_s = static_cast<double>(bytes) / std::max(seconds, 1e-9);
  RINGPIPE_ASSIGN_OR_RETURN(probe.latency_s, send_on(8));
  constexpr int kBarriers = 10;
  const Clock::time_point start = Clock::now();
  for (int turn = 0; turn < kBarriers; ++turn) {
    RINGPIPE_RETURN_IF_ERROR(run.communicator.Barrier());
  }
  RINGPIPE_ASSIGN_OR_RETURN(probe.barrier_s,
                            run.MedianOfRanks(SecondsSince(start) / kBarriers));
  return Status::Ok();
}

}  // namespace

Status Prepare(MeasureRun& run) {
  Probe probe;
  probe.ranks = run.size;
  probe.rails = run.rail < 0 ? run.into.CommonRails() : 1;
  RINGPIPE_RETURN_IF_ERROR(ProbeLinks(run, probe));
  run.plan = MakePlan(probe, run.options.run);
  return run.buffers.Allocate(
      std::max(run.plan.message_bytes, kStressMessageBytes));
}

}  // namespace ringpipe::validate
