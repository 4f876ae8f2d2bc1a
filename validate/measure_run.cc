#include "validate/measure_run.h"

#include <algorithm>
#include <utility>

namespace ringpipe::validate {

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void MeasureRun::Enter(Phase next) {
  phase = next;
  doing = (rail < 0 ? "" : "rail " + std::to_string(rail) + ": ") +
          std::string(PhaseName(next));
  ShowProgress(0, "");
}

void MeasureRun::ShowProgress(double part, const std::string& what) const {
  if (options.progress) {
    options.progress(Progress(plan).Of(phase, part),
                     doing + (what.empty() ? "" : ", " + what));
  }
}

Status MeasureRun::SendOnce(const Pairing& pairing, std::uint64_t bytes) const {
  return communicator.SendReceive(buffers.send(), pairing.to, buffers.receive(),
                                  pairing.from, bytes, DataType::kUint8);
}

Result<double> MeasureRun::MedianOfRanks(double own) const {
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, Share(std::vector<double>{own}));
  std::vector<double> values;
  for (const std::vector<double>& of_rank : all) {
    values.push_back(of_rank.empty() ? own : of_rank.front());
  }
  return Median(std::move(values));
}

Result<double> MeasureRun::LargestOfRanks(double own) const {
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, Share(std::vector<double>{own}));
  double largest = 0;
  for (const std::vector<double>& of_rank : all) {
    largest = std::max(largest, of_rank.empty() ? 0 : of_rank.front());
  }
  return largest;
}

}  // namespace ringpipe::validate
