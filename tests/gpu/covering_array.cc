#include "tests/gpu/covering_array.h"

#include <algorithm>
#include <cstddef>
#include <queue>
#include <random>
#include <utility>

namespace ringpipe::testing {
namespace {

// Pairs of values of two dimensions that have not been together yet.
class Uncovered {
 public:
  explicit Uncovered(const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      for (const int value : row) {
        most_ = std::max(most_, static_cast<std::size_t>(value) + 1);
      }
    }
    dimensions_ = rows.front().size();
    const std::size_t values = dimensions_ * most_;
    covered_.resize(values * values);
  }

  std::size_t In(const Row& row) const {
    std::size_t count = 0;
    ForEach(row, [&](std::size_t pair) { count += covered_[pair] ? 0 : 1; });
    return count;
  }
  void Cover(const Row& row) {
    ForEach(row, [&](std::size_t pair) { covered_[pair] = true; });
  }

 private:
  template <typename Function>
  void ForEach(const Row& row, Function function) const {
    for (std::size_t b = 0; b < dimensions_; ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        function((a * most_ + row[a]) * dimensions_ * most_ + b * most_ +
                 row[b]);
      }
    }
  }

  std::size_t dimensions_ = 0;
  std::size_t most_ = 0;  // values that a dimension has
  std::vector<bool> covered_;
};

}  // namespace

std::vector<Row> AllRows(const std::vector<int>& values,
                         const std::function<bool(const Row&)>& allowed) {
  std::vector<Row> rows;
  Row row(values.size());
  for (std::size_t carry = 0; carry < row.size();) {
    if (allowed(row)) {
      rows.push_back(row);
    }
    for (carry = 0; carry < row.size() && ++row[carry] == values[carry];
         ++carry) {
      row[carry] = 0;
    }
  }
  return rows;
}

// Greedy: the next row is one of those with the most new pairs. What a row has
// of them only becomes less, so that a count from earlier is a bound.
std::vector<Row> CoverPairs(std::vector<Row> rows, unsigned seed) {
  std::vector<Row> chosen;
  if (rows.empty()) {
    return chosen;
  }
  std::shuffle(rows.begin(), rows.end(), std::mt19937(seed));
  Uncovered uncovered(rows);
  std::priority_queue<std::pair<std::size_t, std::size_t>> bounds;  // of a row
  for (std::size_t i = 0; i < rows.size(); ++i) {
    bounds.emplace(uncovered.In(rows[i]), i);
  }
  while (!bounds.empty()) {
    const auto [bound, i] = bounds.top();
    bounds.pop();
    const std::size_t now = uncovered.In(rows[i]);
    if (now == bound) {
      uncovered.Cover(rows[i]);
      chosen.push_back(rows[i]);
    } else if (now > 0) {
      bounds.emplace(now, i);
    }
  }
  return chosen;
}

}  // namespace ringpipe::testing
