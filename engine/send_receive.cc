#include "engine/send_receive.h"

namespace ringpipe {
namespace {

constexpr int kRanks = kLastPartner + 2;  // and none

Schedule SendReceive(const Member& self) {
  const Partners partners = PartnersOf(self.root);
  Schedule schedule;
  if (partners.to != Partners::kNone) {
    schedule.transfers.push_back(Transfer::Send(Input(0), partners.to));
  }
  if (partners.from != Partners::kNone) {
    schedule.transfers.push_back(
        Transfer::ReceiveCopy(Output(0), partners.from));
  }
  return schedule;
}

int OneSlot(const Member& of, int /*depth*/) { return of.size == 1 ? 0 : 1; }

constexpr AlgorithmInfo kSendReceive = {.collective = Collective::kSendReceive,
                                        .name = "direct",
                                        .source = "no publication",
                                        .algorithm = SendReceive,
                                        .slots = OneSlot,
                                        .in_place = false,
                                        .same_bits = false};

}  // namespace

int AsRoot(const Partners& partners) {
  return (partners.to + 1) * kRanks + partners.from + 1;
}

Partners PartnersOf(int root) { return {root / kRanks - 1, root % kRanks - 1}; }

const AlgorithmInfo& SendReceiveAlgorithm() { return kSendReceive; }

}  // namespace ringpipe
