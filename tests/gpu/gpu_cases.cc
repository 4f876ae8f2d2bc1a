#include "tests/gpu/gpu_cases.h"

#include <array>

#include "tests/gpu/covering_array.h"

namespace ringpipe::testing {
namespace {

// A barrier has no memory.
constexpr std::array kWithBuffers = {
    Collective::kAllReduce,   Collective::kReduceScatter,
    Collective::kAllGather,   Collective::kBroadcast,
    Collective::kReduce,      Collective::kGather,
    Collective::kScatter,     Collective::kAllToAll,
    Collective::kSendReceive,
};
static_assert(kWithBuffers.size() == kCollectiveTable.size() - 1);
constexpr std::array kWays = {Way::kHostMemory, Way::kRails};

// The dimensions, in the order of GpuCase's members.
std::vector<int> Values(const std::vector<MemoryKind>& kinds) {
  const int memories = static_cast<int>(kinds.size());
  return {kWithBuffers.size(),
          kDataTypes.size(),
          kReduceOps.size(),
          memories,
          memories,
          kWays.size(),
          2};
}

GpuCase CaseOf(const Row& row, const std::vector<MemoryKind>& kinds) {
  return {.collective = kWithBuffers[row[0]],
          .type = kDataTypes[row[1]],
          .op = kReduceOps[row[2]],
          .input = kinds[row[3]],
          .output = kinds[row[4]],
          .way = kWays[row[5]],
          .in_place = row[6] == 1};
}

std::vector<GpuCase> CasesOf(const std::vector<Row>& rows,
                             const std::vector<MemoryKind>& kinds) {
  std::vector<GpuCase> cases;
  cases.reserve(rows.size());
  for (const Row& row : rows) {
    cases.push_back(CaseOf(row, kinds));
  }
  return cases;
}

std::vector<Row> AllowedRows(const std::vector<MemoryKind>& kinds) {
  return AllRows(Values(kinds),
                 [&](const Row& row) { return IsAllowed(CaseOf(row, kinds)); });
}

}  // namespace

std::string Words(const GpuCase& one) {
  const CollectiveInfo& info = InfoOf(one.collective);
  return std::string(info.name) + " of " + std::string(Name(one.type)) +
         (info.reduces ? ", " + std::string(Name(one.op)) : "") + ", from " +
         std::string(Name(one.input)) + " to " + std::string(Name(one.output)) +
         " memory, by " + std::string(Name(one.way)) +
         (one.in_place ? ", in place" : "");
}

bool IsAllowed(const GpuCase& one) {
  const CollectiveInfo& info = InfoOf(one.collective);
  const bool has_op = info.reduces || one.op == ReduceOp::kSum;
  const bool has_place =
      !one.in_place || (info.in_place && one.input == one.output);
  return has_op && has_place;
}

std::vector<GpuCase> AllCases(const std::vector<MemoryKind>& kinds) {
  return CasesOf(AllowedRows(kinds), kinds);
}

std::vector<GpuCase> CasesOfAllPairs(const std::vector<MemoryKind>& kinds,
                                     unsigned seed) {
  return CasesOf(CoverPairs(AllowedRows(kinds), seed), kinds);
}

}  // namespace ringpipe::testing
