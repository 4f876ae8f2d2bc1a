#include "tests/schedules/mutation.h"

#include <cstddef>
#include <utility>

namespace ringpipe {
namespace {

std::vector<Place> AllPlaces(const Schedule& schedule) {
  std::vector<Place> places;
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    places.push_back(Input(chunk));
    places.push_back(Output(chunk));
  }
  for (int chunk = 0; chunk < schedule.scratch; ++chunk) {
    places.push_back(Scratch(chunk));
  }
  return places;
}

// All values of one transfer that differ from it in one field.
std::vector<std::pair<Mutation::Kind, Transfer>> Readdressed(
    const Transfer& transfer, const std::vector<Place>& places, int rank,
    int size) {
  std::vector<std::pair<Mutation::Kind, Transfer>> changed;
  for (const Place place : places) {
    if (transfer.reads() && place != transfer.source) {
      changed.emplace_back(Mutation::Kind::kSource, transfer);
      changed.back().second.source = place;
    }
    if (transfer.writes() && place != transfer.target) {
      changed.emplace_back(Mutation::Kind::kTarget, transfer);
      changed.back().second.target = place;
    }
  }
  for (int peer = 0; peer < size; ++peer) {
    if (transfer.peer >= 0 && peer != transfer.peer && peer != rank) {
      changed.emplace_back(Mutation::Kind::kPeer, transfer);
      changed.back().second.peer = peer;
    }
  }
  if (transfer.kind == Transfer::Kind::kReceiveReduce) {
    changed.emplace_back(Mutation::Kind::kFinish, transfer);
    changed.back().second.finish = !transfer.finish;
  }
  return changed;
}

}  // namespace

const char* MutationName(Mutation::Kind kind) {
  constexpr const char* kNames[Mutation::kKinds] = {
      "dropped", "doubled", "swapped", "peer", "source", "target", "finish"};
  return kNames[static_cast<int>(kind)];
}

std::vector<Mutation> Mutations(const Schedule& schedule, int rank, int size) {
  std::vector<Mutation> mutations;
  const auto add = [&](Mutation::Kind kind, std::size_t at,
                       const std::string& detail) -> Schedule& {
    mutations.push_back({kind,
                         std::string(MutationName(kind)) + " in rank " +
                             std::to_string(rank) + ", transfer " +
                             std::to_string(at) + ": \"" +
                             ToString(schedule.transfers[at]) + "\"" + detail,
                         schedule});
    return mutations.back().schedule;
  };
  const std::vector<Place> places = AllPlaces(schedule);
  const std::vector<Transfer>& transfers = schedule.transfers;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    std::vector<Transfer>& dropped =
        add(Mutation::Kind::kDropped, i, "").transfers;
    dropped.erase(dropped.begin() + at);
    std::vector<Transfer>& doubled =
        add(Mutation::Kind::kDoubled, i, "").transfers;
    doubled.insert(doubled.begin() + at, transfers[i]);
    for (std::size_t j = i + 1; j < transfers.size(); ++j) {
      if (transfers[i] != transfers[j]) {
        std::vector<Transfer>& swapped =
            add(Mutation::Kind::kSwapped, i,
                " and " + std::to_string(j) + ": \"" + ToString(transfers[j]) +
                    "\"")
                .transfers;
        std::swap(swapped[i], swapped[j]);
      }
    }
    for (const auto& [kind, transfer] :
         Readdressed(transfers[i], places, rank, size)) {
      add(kind, i, " -> \"" + ToString(transfer) + "\"").transfers[i] =
          transfer;
    }
  }
  return mutations;
}

}  // namespace ringpipe
