#include <algorithm>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/list_directory.h"
#include "validate/isolated.h"
#include "validate/measure_phases.h"
#include "validate/measure_run.h"
#include "validate/network.h"
#include "validate/partners.h"

namespace ringpipe::validate {
namespace {

// A step in which it sends fewer segments says nothing of losses.
constexpr std::uint64_t kManySegments = 100;

// Of a step in which this rank has sent, what TCP had counted before it.
void CountLosses(MeasureRun& run, const HostNetwork& before) {
  HostNetwork now;
  ReadTcp("/proc", now);
  if (now.segments - before.segments >= kManySegments) {
    ++run.steps;
    run.lossy_steps += now.retransmitted > before.retransmitted ? 1 : 0;
  }
}

// A pass of messages of this pairing and one before them, which is not timed.
// Adds the bandwidth of each to `samples` where this rank receives: its end
// of a message is the later one. All ranks make all calls, with or without
// partners.
Status Send(MeasureRun& run, const Pairing& pairing, std::uint64_t bytes,
            std::vector<float>* samples) {
  HostNetwork before;
  ReadTcp("/proc", before);
  for (int turn = 0; turn <= kPassMessages; ++turn) {
    const Clock::time_point start = Clock::now();
    RINGPIPE_RETURN_IF_ERROR(run.SendOnce(pairing, bytes));
    if (turn > 0 && pairing.from >= 0) {
      samples->push_back(static_cast<float>(
          static_cast<double>(bytes) / std::max(SecondsSince(start), 1e-9)));
    }
  }
  if (pairing.to >= 0) {
    CountLosses(run, before);
  }
  return Status::Ok();
}

// For how long all threads of this process have waited for a core.
double QueuedSeconds() {
  double seconds = 0;
  const std::string tasks = "/proc/self/task";
  for (const std::string& task : ListDirectory(tasks)) {
    // "TIME-ON-CPU TIME-IN-QUEUE TIMESLICES", in nanoseconds.
    std::ifstream file(tasks + "/" + task + "/schedstat");
    double on_cpu = 0, in_queue = 0;
    if (file >> on_cpu >> in_queue) {
      seconds += in_queue / 1e9;
    }
  }
  return seconds;
}

// Of a shift by so much; or, by 0, a round of the tournament, in which pairs
// exchange both ways at once.
struct Step {
  int distance;
  int step;
};

Pairing PairingOf(int size, const Step& step, int rank) {
  if (step.distance > 0) {
    return ShiftPairing(size, step.distance, step.step, rank);
  }
  const int partner = TournamentPartner(size, step.step, rank);
  return {partner, partner};
}

std::vector<Step> StepsOf(int size, bool both_ways) {
  std::vector<Step> steps;
  for (int round = 0; both_ways && round < TournamentRounds(size); ++round) {
    steps.push_back({0, round});
  }
  for (int distance = 1; !both_ways && distance < size; ++distance) {
    for (int step = 0; step < ShiftSteps(size, distance); ++step) {
      steps.push_back({distance, step});
    }
  }
  return steps;
}

Status ShareShifts(MeasureRun& run, std::span<const Step> steps,
                   const std::vector<float>& own, Plane& plane) {
  const int first = plane.bytes_per_s.repeats() - kPassMessages;
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, run.Share(own));
  for (int to = 0; to < run.size; ++to) {
    std::size_t next = 0;
    for (const Step& step : steps) {
      const int from = PairingOf(run.size, step, to).from;
      for (int repeat = 0; from >= 0 && repeat < kPassMessages; ++repeat) {
        if (next < all[to].size()) {
          plane.bytes_per_s.at(from, to, first + repeat) = all[to][next++];
        }
      }
    }
  }
  return Status::Ok();
}

// Of the plan, for a phase.
double SecondsFor(const MeasureRun& run, Phase phase) {
  for (const PhaseCost& cost : run.plan.phases) {
    if (cost.phase == phase) {
      return cost.seconds;
    }
  }
  return 0;
}

// What rank 0 says: it decides, so that no rounding of another machine, and no
// other clock, decides otherwise.
Result<std::vector<float>> AsRank0Says(MeasureRun& run,
                                       const std::vector<float>& own) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, run.Share(own));
  return all.front();
}

