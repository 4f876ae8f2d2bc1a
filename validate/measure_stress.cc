#include <algorithm>
#include <utility>
#include <vector>

#include "validate/measure_phases.h"
#include "validate/measure_run.h"
#include "validate/partners.h"
#include "validate/test_pattern.h"

namespace ringpipe::validate {
namespace {

constexpr double kReportSeconds = 1;

std::vector<Pairing> StressPattern(int size, std::uint64_t round) {
  switch (round % 4) {
    case 0:
      return NaturalRing(size);
    case 1:
      return RandomRing(size, kSeed + round);
    default:
      return RandomPermutation(size, kSeed + round);
  }
}

// One message on one link of each rank, every byte checked.
Status StressOnce(MeasureRun& run, std::uint64_t round, std::uint64_t bytes,
                  std::vector<Stress::Wrong>& wrong) {
  const Pairing pairing = StressPattern(run.size, round)[run.rank];
  FillPattern(run.buffers.send(), bytes,
              PatternSeed(run.rank, pairing.to, round));
  RINGPIPE_RETURN_IF_ERROR(run.SendOnce(pairing, bytes));
  const std::uint64_t errors = CountWrongBytes(
      run.buffers.receive(), bytes, PatternSeed(pairing.from, run.rank, round));
  if (errors > 0) {
    const auto same = std::find_if(
        wrong.begin(), wrong.end(),
        [&](const auto& link) { return link.from == pairing.from; });
    Stress::Wrong& link =
        same != wrong.end()
            ? *same
            : wrong.emplace_back(Stress::Wrong{pairing.from, run.rank, 0, 0});
    ++link.messages;
    link.bytes += errors;
  }
  return Status::Ok();
}

void TakeStress(MeasureRun& run, const std::vector<std::vector<double>>& all,
                std::uint64_t rounds, std::uint64_t bytes) {
  Stress stress;
  stress.seconds = all.front().front();
  stress.messages = rounds * run.size;
  stress.bytes = stress.messages * bytes;
  for (int to = 0; to < run.size; ++to) {
    for (std::size_t i = 2; i + 2 < all[to].size(); i += 3) {
      stress.wrong.push_back(
          {std::clamp(static_cast<int>(all[to][i]), 0, run.size - 1), to,
           static_cast<std::uint64_t>(all[to][i + 1]),
           static_cast<std::uint64_t>(all[to][i + 2])});
    }
  }
  run.into.stress = std::move(stress);
}

}  // namespace

// Rank 0's clock says when it ends; at each look all learn of all errors.
Status RunStress(MeasureRun& run) {
  const std::uint64_t bytes =
      std::min(run.plan.message_bytes, kStressMessageBytes) / 8 * 8;
  const Clock::time_point start = Clock::now();
  std::vector<Stress::Wrong> wrong;
  std::uint64_t round = 0;
  std::uint64_t until_report = 1;
  for (bool goes_on = true; goes_on;) {
    const Clock::time_point report_start = Clock::now();
    for (std::uint64_t i = 0; i < until_report; ++i) {
      RINGPIPE_RETURN_IF_ERROR(StressOnce(run, round++, bytes, wrong));
    }
    std::vector<double> own = {
        SecondsSince(start),
        SecondsSince(report_start) / static_cast<double>(until_report)};
    for (const Stress::Wrong& link : wrong) {
      own.insert(own.end(), {static_cast<double>(link.from),
                             static_cast<double>(link.messages),
                             static_cast<double>(link.bytes)});
    }
    RINGPIPE_ASSIGN_OR_RETURN(const auto all, run.Share(own));
    TakeStress(run, all, round, bytes);
    const double left = run.plan.stress_seconds - all.front()[0];
    goes_on = left > 0;
    until_report = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(std::min(left, kReportSeconds) /
                                      std::max(all.front()[1], 1e-6)));
    run.ShowProgress(1 - left / run.plan.stress_seconds, "");
  }
  return Status::Ok();
}

}  // namespace ringpipe::validate
