// Rings: a message goes from each rank to the next one, around all ranks. The
// ranks of a host follow each other, so that a message leaves and enters each
// host once.
#include <vector>

#include "engine/algorithms/families.h"
#include "engine/algorithms/group.h"

namespace ringpipe {
namespace {

// p-1 steps that reduce, after which each rank has one chunk's result, and p-1
// that hand the results around.
Schedule AllReduce(const Member& self) {
  const Group ring = AsRing(self);
  Schedule schedule = {self.size, self.size, {}};
  ring.ReduceAround(1, {}, schedule);
  ring.GatherAround(1, ring.BlockAfter(1, Place::Buffer::kOutput), schedule);
  return schedule;
}

// The first half, turned by one so that each rank ends with its own chunk.
Schedule ReduceScatter(const Member& self) {
  Schedule schedule = {self.size, self.size, {}};
  AsRing(self).ReduceAround(0, {}, schedule);
  return schedule;
}

// The second half.
Schedule AllGather(const Member& self) {
  Schedule schedule = {
      self.size, 0, {Transfer::LocalCopy(Input(self.rank), Output(self.rank))}};
  AsRing(self).GatherAround(0, Input(self.rank), schedule);
  return schedule;
}

// The message is not divided: each rank's sum of all travels around by itself.
Schedule UnsplitAllReduce(const Member& self) {
  const Group ring(self.rank, InHostOrder(self), std::vector<int>(self.size),
                   1);
  Schedule schedule = {1, 1, {}};
  ring.ReduceAround(0, {}, schedule);
  return schedule;
}

// Along the chain that begins at the root: sub-chunks follow each other, so
// that a long message takes the time of one transfer.
Schedule Broadcast(const Member& self) {
  const Group ring = AsRing(self);
  int place = 0;
  while (ring.RankAfter(-place) != self.root) {
    ++place;
  }
  const Place own = place == 0 ? Input(0) : Output(0);
  Schedule schedule = {
      1,
      0,
      {place == 0 ? Transfer::LocalCopy(Input(0), Output(0))
                  : Transfer::ReceiveCopy(Output(0), ring.RankAfter(-1))}};
  if (place < self.size - 1) {
    schedule.transfers.push_back(Transfer::Send(own, ring.RankAfter(1)));
  }
  return schedule;
}

constexpr std::string_view kPatarasuk =
    "Patarasuk and Yuan, \"Bandwidth optimal all-reduce algorithms for "
    "clusters "
    "of workstations\", J. Parallel Distrib. Comput. 69, 2009";

constexpr AlgorithmInfo kRings[] = {
    {.collective = Collective::kAllReduce,
     .name = "ring",
     .also = "bandwidth-optimal ring; baidu-allreduce; NCCL's Ring; Open MPI's "
             "segmented ring",
     .source = kPatarasuk,
     .how = "The message is one chunk for each rank. A partial sum of "
            "each chunk travels around all ranks, each of which adds its "
            "part; then the results travel around once more.",
     .algorithm = ForSeveral<AllReduce>,
     .cost = {"2(p-1)(α+μ) + 2(p-1)/p nβ + (p-1)/p nγ", "2(p-1)"},
     .slots = OneMoreThanDepth,
     .direct_over_sent = true},
    // Gloo passes the inputs around and reduces them on the side; here the
    // partial sums travel: the same messages in number, size and order.
    {.collective = Collective::kAllReduce,
     .name = "unsplit_ring",
     .source = kGloo,
     .how = "A sum of the whole message sets out from every rank and "
            "travels around all others, each of which adds its part. "
            "Every rank adds in another order.",
     .algorithm = ForSeveral<UnsplitAllReduce>,
     .cost = {"(p-1)(α+μ+nβ+nγ)", "p-1"},
     .slots = OneMoreThanDepth,
     .same_bits = false},
    {.collective = Collective::kReduceScatter,
     .name = "ring",
     .source = kPatarasuk,
     .how = "The first half of the allreduce of that name: a partial sum "
            "of each chunk travels around all ranks, and ends where it "
            "belongs.",
     .algorithm = ForSeveral<ReduceScatter>,
     .cost = {"(p-1)(α+μ) + (p-1)/p nβ + (p-1)/p nγ", "p-1"},
     .slots = OneMoreThanDepth},
    {.collective = Collective::kAllGather,
     .name = "ring",
     .source = kMpich,
     .how = "Every chunk travels around all ranks, and each keeps a copy.",
     .algorithm = AllGather,
     .cost = {"(p-1)(α+μ) + (p-1)/p nβ", "p-1"},
     .slots = OneMoreThanDepth},
    {.collective = Collective::kBroadcast,
     .name = "chain",
     .also = "pipeline; linear pipeline",
     .source = "Patarasuk, Faraj and Yuan, \"Pipelined broadcast on Ethernet "
               "switched clusters\", IPDPS 2006",
     .how = "The message goes from the root to the next rank, from that "
            "to the one after it, and so on. Its sub-chunks follow each "
            "other, so that all links are busy at the same time.",
     .algorithm = Broadcast,
     .cost = {"(p-1)α + (p-2+k)(μ + n/k β)", "1"},
     .slots = Depth},
};

}  // namespace

std::span<const AlgorithmInfo> Rings() { return kRings; }

}  // namespace ringpipe