// Rank 0 chooses, and says whether all the others follow.
Result<std::vector<Isolated>> ChooseAlone(MeasureRun& run, int plane) {
  std::vector<float> list;
  if (run.rank == 0) {
    const RunOptions& wanted = run.options.run;
    const ToIsolate chosen =
        ChooseToIsolate(run.into, plane, wanted.tolerance,
                        run.plan.most_suspects, wanted.isolate_all);
    list.push_back(chosen.all ? 1 : 0);
    for (const bool control : {false, true}) {
      for (const Link& link : control ? chosen.controls : chosen.suspects) {
        list.insert(list.end(),
                    {static_cast<float>(link.first),
                     static_cast<float>(link.second), control ? 1.0F : 0.0F});
      }
    }
  }
  RINGPIPE_ASSIGN_OR_RETURN(const std::vector<float> said,
                            AsRank0Says(run, list));
  std::vector<Isolated> links;
  for (std::size_t i = 1; i + 2 < said.size(); i += 3) {
    const int from = static_cast<int>(said[i]);
    const int to = static_cast<int>(said[i + 1]);
    if (from < 0 || from >= run.size || to < 0 || to >= run.size ||
        from == to) {
      return Status(StatusCode::kMismatch,
                    "rank 0 runs another version of this program");
    }
    links.push_back({plane, from, to, said[i + 2] > 0, {}});
  }
  if (!said.empty() && said.front() > 0) {
    AddOthers(plane, run.size, links);
  }
  return links;
}

// What was measured of links[begin] to links[end - 1], numbers of isolated
// ones.
Status ShareIsolated(MeasureRun& run, std::span<const std::size_t> links,
                     const std::vector<float>& own) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, run.Share(own));
  std::vector<std::size_t> next(run.size);
  for (const std::size_t number : links) {
    Isolated& link = run.into.isolated[number];
    for (int repeat = 0; repeat < kPassMessages; ++repeat) {
      if (next[link.to] < all[link.to].size()) {
        link.bytes_per_s.push_back(all[link.to][next[link.to]++]);
      }
    }
    if (next[link.to] < all[link.to].size() &&
        next[link.from] < all[link.from].size()) {
      const double to = all[link.to][next[link.to]++];
      link.queued.emplace_back(all[link.from][next[link.from]++], to);
    }
  }
  return Status::Ok();
}

// One pass over these links, one by one.
Status IsolatedPass(MeasureRun& run, int pass,
                    const std::vector<std::size_t>& links) {
  const std::size_t every = std::max<std::size_t>(8, links.size() / 10);
  std::vector<float> own;
  std::size_t shared = 0;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const Isolated& link = run.into.isolated[links[i]];
    run.ShowProgress(
        (pass + static_cast<double>(i) / static_cast<double>(links.size())) /
            kMostAlonePasses,
        run.into.NameOf(link.from) + " → " + run.into.NameOf(link.to));
    RINGPIPE_RETURN_IF_ERROR(run.communicator.Barrier());
    Pairing pairing;
    pairing.to = run.rank == link.from ? link.to : -1;
    pairing.from = run.rank == link.to ? link.from : -1;
    const Clock::time_point start = Clock::now();
    const double queued = QueuedSeconds();
    RINGPIPE_RETURN_IF_ERROR(
        Send(run, pairing, run.into.planes[link.plane].message_bytes, &own));
    if (pairing.to >= 0 || pairing.from >= 0) {
      own.push_back(static_cast<float>((QueuedSeconds() - queued) /
                                       std::max(SecondsSince(start), 1e-9)));
    }
    if ((i + 1) % every == 0 || i + 1 == links.size()) {
      RINGPIPE_RETURN_IF_ERROR(ShareIsolated(
          run, std::span(links).subspan(shared, i + 1 - shared), own));
      shared = i + 1;
      own.clear();
    }
  }
  return Status::Ok();
}

