// Ranks in rows and columns: a reduce-scatter along the rows, an allreduce of
// each part along the columns, and an all-gather along the rows.
#include <algorithm>
#include <cassert>
#include <map>
#include <utility>
#include <vector>

#include "engine/algorithms/families.h"
#include "engine/algorithms/group.h"

namespace ringpipe {
namespace {

using Buffer = Place::Buffer;

// This rank's row and column. Ranks are in host order, row by row; the message
// is as many chunks as there are ranks, and the c-th of a row ends its row's
// reduction with the c-th block of as many chunks as there are rows.
struct Lines {
  Lines(const Member& self, int row_size)
      : row(LineOf(self, row_size, /*is_row=*/true)),
        column(LineOf(self, row_size, /*is_row=*/false)) {}

  static Group LineOf(const Member& self, int row_size, bool is_row) {
    const std::vector<int> order = InHostOrder(self);
    const int rows = self.size / row_size;
    const int own = static_cast<int>(
        std::find(order.begin(), order.end(), self.rank) - order.begin());
    std::vector<int> ranks;
    std::vector<int> chunks;
    for (int place = 0; place < self.size; ++place) {
      const int row = place / row_size;
      const int column = place % row_size;
      if (is_row ? row == own / row_size : column == own % row_size) {
        ranks.push_back(order[place]);
        chunks.push_back(column * rows + (is_row ? 0 : row));
      }
    }
    return {self.rank, ranks, chunks, is_row ? rows : 1};
  }

  Group row;
  Group column;
};

// What the rows do; the columns are rings.
enum class Rows { kRings, kAllPairs };

Schedule AllReduce(const Member& self, int row_size, Rows rows) {
  const auto [row, column] = Lines(self, row_size);
  Schedule schedule = {self.size, self.size, {}};
  const bool one_row = column.size() == 1;
  const Group::Reduction in_row = {
      Buffer::kInput, one_row ? Buffer::kOutput : Buffer::kScratch, one_row};
  if (rows == Rows::kRings) {
    row.ReduceAround(0, in_row, schedule);
  } else {
    row.ReduceDirectly(in_row, schedule);
  }
  column.ReduceAround(0,
                      {row.size() == 1 ? Buffer::kInput : Buffer::kScratch,
                       Buffer::kOutput, true},
                      schedule);
  column.GatherAround(0, column.BlockAfter(0, Buffer::kOutput), schedule);
  const Place own = row.BlockAfter(0, Buffer::kOutput);
  if (rows == Rows::kRings) {
    row.GatherAround(0, own, schedule);
  } else {
    row.GatherDirectly(own, schedule);
  }
  return schedule;
}

// As square as there are divisors; a row is not shorter than a column, so that
// most bytes stay among ranks that are near each other.
int RowSizeOf(int size) {
  int rows = 1;
  for (int divisor = 1; divisor * divisor <= size; ++divisor) {
    if (size % divisor == 0) {
      rows = divisor;
    }
  }
  return size / rows;
}

Schedule Torus(const Member& self) {
  return AllReduce(self, RowSizeOf(self.size), Rows::kRings);
}

// How many ranks each host has; 0: not all equally many.
int RanksPerHost(const Member& of) {
  if (of.hosts.empty()) {
    return 1;
  }
  std::map<int, int> ranks;
  for (const int host : of.hosts) {
    ++ranks[host];
  }
  const int each = ranks.begin()->second;
  return each * static_cast<int>(ranks.size()) == of.size &&
                 std::all_of(
                     ranks.begin(), ranks.end(),
                     [&](const auto& host) { return host.second == each; })
             ? each
             : 0;
}

bool HostsAreAlike(const Member& of) { return RanksPerHost(of) > 0; }

// A row is a host, and a column what the hosts' ranks of one number reach by
// one rail.
Schedule TwoLevel(const Member& self) {
  return AllReduce(self, RanksPerHost(self), Rows::kAllPairs);
}

// What a row has reduced is sent on a column step by step, a chunk a step.
int SlotsOfTorus(const Member& of, int depth) {
  const int rows = of.size / RowSizeOf(of.size);
  return rows == 1 ? OneMoreThanDepth(of, depth)
                   : ValuesAndOne(rows + 1, depth);
}

// The same, and the copies for all of the host.
int SlotsOfTwoLevel(const Member& of, int depth) {
  const int row = RanksPerHost(of);
  assert(row > 0);  // HostsAreAlike
  const int rows = of.size / row;
  return row == 1    ? OneMoreThanDepth(of, depth)
         : rows == 1 ? CopiesForAll(of, depth)
                     : ValuesAndOne(rows + row - 1, depth);
}

constexpr AlgorithmInfo kGrids[] = {
    {.collective = Collective::kAllReduce,
     .name = "torus",
     .also = "2D-torus all-reduce; 2D ring",
     .source = "Mikami et al., \"Massively Distributed SGD: ImageNet/ResNet-50 "
               "Training in a Flash\", 2018: 2D-torus all-reduce",
     .how = "The ranks are a grid that is as square as their number "
            "permits. A reduce-scatter around each row, an allreduce "
            "around each column, an all-gather around each row.",
     .algorithm = ForSeveral<Torus>,
     .cost = {"2(r+c-2)(α+μ) + 2(p-1)/p nβ + (p-1)/p nγ", "2(r+c-2)"},
     .slots = SlotsOfTorus},
    {.collective = Collective::kAllReduce,
     .name = "two_level",
     .also = "hierarchical allreduce; SMP-aware",
     .source = "Cho et al., \"BlueConnect: Decomposing All-Reduce for Deep "
               "Learning on Heterogeneous Network Hierarchy\", MLSys 2019",
     .how = "A row is a host, whose ranks reduce a chunk each as in "
            "all_pairs; a column is the ranks of all hosts that have the "
            "same chunk, which goes around them as in ring; then the "
            "ranks of a host give each other the results.",
     .algorithm = ForSeveral<TwoLevel>,
     .cost = {"2rα + 2(r+c-2)μ + 2(p-1)/p nβ + (p-1)/p nγ", "2(r+c-2)"},
     .remark = "As if the links within a host were like those between hosts. "
               "With one rank on each host it is the ring.",
     .slots = SlotsOfTwoLevel,
     .exists = HostsAreAlike},
};

}  // namespace

std::span<const AlgorithmInfo> Grids() { return kGrids; }

}  // namespace ringpipe
