#include "tests/schedules/mutation.h"

#include <cstddef>
#include <utility>

namespace ringpipe {
namespace {

// Of so many chunks.
std::vector<Place> AllPlaces(const Schedule& schedule, int count) {
  std::vector<Place> places;
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    places.push_back(Input(chunk, count));
    places.push_back(Output(chunk, count));
  }
  for (int chunk = 0; chunk < schedule.scratch; ++chunk) {
    places.push_back(Scratch(chunk, count));
  }
  return places;
}

// Within its copy of the chunks.
Place Shifted(Place place, int by, int chunks) {
  const Place first = place.At(by + chunks, chunks);
  return {place.buffer, first.chunk, place.count};
}

// All values of one transfer that differ from it in one field.
std::vector<std::pair<Mutation::Kind, Transfer>> Readdressed(
    const Transfer& transfer, const Schedule& schedule, int rank, int size) {
  const std::vector<Place> places = AllPlaces(schedule, transfer.count());
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
  for (const int by : {-1, 1}) {
    if (schedule.chunks == 1) {
      break;
    }
    changed.emplace_back(Mutation::Kind::kShifted, transfer);
    Transfer& other = changed.back().second;
    for (Place* place : {&other.source, &other.operand, &other.target}) {
      *place = Shifted(*place, by, schedule.chunks);
    }
  }
  for (const int more : {-1, 1}) {
    if (transfer.count() + more >= 1 &&
        transfer.count() + more <= schedule.chunks) {
      changed.emplace_back(Mutation::Kind::kLength, transfer);
      Transfer& other = changed.back().second;
      for (Place* place : {&other.source, &other.operand, &other.target}) {
        place->count += more;
      }
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

// The first chunk of a range apart from the others.
void Split(std::vector<Transfer>& transfers, std::ptrdiff_t at, int chunks) {
  Transfer first = transfers[at];
  Transfer& rest = transfers[at];
  for (Place* place : {&rest.source, &rest.operand, &rest.target}) {
    *place = {place->buffer, place->At(1, chunks).chunk, place->count - 1};
  }
  for (Place* place : {&first.source, &first.operand, &first.target}) {
    place->count = 1;
  }
  transfers.insert(transfers.begin() + at, first);
}

}  // namespace

const char* MutationName(Mutation::Kind kind) {
  constexpr const char* kNames[Mutation::kKinds] = {
      "dropped", "doubled", "swapped", "peer",  "source",
      "target",  "shifted", "length",  "split", "finish"};
  return kNames[static_cast<int>(kind)];
}

std::vector<Mutation> Mutations(const Schedule& schedule, int rank, int size) {
  std::vector<Mutation> mutations;
  const auto add = [&](Mutation::Kind kind, std::size_t at,
                       const std::string& detail) -> Schedule& {
    mutations.push_back({kind, schedule.transfers[at].peer >= 0,
                         std::string(MutationName(kind)) + " in rank " +
                             std::to_string(rank) + ", transfer " +
                             std::to_string(at) + ": \"" +
                             ToString(schedule.transfers[at]) + "\"" + detail,
                         schedule});
    return mutations.back().schedule;
  };
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
    if (transfers[i].count() > 1) {
      std::vector<Transfer>& split =
          add(Mutation::Kind::kSplit, i, "").transfers;
      Split(split, at, schedule.chunks);
    }
    for (const auto& [kind, transfer] :
         Readdressed(transfers[i], schedule, rank, size)) {
      add(kind, i, " -> \"" + ToString(transfer) + "\"").transfers[i] =
          transfer;
    }
  }
  return mutations;
}

}  // namespace ringpipe