// Which of them once more: these, or those that noise may make slow; where
// there is time, and a pass over one has taken so long.
Result<std::vector<std::size_t>> ChooseMore(
    MeasureRun& run, int plane, const std::vector<std::size_t>& these,
    double seconds_left, double seconds_of_one) {
  std::vector<float> list;
  if (run.rank == 0) {
    for (const std::size_t number :
         !these.empty()
             ? these
             : ChooseAgain(run.into, plane, run.options.run.tolerance)) {
      list.push_back(static_cast<float>(number));
    }
    if (static_cast<double>(list.size()) * seconds_of_one > seconds_left) {
      list.clear();
    }
  }
  RINGPIPE_ASSIGN_OR_RETURN(const std::vector<float> said,
                            AsRank0Says(run, list));
  std::vector<std::size_t> chosen;
  for (const float number : said) {
    if (!(number >= 0) ||
        number >= static_cast<float>(run.into.isolated.size())) {
      return Status(StatusCode::kMismatch,
                    "rank 0 runs another version of this program");
    }
    chosen.push_back(static_cast<std::size_t>(number));
  }
  return chosen;
}

// One pass over all links.
Status ShiftPass(MeasureRun& run, int pass, bool both_ways, Plane& plane) {
  plane.bytes_per_s.AddRepeats(kPassMessages);
  const std::vector<Step> steps = StepsOf(run.size, both_ways);
  std::vector<float> own;
  std::size_t shared = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    run.ShowProgress(
        (pass + static_cast<double>(i) / static_cast<double>(steps.size())) /
            kMostPasses,
        both_ways ? "round " + std::to_string(i + 1)
                  : "shift by " + std::to_string(steps[i].distance));
    RINGPIPE_RETURN_IF_ERROR(run.communicator.Barrier());
    RINGPIPE_RETURN_IF_ERROR(Send(run, PairingOf(run.size, steps[i], run.rank),
                                  plane.message_bytes, &own));
    if ((i + 1) % run.plan.exchange_every == 0 || i + 1 == steps.size()) {
      RINGPIPE_RETURN_IF_ERROR(ShareShifts(
          run, std::span(steps).subspan(shared, i + 1 - shared), own, plane));
      shared = i + 1;
      own.clear();
    }
  }
  return Status::Ok();
}

}  // namespace

// Once more, where noise hides much and there is time.
Status MeasureShifts(MeasureRun& run, int plane, bool both_ways) {
  const Clock::time_point start = Clock::now();
  for (int pass = 0; pass < kMostPasses; ++pass) {
    RINGPIPE_RETURN_IF_ERROR(
        ShiftPass(run, pass, both_ways, run.into.planes[plane]));
    const bool again =
        run.rank == 0 && pass + 1 < kMostPasses &&
        SecondsSince(start) * (pass + 2) / (pass + 1) <
            SecondsFor(run, Phase::kBandwidth) &&
        NeedsAnotherPass(run.into, plane, run.options.run.tolerance);
    RINGPIPE_ASSIGN_OR_RETURN(const std::vector<float> said,
                              AsRank0Says(run, {again ? 1.0F : 0.0F}));
    if (said.empty() || said.front() == 0) {
      break;
    }
  }
  return Status::Ok();
}

Status MeasureIsolated(MeasureRun& run, int plane) {
  const Clock::time_point start = Clock::now();
  RINGPIPE_ASSIGN_OR_RETURN(const std::vector<Isolated> links,
                            ChooseAlone(run, plane));
  std::vector<std::size_t> turn;
  for (const Isolated& link : links) {
    turn.push_back(run.into.isolated.size());
    run.into.isolated.push_back(link);
  }
  const int least = LeastPasses(run.size, links.size());
  double measured = 0;
  for (int pass = 0; pass < kMostAlonePasses && !turn.empty(); ++pass) {
    RINGPIPE_RETURN_IF_ERROR(IsolatedPass(run, pass, turn));
    measured += static_cast<double>(turn.size());
    if (pass + 1 >= kAlonePasses) {
      if (pass + 1 >= least) {
        turn.clear();
      }
      const double seconds = SecondsSince(start);
      RINGPIPE_ASSIGN_OR_RETURN(
          turn, ChooseMore(run, plane, turn,
                           SecondsFor(run, Phase::kIsolated) - seconds,
                           seconds / measured));
    }
  }
  return Status::Ok();
}

}  // namespace ringpipe::validate
