#include "tests/schedules/closed_form.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

namespace ringpipe {
namespace {

// By recursive descent. nullopt: the rest is not what it has to be.
class Parser {
 public:
  Parser(std::string_view formula, const ClosedFormValues& values)
      : rest_(formula), values_(values) {}

  std::string_view rest() const { return rest_; }

  std::optional<double> Sum() {
    std::optional<double> sum = Product();
    while (sum.has_value() && (Next() == '+' || Next() == '-')) {
      const double sign = Next() == '+' ? 1 : -1;
      rest_.remove_prefix(1);
      const std::optional<double> product = Product();
      sum = product.has_value() ? std::optional(*sum + sign * *product)
                                : std::nullopt;
    }
    return sum;
  }

 private:
  std::optional<double> Product() {
    std::optional<double> product = Factor();
    while (product.has_value() && Next() != '\0' && Next() != '+' &&
           Next() != '-' && Next() != ')') {
      const bool divides = Next() == '/';
      rest_.remove_prefix(divides ? 1 : 0);
      const std::optional<double> factor = Factor();
      product = !factor.has_value() ? std::nullopt
                : divides           ? std::optional(*product / *factor)
                                    : std::optional(*product * *factor);
    }
    return product;
  }

  std::optional<double> Factor() {
    if (Next() == '(') {
      rest_.remove_prefix(1);
      const std::optional<double> sum = Sum();
      if (!sum.has_value() || Next() != ')') {
        return std::nullopt;
      }
      rest_.remove_prefix(1);
      return sum;
    }
    double number = 0;
    const auto [end, error] =
        std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error == std::errc()) {
      rest_.remove_prefix(end - rest_.data());
      return number;
    }
    return Value();
  }

  // That of the longest name that follows.
  std::optional<double> Value() {
    const auto longest = std::max_element(
        values_.begin(), values_.end(), [this](const auto& a, const auto& b) {
          return Matches(a.first) < Matches(b.first);
        });
    if (longest == values_.end() || Matches(longest->first) == 0) {
      return std::nullopt;
    }
    rest_.remove_prefix(longest->first.size());
    return longest->second;
  }
  std::size_t Matches(std::string_view name) const {
    return rest_.starts_with(name) ? name.size() : 0;
  }

  // The next character that is no space; '\0' at the end.
  char Next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    return rest_.empty() ? '\0' : rest_.front();
  }

  std::string_view rest_;
  const ClosedFormValues& values_;
};

// Of chunks that rank 0 exchanges, where it acts for two ranks.
int ChunksOfHalvings(int p, int a) {
  int chunks = 0;
  for (int ranks = 1; ranks < a; ranks *= 2) {
    chunks += ranks + std::min(ranks, p - a);
  }
  return chunks;
}

int OnesBelow(int p) {
  int ones = 0;
  for (int number = 0; number < p; ++number) {
    ones += std::popcount(static_cast<unsigned>(number));
  }
  return ones;
}

int BusiestOfBlocks(int p) {
  int busiest = 0;
  for (int block = 1, smaller = 0; block <= p; block *= 2) {
    if ((p & block) == 0) {
      continue;
    }
    int larger = 2 * block;
    while (larger <= p && (p & larger) == 0) {
      larger *= 2;
    }
    const int exchanges =
        2 * (std::bit_width(static_cast<unsigned>(block)) - 1);
    busiest = std::max(
        busiest, exchanges + smaller + (larger <= p ? larger / block : 0));
    smaller = 1;
  }
  return busiest;
}

int Rows(const Member& of) {
  if (!of.hosts.empty()) {
    return static_cast<int>(
        std::set<int>(of.hosts.begin(), of.hosts.end()).size());
  }
  int rows = static_cast<int>(std::sqrt(of.size));
  while (of.size % rows != 0) {
    --rows;
  }
  return rows;
}

}  // namespace

ClosedFormValues ClosedFormValuesFor(const Member& of) {
  const int p = of.size;
  const auto ranks = static_cast<unsigned>(p);
  const int a = static_cast<int>(std::bit_floor(ranks));
  const int rows = Rows(of);
  return {{"p", p},
          {"lg p", std::log2(p)},
          {"⌊lg p⌋", std::bit_width(ranks) - 1},
          {"⌈lg p⌉", std::bit_width(ranks - 1)},
          {"a", a},
          {"h", 2 * p > 3 * a ? 1 : 0},
          {"s", ChunksOfHalvings(p, a)},
          {"t", OnesBelow(p)},
          {"w", BusiestOfBlocks(p)},
          {"r", rows},
          {"c", p / rows},
          {"n", 1},
          {"k", 1},
          {"α", 0},
          {"μ", 0},
          {"β", 0},
          {"γ", 0}};
}

Result<double> Evaluate(std::string_view formula,
                        const ClosedFormValues& values) {
  Parser parser(formula, values);
  const std::optional<double> value = parser.Sum();
  if (!value.has_value() || !parser.rest().empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "\"" + std::string(formula) + "\" is no formula from \"" +
                      std::string(parser.rest()) + "\" on");
  }
  return *value;
}

}  // namespace ringpipe
