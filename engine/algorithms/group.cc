#include "engine/algorithms/group.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/algorithms/families.h"

namespace ringpipe {

std::vector<int> InHostOrder(const Member& self) {
  std::vector<int> order(self.size);
  std::iota(order.begin(), order.end(), 0);
  if (!self.hosts.empty()) {
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return std::pair(self.hosts[a], a) < std::pair(self.hosts[b], b);
    });
  }
  return order;
}

Group::Group(int self, std::vector<int> ranks, std::vector<int> chunks,
             int width)
    : ranks_(std::move(ranks)),
      chunks_(std::move(chunks)),
      width_(width),
      place_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), self) -
                              ranks_.begin())) {}

int Group::PlaceAfter(int places) const {
  return Modulo(place_ + places, size());
}

void Group::ReduceAround(int last, Reduction reduction,
                         Schedule& schedule) const {
  for (int step = 1; step < size(); ++step) {
    const bool is_last = step == size() - 1;
    schedule.transfers.push_back(Transfer::Send(
        BlockAfter(last - step,
                   step == 1 ? reduction.from : Place::Buffer::kScratch),
        RankAfter(1)));
    schedule.transfers.push_back(Transfer::ReceiveReduce(
        BlockAfter(last - step - 1, reduction.from),
        BlockAfter(last - step - 1,
                   is_last ? reduction.to : Place::Buffer::kScratch),
        RankAfter(-1), is_last && reduction.finish));
  }
}

void Group::GatherAround(int first, Place own, Schedule& schedule) const {
  for (int step = 0; step < size() - 1; ++step) {
    schedule.transfers.push_back(Transfer::Send(
        step == 0 ? own : BlockAfter(first - step, Place::Buffer::kOutput),
        RankAfter(1)));
    schedule.transfers.push_back(Transfer::ReceiveCopy(
        BlockAfter(first - step - 1, Place::Buffer::kOutput), RankAfter(-1)));
  }
}

// Each turns first to the one after it, so that not all turn to the same one.
void Group::ReduceDirectly(Reduction reduction, Schedule& schedule) const {
  for (int step = 1; step < size(); ++step) {
    schedule.transfers.push_back(
        Transfer::Send(BlockAfter(step, reduction.from), RankAfter(step)));
  }
  Place sum = BlockAfter(0, reduction.from);
  for (int step = 1; step < size(); ++step) {
    const bool is_last = step == size() - 1;
    const Place target =
        BlockAfter(0, is_last ? reduction.to : Place::Buffer::kScratch);
    schedule.transfers.push_back(Transfer::ReceiveReduce(
        sum, target, RankAfter(step), is_last && reduction.finish));
    sum = target;
  }
}

void Group::GatherDirectly(Place own, Schedule& schedule) const {
  for (int step = 1; step < size(); ++step) {
    schedule.transfers.push_back(Transfer::Send(own, RankAfter(step)));
  }
  for (int step = 1; step < size(); ++step) {
    schedule.transfers.push_back(Transfer::ReceiveCopy(
        BlockAfter(step, Place::Buffer::kOutput), RankAfter(step)));
  }
}

Group InRankOrder(const Member& self) { return AsRing({self.rank, self.size}); }

Group AsRing(const Member& self) {
  std::vector<int> ranks = InHostOrder(self);
  return {self.rank, ranks, ranks, 1};
}

}  // namespace ringpipe
