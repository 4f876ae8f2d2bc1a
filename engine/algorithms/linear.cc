// One rank with all others.
#include "engine/algorithms/families.h"

namespace ringpipe {
namespace {

Schedule Broadcast(const Member& self) {
  if (self.rank != self.root) {
    return {1, 0, {Transfer::ReceiveCopy(Output(0), self.root)}};
  }
  Schedule schedule = CopyOfInput();
  for (int step = 1; step < self.size; ++step) {
    schedule.transfers.push_back(
        Transfer::Send(Input(0), Modulo(self.rank + step, self.size)));
  }
  return schedule;
}

Schedule Gather(const Member& self) {
  const Place own = Input(self.rank);
  if (self.rank != self.root) {
    return {self.size, 0, {Transfer::Send(own, self.root)}};
  }
  Schedule schedule = {
      self.size, 0, {Transfer::LocalCopy(own, Output(self.rank))}};
  for (int step = 1; step < self.size; ++step) {
    const int peer = Modulo(self.rank + step, self.size);
    schedule.transfers.push_back(Transfer::ReceiveCopy(Output(peer), peer));
  }
  return schedule;
}

Schedule Scatter(const Member& self) {
  const Place own = Output(self.rank);
  if (self.rank != self.root) {
    return {self.size, 0, {Transfer::ReceiveCopy(own, self.root)}};
  }
  Schedule schedule = {
      self.size, 0, {Transfer::LocalCopy(Input(self.rank), own)}};
  for (int step = 1; step < self.size; ++step) {
    const int peer = Modulo(self.rank + step, self.size);
    schedule.transfers.push_back(Transfer::Send(Input(peer), peer));
  }
  return schedule;
}

// Rank 0 reduces all inputs, in the order of the ranks, and hands the result
// out.
Schedule ParameterServer(const Member& self) {
  if (self.rank != 0) {
    return {1,
            0,
            {Transfer::Send(Input(0), 0), Transfer::ReceiveCopy(Output(0), 0)}};
  }
  Schedule schedule = {1, 1, {}};
  for (int peer = 1; peer < self.size; ++peer) {
    const Place sum = peer == 1 ? Input(0) : Scratch(0);
    const bool last = peer == self.size - 1;
    schedule.transfers.push_back(Transfer::ReceiveReduce(
        sum, last ? Output(0) : Scratch(0), peer, last));
  }
  for (int peer = 1; peer < self.size; ++peer) {
    schedule.transfers.push_back(Transfer::Send(Output(0), peer));
  }
  return schedule;
}

// Each send or receive gives its slot back by itself.
int One(const Member& of, int /*depth*/) { return of.size == 1 ? 0 : 1; }

constexpr AlgorithmInfo kLinear[] = {
    {.collective = Collective::kAllReduce,
     .name = "parameter_server",
     .also = "flat tree; Open MPI's basic linear",
     .source = "Li et al., \"Scaling Distributed Machine Learning with the "
               "Parameter Server\", OSDI 2014, with one server",
     .how = "Rank 0 gets the message of every other rank, reduces all, "
            "and sends each the result.",
     .algorithm = ForSeveral<ParameterServer>,
     .cost = {"2α + 2(p-1)(μ+nβ) + (p-1)nγ", "p-1"},
     .slots = OneMoreThanDepthFromThree},
    {.collective = Collective::kBroadcast,
     .name = "one_to_all",
     .also = "flat tree; basic linear",
     .source = kGloo,
     .how = "The root sends the message to every other rank.",
     .algorithm = Broadcast,
     .cost = {"α + (p-1)(μ+nβ)", "p-1"},
     .slots = One},
    {.collective = Collective::kBarrier,
     .name = "all_to_one",
     .also = "central barrier; basic linear",
     .source = kGloo,
     .how = "Every rank tells rank 0 that it has come, which tells all "
            "when it has heard of all.",
     .algorithm = ForSeveral<ParameterServer>,
     .cost = {"2α + 2(p-1)μ", "p-1"},
     .slots = OneMoreThanDepthFromThree},
    {.collective = Collective::kGather,
     .name = "linear",
     .also = "flat tree; basic linear",
     .source = kMpich,
     .how = "Every rank sends the root its chunk.",
     .algorithm = Gather,
     .cost = {"α + (p-1)μ + (p-1)/p nβ", "1"},
     .slots = One},
    {.collective = Collective::kScatter,
     .name = "linear",
     .also = "flat tree; basic linear",
     .source = kMpich,
     .how = "The root sends every rank its chunk.",
     .algorithm = Scatter,
     .cost = {"α + (p-1)μ + (p-1)/p nβ", "p-1"},
     .slots = One},
};

}  // namespace

std::span<const AlgorithmInfo> Linear() { return kLinear; }

}  // namespace ringpipe
