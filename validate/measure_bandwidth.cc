#include <algorithm>
#include <span>
#include <vector>

#include "validate/measure_phases.h"
#include "validate/measure_run.h"
#include "validate/partners.h"
#include "validate/slow_links.h"

namespace ringpipe::validate {
namespace {

// So many messages of this pairing and one before them, which is not timed.
// Adds the bandwidth of each to `samples` where this rank receives: its end
// of a message is the later one. All ranks make all calls, with or without
// partners.
Status Send(MeasureRun& run, const Pairing& pairing, int repeats,
            std::vector<float>* samples) {
  for (int turn = 0; turn <= repeats; ++turn) {
    const Clock::time_point start = Clock::now();
    RINGPIPE_RETURN_IF_ERROR(run.SendOnce(pairing, run.plan.message_bytes));
    if (turn > 0 && pairing.from >= 0) {
      samples->push_back(
          static_cast<float>(static_cast<double>(run.plan.message_bytes) /
                             std::max(SecondsSince(start), 1e-9)));
    }
  }
  return Status::Ok();
}

struct Step {
  int distance;
  int step;
};

Status ShareShifts(MeasureRun& run, std::span<const Step> steps,
                   const std::vector<float>& own, Plane& plane) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, run.Share(own));
  for (int to = 0; to < run.size; ++to) {
    std::size_t next = 0;
    for (const Step& step : steps) {
      const int from =
          ShiftPairing(run.size, step.distance, step.step, to).from;
      for (int repeat = 0; from >= 0 && repeat < run.plan.repeats; ++repeat) {
        if (next < all[to].size()) {
          plane.bytes_per_s.at(from, to, repeat) = all[to][next++];
        }
      }
    }
  }
  return Status::Ok();
}

// All but these.
std::vector<Link> Others(int size, std::vector<Link> chosen) {
  std::sort(chosen.begin(), chosen.end());
  std::vector<Link> others;
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (from != to &&
          !std::binary_search(chosen.begin(), chosen.end(), Link(from, to))) {
        others.emplace_back(from, to);
      }
    }
  }
  return others;
}

// Rank 0 chooses, so that no rounding of another machine makes another list,
// and says whether all the others follow.
Result<std::vector<Isolated>> ChooseAlone(MeasureRun& run, int plane) {
  std::vector<float> list;
  if (run.rank == 0) {
    const RunOptions& wanted = run.options.run;
    const ToIsolate chosen = ChooseToIsolate(run.into, plane, wanted.tolerance);
    list.push_back(wanted.isolate_all ? 1 : 0);
    for (const bool control : {false, true}) {
      for (const Link& link : control ? chosen.controls : chosen.suspects) {
        list.insert(list.end(),
                    {static_cast<float>(link.first),
                     static_cast<float>(link.second), control ? 1.0F : 0.0F});
      }
    }
  }
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, run.Share(list));
  const std::vector<float>& said = all.front();
  std::vector<Isolated> links;
  std::vector<Link> chosen;
  for (std::size_t i = 1; i + 2 < said.size(); i += 3) {
    const int from = static_cast<int>(said[i]);
    const int to = static_cast<int>(said[i + 1]);
    if (from < 0 || from >= run.size || to < 0 || to >= run.size ||
        from == to) {
      return Status(StatusCode::kMismatch,
                    "rank 0 runs another version of this program");
    }
    links.push_back({plane, from, to, said[i + 2] > 0, {}});
    chosen.emplace_back(from, to);
  }
  if (!said.empty() && said.front() > 0) {
    for (const auto& [from, to] : Others(run.size, chosen)) {
      links.push_back({plane, from, to, /*control=*/false, {}});
    }
  }
  return links;
}

// Of the turns from `begin` to `end`; the links are `count` from `first` on.
Status ShareIsolated(MeasureRun& run, std::size_t first, std::size_t count,
                     std::size_t begin, std::size_t end,
                     const std::vector<float>& own) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, run.Share(own));
  std::vector<std::size_t> next(run.size);
  for (std::size_t turn = begin; turn < end; ++turn) {
    Isolated& link = run.into.isolated[first + turn % count];
    for (int repeat = 0; repeat < run.plan.alone_repeats; ++repeat) {
      if (next[link.to] < all[link.to].size()) {
        link.bytes_per_s.push_back(all[link.to][next[link.to]++]);
      }
    }
  }
  return Status::Ok();
}

}  // namespace

Status MeasureShifts(MeasureRun& run, Plane& plane) {
  std::vector<Step> steps;
  for (int distance = 1; distance < run.size; ++distance) {
    for (int step = 0; step < ShiftSteps(run.size, distance); ++step) {
      steps.push_back({distance, step});
    }
  }
  std::vector<float> own;
  std::size_t shared = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    run.ShowProgress(static_cast<double>(i) / static_cast<double>(steps.size()),
                     "shift by " + std::to_string(steps[i].distance));
    RINGPIPE_RETURN_IF_ERROR(run.communicator.Barrier());
    RINGPIPE_RETURN_IF_ERROR(Send(
        run, ShiftPairing(run.size, steps[i].distance, steps[i].step, run.rank),
        run.plan.repeats, &own));
    if ((i + 1) % run.plan.exchange_every == 0 || i + 1 == steps.size()) {
      RINGPIPE_RETURN_IF_ERROR(ShareShifts(
          run, std::span(steps).subspan(shared, i + 1 - shared), own, plane));
      shared = i + 1;
      own.clear();
    }
  }
  return Status::Ok();
}

Status MeasureIsolated(MeasureRun& run, int plane) {
  RINGPIPE_ASSIGN_OR_RETURN(const std::vector<Isolated> links,
                            ChooseAlone(run, plane));
  const std::size_t first = run.into.isolated.size();
  run.into.isolated.insert(run.into.isolated.end(), links.begin(), links.end());
  const std::size_t all = kAlonePasses * links.size();
  const std::size_t every = std::max<std::size_t>(8, all / 20);
  std::vector<float> own;
  std::size_t shared = 0;
  for (std::size_t i = 0; i < all; ++i) {
    const Isolated& link = links[i % links.size()];
    run.ShowProgress(
        static_cast<double>(i) / static_cast<double>(all),
        run.into.NameOf(link.from) + " → " + run.into.NameOf(link.to));
    RINGPIPE_RETURN_IF_ERROR(run.communicator.Barrier());
    Pairing pairing;
    pairing.to = run.rank == link.from ? link.to : -1;
    pairing.from = run.rank == link.to ? link.from : -1;
    RINGPIPE_RETURN_IF_ERROR(Send(run, pairing, run.plan.alone_repeats, &own));
    if ((i + 1) % every == 0 || i + 1 == all) {
      RINGPIPE_RETURN_IF_ERROR(
          ShareIsolated(run, first, links.size(), shared, i + 1, own));
      shared = i + 1;
      own.clear();
    }
  }
  return Status::Ok();
}

}  // namespace ringpipe::validate
