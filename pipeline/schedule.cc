#include "pipeline/schedule.h"

namespace ringpipe {
namespace {

std::string ToString(Place place) {
  const char* names[] = {"input", "output", "scratch"};
  return std::string(names[static_cast<int>(place.buffer)]) + "[" +
         std::to_string(place.chunk) + "]";
}

}  // namespace

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
