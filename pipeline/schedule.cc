#include "pipeline/schedule.h"

#include <set>

namespace ringpipe {
namespace {

std::string ToString(Place place) {
  const char* names[] = {"input", "output", "scratch"};
  return std::string(names[static_cast<int>(place.buffer)]) + "[" +
         std::to_string(place.chunk) +
         (place.count == 1 ? "" : ", " + std::to_string(place.count)) + "]";
}

}  // namespace

Schedule SplitRanges(const Schedule& schedule) {
  Schedule split = schedule;
  split.transfers.clear();
  for (const Transfer& transfer : schedule.transfers) {
    for (int position = 0; position < transfer.count(); ++position) {
      Transfer& part = split.transfers.emplace_back(transfer);
      for (Place* const place : {&part.source, &part.operand, &part.target}) {
        *place = place->At(position, schedule.chunks);
      }
    }
  }
  return split;
}

bool SaysTheSameToAll(const Schedule& schedule) {
  std::set<int> peers;
  const Transfer* said = nullptr;
  bool written = false;  // since it was said
  for (const Transfer& transfer : schedule.transfers) {
    if (transfer.writes()) {
      written = true;
      continue;
    }
    if (!peers.insert(transfer.peer).second) {
      continue;
    }
    if (said != nullptr && (written || transfer.source != said->source)) {
      return false;
    }
    said = &transfer;
    written = false;
  }
  return true;
}

std::string ToString(const Transfer& transfer) {
  const std::string peer = "rank " + std::to_string(transfer.peer);
  switch (transfer.kind) {
    case Transfer::Kind::kSend:
      return "send " + ToString(transfer.source) + " -> " + peer;
    case Transfer::Kind::kReceiveReduce:
      return "receive " + peer + " + " + ToString(transfer.source) + " -> " +
             ToString(transfer.target) + (transfer.finish ? ", finish" : "");
    case Transfer::Kind::kReceiveCopy:
      return "receive " + peer + " -> " + ToString(transfer.target);
    case Transfer::Kind::kLocalCopy:
      return "copy " + ToString(transfer.source) + " -> " +
             ToString(transfer.target);
    case Transfer::Kind::kLocalReduce:
      return "reduce " + ToString(transfer.source) + " + " +
             ToString(transfer.operand) + " -> " + ToString(transfer.target) +
             (transfer.finish ? ", finish" : "");
  }
  return "no transfer";
}

}  // namespace ringpipe
