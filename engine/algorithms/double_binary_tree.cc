// Two binary trees, each for one half of the message, of which an inner rank of
// one is a leaf of the other: so all ranks have equally much to do.
#include <vector>

#include "engine/algorithms/families.h"

namespace ringpipe {
namespace {

// One of two trees. Ranks have numbers, under which number 0 is the root above
// a tree in which the numbers are sorted from left to right; the second tree is
// the first one mirrored, or, where an odd number of ranks would so have the
// same leaves, moved on by one.
class Tree {
 public:
  Tree(int tree, int rank, int size)
      : mirrored_(tree == 1 && size % 2 == 0),
        moved_(tree == 1 && size % 2 != 0 ? 1 : 0),
        size_(size),
        number_(Swapped(rank - moved_)) {}

  bool is_root() const { return number_ == 0; }
  int parent() const { return RankOf(ParentOf(number_)); }
  std::vector<int> children() const {
    std::vector<int> children;
    for (int number = 1; number < size_; ++number) {
      if (ParentOf(number) == number_) {
        children.push_back(RankOf(number));
      }
    }
    return children;
  }

 private:
  // With its lowest bit cleared and the next one set, if there is that number.
  int ParentOf(int number) const {
    const int bit = number & -number;
    const int parent = (number - bit) | (2 * bit);
    return parent < size_ ? parent : number - bit;
  }
  int Swapped(int number) const {
    return Modulo(mirrored_ ? size_ - 1 - number : number, size_);
  }
  int RankOf(int number) const {
    return Modulo(Swapped(number) + moved_, size_);
  }

  const bool mirrored_;
  const int moved_;
  const int size_;
  const int number_;
};

// Reduces chunk `chunk` up the tree, to output at the root.
void Up(const Tree& tree, int chunk, std::vector<Transfer>& transfers) {
  const std::vector<int> children = tree.children();
  Place sum = Input(chunk);
  for (const int child : children) {
    const bool last = tree.is_root() && child == children.back();
    transfers.push_back(Transfer::ReceiveReduce(
        sum, last ? Output(chunk) : Scratch(chunk), child, last));
    sum = Scratch(chunk);
  }
  if (!tree.is_root()) {
    transfers.push_back(Transfer::Send(sum, tree.parent()));
  }
}

void Down(const Tree& tree, int chunk, std::vector<Transfer>& transfers) {
  if (!tree.is_root()) {
    transfers.push_back(Transfer::ReceiveCopy(Output(chunk), tree.parent()));
  }
  for (const int child : tree.children()) {
    transfers.push_back(Transfer::Send(Output(chunk), child));
  }
}

Schedule AllReduce(const Member& self) {
  const Tree trees[] = {{0, self.rank, self.size}, {1, self.rank, self.size}};
  Schedule schedule = {2, 2, {}};
  for (const int chunk : {0, 1}) {
    Up(trees[chunk], chunk, schedule.transfers);
  }
  for (const int chunk : {0, 1}) {
    Down(trees[chunk], chunk, schedule.transfers);
  }
  return schedule;
}

// Of an odd number of ranks some wait for two children in one tree while they
// are between in the other.
int SlotsOfTwoTrees(const Member& of, int depth) {
  return of.size % 2 == 0 || depth == 1 ? OneMoreThanDepth(of, depth)
         : of.size == 1                 ? 0
                                        : 2 * depth;
}

constexpr AlgorithmInfo kDoubleBinaryTrees[] = {
    {.collective = Collective::kAllReduce,
     .name = "double_binary_tree",
     .also = "two-tree; NCCL's Tree",
     .source =
         "Sanders, Speck and Träff, \"Two-tree algorithms for full "
         "bandwidth broadcast, reduction and scan\", Parallel Comput. 35, "
         "2009",
     .how = "Each half of the message is reduced up a binary tree of its "
            "own, and its result goes down again. A rank that is between "
            "others in one tree is a leaf of the other, so that all have "
            "equally much to do.",
     .algorithm = ForSeveral<AllReduce>,
     .cost = {"2⌈lg p⌉α + 2nβ + nγ", "4"},
     .remark =
         "The time is what a long message takes at least, because that much "
         "goes through the busiest rank. The two trees are not timed so that "
         "a link is always free when it is needed: in the simulator, in which "
         "a link takes one message after another, a long message takes 3.3 nβ "
         "between 8 ranks and 3.8 nβ between 16. Three ranks: 5α, because of "
         "the order of messages between two of them. Two and three ranks "
         "send 2 and 3 messages.",
     .slots = SlotsOfTwoTrees},
};

}  // namespace

std::span<const AlgorithmInfo> DoubleBinaryTrees() {
  return kDoubleBinaryTrees;
}

}  // namespace ringpipe
