// Binomial trees: in each step the ranks that have a message, or those that
// still have one to hand in, double or halve.
#include <algorithm>
#include <vector>

#include "engine/algorithms/families.h"

namespace ringpipe {
namespace {

// Ranks are numbered from the root: below number v are v + 2^k for each 2^k
// smaller than v's lowest bit, and the subtree of v has the numbers from v on
// up to that bit.
class Tree {
 public:
  explicit Tree(const Member& self)
      : size_(self.size),
        root_(self.root),
        number_(Modulo(self.rank - self.root, self.size)),
        lowest_bit_(number_ == 0 ? 1 << CeilLog(self.size)
                                 : number_ & -number_) {}

  bool is_root() const { return number_ == 0; }
  int parent() const { return RankOf(number_ - lowest_bit_); }
  // A rank below, and how many its subtree has.
  struct Child {
    int rank;
    int ranks;
  };
  // The largest subtree first.
  std::vector<Child> children() const {
    std::vector<Child> children;
    for (int distance = lowest_bit_ / 2; distance > 0; distance /= 2) {
      if (number_ + distance < size_) {
        children.push_back(
            {RankOf(number_ + distance), Ranks(number_ + distance, distance)});
      }
    }
    return children;
  }
  // In this rank's subtree; with it, they follow each other.
  int ranks() const { return Ranks(number_, lowest_bit_); }

 private:
  int RankOf(int number) const { return Modulo(number + root_, size_); }
  int Ranks(int number, int most) const {
    return std::min(most, size_ - number);
  }

  const int size_;
  const int root_;
  const int number_;
  const int lowest_bit_;
};

// Whether the rank's subtree has chunk `chunk`, one a rank.
bool Has(const Member& self, int chunk) {
  return Modulo(chunk - self.rank, self.size) < Tree(self).ranks();
}

Schedule Broadcast(const Member& self) {
  const Tree tree(self);
  Schedule schedule = {
      1,
      0,
      {tree.is_root() ? Transfer::LocalCopy(Input(0), Output(0))
                      : Transfer::ReceiveCopy(Output(0), tree.parent())}};
  for (const Tree::Child& child : tree.children()) {
    schedule.transfers.push_back(
        Transfer::Send(tree.is_root() ? Input(0) : Output(0), child.rank));
  }
  return schedule;
}

// The smallest subtree hands in first.
Schedule Reduce(const Member& self) {
  const Tree tree(self);
  Schedule schedule = {1, 1, {}};
  Place sum = Input(0);
  const std::vector<Tree::Child> children = tree.children();
  for (auto child = children.rbegin(); child != children.rend(); ++child) {
    const bool last = tree.is_root() && child + 1 == children.rend();
    schedule.transfers.push_back(Transfer::ReceiveReduce(
        sum, last ? Output(0) : Scratch(0), child->rank, last));
    sum = Scratch(0);
  }
  if (!tree.is_root()) {
    schedule.transfers.push_back(Transfer::Send(sum, tree.parent()));
  }
  return schedule;
}

Schedule Gather(const Member& self) {
  const Tree tree(self);
  Schedule schedule = {self.size, self.size, {}};
  const auto place = [&](int chunk, int count) {
    return tree.is_root() ? Output(chunk, count) : Scratch(chunk, count);
  };
  const std::vector<Tree::Child> children = tree.children();
  if (tree.is_root() || !children.empty()) {
    schedule.transfers.push_back(
        Transfer::LocalCopy(Input(self.rank), place(self.rank, 1)));
  }
  for (auto child = children.rbegin(); child != children.rend(); ++child) {
    schedule.transfers.push_back(
        Transfer::ReceiveCopy(place(child->rank, child->ranks), child->rank));
  }
  if (!tree.is_root()) {
    schedule.transfers.push_back(Transfer::Send(
        children.empty() ? Input(self.rank) : Scratch(self.rank, tree.ranks()),
        tree.parent()));
  }
  return schedule;
}

Schedule Scatter(const Member& self) {
  const Tree tree(self);
  Schedule schedule = {self.size, self.size, {}};
  const auto place = [&](int chunk, int count) {
    return tree.is_root() ? Input(chunk, count) : Scratch(chunk, count);
  };
  if (!tree.is_root()) {
    schedule.transfers.push_back(Transfer::ReceiveCopy(
        tree.children().empty() ? Output(self.rank)
                                : Scratch(self.rank, tree.ranks()),
        tree.parent()));
  }
  for (const Tree::Child& child : tree.children()) {
    schedule.transfers.push_back(
        Transfer::Send(place(child.rank, child.ranks), child.rank));
  }
  if (tree.is_root() || !tree.children().empty()) {
    schedule.transfers.push_back(
        Transfer::LocalCopy(place(self.rank, 1), Output(self.rank)));
  }
  return schedule;
}

// Up the tree of rank 0, and down again.
Schedule ReduceThenBroadcast(const Member& self) {
  const Member member = {self.rank, self.size, 0, self.hosts};
  Schedule schedule = Reduce(member);
  for (const Transfer& transfer : Broadcast(member).transfers) {
    if (transfer.kind != Transfer::Kind::kLocalCopy) {
      schedule.transfers.push_back(transfer);
      if (transfer.kind == Transfer::Kind::kSend) {
        schedule.transfers.back().source = Output(0);
      }
    }
  }
  return schedule;
}

// Up the tree of rank 0, which then sends each its chunk.
Schedule ReduceThenScatter(const Member& self) {
  const int all = self.size;
  Schedule schedule = {all, all, {}};
  const Tree tree({self.rank, self.size, 0, self.hosts});
  Place sum = Input(0, all);
  const std::vector<Tree::Child> children = tree.children();
  for (auto child = children.rbegin(); child != children.rend(); ++child) {
    const bool last = tree.is_root() && child + 1 == children.rend();
    schedule.transfers.push_back(
        Transfer::ReceiveReduce(sum, Scratch(0, all), child->rank, last));
    sum = Scratch(0, all);
  }
  if (!tree.is_root()) {
    schedule.transfers.push_back(Transfer::Send(sum, tree.parent()));
    schedule.transfers.push_back(Transfer::ReceiveCopy(Output(self.rank), 0));
    return schedule;
  }
  for (int rank = 1; rank < all; ++rank) {
    schedule.transfers.push_back(Transfer::Send(Scratch(rank), rank));
  }
  schedule.transfers.push_back(Transfer::LocalCopy(Scratch(0), Output(0)));
  return schedule;
}

// Down the tree each rank gets the chunks of its subtree; then they go around.
Schedule ScatterThenAllGather(const Member& self) {
  const Tree tree(self);
  Schedule schedule = {self.size, 0, {}};
  std::vector<Transfer>& transfers = schedule.transfers;
  if (!tree.is_root()) {
    transfers.push_back(
        Transfer::ReceiveCopy(Output(self.rank, tree.ranks()), tree.parent()));
  }
  for (const Tree::Child& child : tree.children()) {
    transfers.push_back(Transfer::Send(tree.is_root()
                                           ? Input(child.rank, child.ranks)
                                           : Output(child.rank, child.ranks),
                                       child.rank));
  }
  if (tree.is_root()) {
    transfers.push_back(
        Transfer::LocalCopy(Input(0, self.size), Output(0, self.size)));
  }
  const int next = Modulo(self.rank + 1, self.size);
  const int previous = Modulo(self.rank - 1, self.size);
  for (int step = 0; step < self.size - 1; ++step) {
    const int sent = Modulo(self.rank - step, self.size);
    const int received = Modulo(self.rank - step - 1, self.size);
    // What the next rank has of its own subtree it is not sent.
    if (!Has({next, self.size, self.root, self.hosts}, sent)) {
      transfers.push_back(
          Transfer::Send(tree.is_root() ? Input(sent) : Output(sent), next));
    }
    if (!Has(self, received)) {
      transfers.push_back(Transfer::ReceiveCopy(Output(received), previous));
    }
  }
  return schedule;
}

// As Depth; with three ranks there is still none between.
int SlotsOfTree(const Member& of, int depth) {
  return of.size == 1 ? 0 : of.size <= 3 ? 1 : depth;
}
int SlotsOfReduction(const Member& of, int depth) {
  return of.size == 2 ? 1 : OneMoreThanDepth(of, depth);
}
int SlotsOfGather(const Member& of, int depth) {
  return of.size == 1 ? 0 : of.size <= 3 ? 1 : CopiesOfDoublings(of, depth);
}
// What comes down the tree is sent around besides.
int SlotsOfScatterAndGather(const Member& of, int depth) {
  return of.size <= 2 ? of.size - 1 : of.size <= 6 ? depth : 2 * depth;
}

constexpr AlgorithmInfo kBinomialTrees[] = {
    {.collective = Collective::kAllReduce,
     .name = "reduce_broadcast",
     .also = "binomial reduce and broadcast; Open MPI's nonoverlapping",
     .source = kMpich,
     .how = "Up a binomial tree to rank 0 the message is reduced, and "
            "down the same tree the result goes back.",
     .algorithm = ForSeveral<ReduceThenBroadcast>,
     .cost = {"2⌊lg p⌋α + 2⌈lg p⌉(μ+nβ) + ⌈lg p⌉nγ", "⌈lg p⌉"},
     .slots = OneMoreThanDepthFromThree},
    {.collective = Collective::kReduceScatter,
     .name = "reduce_scatter",
     .source = kMpich,
     .how = "Up a binomial tree to rank 0 the message is reduced; then "
            "rank 0 sends each rank its chunk.",
     .algorithm = ForSeveral<ReduceThenScatter>,
     .cost = {"(⌊lg p⌋+1)α + (⌈lg p⌉+p-1)μ + (⌈lg p⌉+(p-1)/p)nβ + ⌈lg p⌉nγ",
              "p-1"},
     .slots = OneMoreThanDepthFromThree,
     .slots_of_split = ChunksAndOne},
    {.collective = Collective::kBroadcast,
     .name = "binomial_tree",
     .source = kMpich,
     .how = "The root sends the message to the roots of smaller and "
            "smaller parts of the ranks, which do the same within their "
            "parts.",
     .algorithm = Broadcast,
     .cost = {"⌊lg p⌋α + ⌈lg p⌉(μ+nβ)", "⌈lg p⌉"},
     .slots = SlotsOfTree},
    {.collective = Collective::kBroadcast,
     .name = "scatter_all_gather",
     .also = "van de Geijn's broadcast; MPICH's broadcast of long messages",
     .source = kMpich,
     .how = "Down a binomial tree each rank gets the chunks of its part "
            "of the ranks; then the chunks travel around all ranks.",
     .algorithm = ScatterThenAllGather,
     .cost = {"(p-1)α + (⌈lg p⌉+p-1)μ + 2(p-1)/p nβ", "⌈lg p⌉+p-1"},
     .remark = "The chunks set out while the tree is still at work, so that "
               "its ⌈lg p⌉ steps are no part of the longest chain, as "
               "they are in the textbooks.",
     .slots = SlotsOfScatterAndGather},
    {.collective = Collective::kReduce,
     .name = "binomial_tree",
     .source = kMpich,
     .how = "The roots of smaller parts of the ranks, which have reduced "
            "within their parts, hand their sums to the roots of larger "
            "ones.",
     .algorithm = ForSeveral<Reduce>,
     .cost = {"⌊lg p⌋α + ⌈lg p⌉(μ+nβ+nγ)", "1"},
     .slots = SlotsOfReduction},
    {.collective = Collective::kGather,
     .name = "binomial_tree",
     .source = kMpich,
     .how = "The roots of smaller parts of the ranks, which have gathered "
            "within their parts, hand what they have to the roots of "
            "larger ones.",
     .algorithm = Gather,
     .cost = {"⌊lg p⌋α + ⌈lg p⌉μ + (p-1)/p nβ", "1"},
     .slots = SlotsOfGather,
     .slots_of_split = HalfAndOne},
    {.collective = Collective::kScatter,
     .name = "binomial_tree",
     .source = kMpich,
     .how = "The root sends their chunks to the roots of smaller and "
            "smaller parts of the ranks, which do the same within their "
            "parts.",
     .algorithm = Scatter,
     .cost = {"⌊lg p⌋α + ⌈lg p⌉μ + (p-1)/p nβ", "⌈lg p⌉"},
     .slots = SlotsOfTree,
     .slots_of_split = HalfAndOne},
};

}  // namespace

std::span<const AlgorithmInfo> BinomialTrees() { return kBinomialTrees; }

}  // namespace ringpipe
