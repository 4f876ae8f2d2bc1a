#include "validate/partners.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ringpipe::validate {
namespace {

// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
// Generators", OOPSLA 2014): the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // From 0 to `end` - 1.
  int Below(int end) { return static_cast<int>(Next() % end); }

 private:
  std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

// Of `value` modulo `modulus`, which have no common factor (Euclid's
// algorithm).
int Inverse(int value, int modulus) {
  int inverse = 0, next = 1, rest = modulus, next_rest = value % modulus;
  while (next_rest != 0) {
    const int quotient = rest / next_rest;
    inverse = std::exchange(next, inverse - quotient * next);
    rest = std::exchange(next_rest, rest - quotient * next_rest);
  }
  return (inverse + modulus) % modulus;
}

// The place of `rank` in its ring of ranks r, r + distance, ...
int PlaceInRing(int ranks, int distance, int rank) {
  const int rings = std::gcd(ranks, distance);
  const int length = ranks / rings;
  // rank / rings = place * (distance / rings) modulo length.
  const int step = distance / rings % length;
  return static_cast<int>(static_cast<long long>(rank / rings) *
                          Inverse(step, length) % length);
}

int StepAtPlace(int length, int place) {
  return length % 2 != 0 && place == length - 1 ? 2 : place % 2;
}

std::vector<Pairing> Ring(const std::vector<int>& order) {
  const int ranks = static_cast<int>(order.size());
  std::vector<Pairing> pairings(ranks);
  for (int i = 0; i < ranks && ranks > 1; ++i) {
    const int next = order[(i + 1) % ranks];
    pairings[order[i]].to = next;
    pairings[next].from = order[i];
  }
  return pairings;
}

}  // namespace

int ShiftSteps(int ranks, int distance) {
  return ranks / std::gcd(ranks, distance) % 2 != 0 ? 3 : 2;
}

Pairing ShiftPairing(int ranks, int distance, int step, int rank) {
  const int length = ranks / std::gcd(ranks, distance);
  const int place = PlaceInRing(ranks, distance, rank);
  Pairing pairing;
  if (StepAtPlace(length, place) == step) {
    pairing.to = (rank + distance) % ranks;
  }
  if (StepAtPlace(length, (place + length - 1) % length) == step) {
    pairing.from = (rank + ranks - distance) % ranks;
  }
  return pairing;
}

int StepOfLink(int ranks, int from, int to) {
  const int distance = (to + ranks - from) % ranks;
  const int length = ranks / std::gcd(ranks, distance);
  return StepAtPlace(length, PlaceInRing(ranks, distance, from));
}

LinkLoads::LinkLoads(const std::vector<int>& hosts)
    : ranks_(static_cast<int>(hosts.size())),
      loads_(hosts.size() * hosts.size(), 0) {
  const int host_count =
      hosts.empty() ? 0 : *std::max_element(hosts.begin(), hosts.end()) + 1;
  for (int distance = 1; distance < ranks_; ++distance) {
    std::vector<int> step_of(ranks_);
    for (int from = 0; from < ranks_; ++from) {
      step_of[from] = StepOfLink(ranks_, from, (from + distance) % ranks_);
    }
    for (int step = 0; step < 3; ++step) {
      std::vector<int> out(host_count), in(host_count), inside(host_count);
      for (int from = 0; from < ranks_; ++from) {
        const int to = (from + distance) % ranks_;
        if (step_of[from] == step) {
          (hosts[from] == hosts[to] ? inside : out)[hosts[from]] += 1;
          in[hosts[to]] += hosts[from] != hosts[to] ? 1 : 0;
        }
      }
      for (int from = 0; from < ranks_; ++from) {
        const int to = (from + distance) % ranks_;
        if (step_of[from] == step) {
          loads_[static_cast<std::size_t>(from) * ranks_ + to] =
              hosts[from] == hosts[to]
                  ? inside[hosts[from]]
                  : std::max(out[hosts[from]], in[hosts[to]]);
        }
      }
    }
  }
}

int TournamentRounds(int ranks) {
  return ranks < 2 ? 0 : ranks - 1 + ranks % 2;
}

// The circle method: the last of an even number stays, the others go round. An
// odd number has a place that nobody has.
int TournamentPartner(int ranks, int round, int rank) {
  const int places = ranks + ranks % 2;
  const int circle = places - 1;
  int partner;
  if (rank == circle) {
    partner = round % circle;
  } else if (rank == round % circle) {
    partner = circle;
  } else {
    partner = (2 * round - rank + 2 * circle) % circle;
  }
  return partner < ranks ? partner : -1;
}

std::vector<int> InOrder(int ranks) {
  std::vector<int> order(ranks);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Fisher and Yates' shuffle.
std::vector<int> RandomOrder(int ranks, std::uint64_t seed) {
  std::vector<int> order = InOrder(ranks);
  Random random(seed);
  for (int i = ranks - 1; i > 0; --i) {
    std::swap(order[i], order[random.Below(i + 1)]);
  }
  return order;
}

std::vector<Pairing> NaturalRing(int ranks) { return Ring(InOrder(ranks)); }

std::vector<Pairing> RandomRing(int ranks, std::uint64_t seed) {
  return Ring(RandomOrder(ranks, seed));
}

std::vector<Pairing> Bisection(const std::vector<int>& order) {
  const int half = static_cast<int>(order.size()) / 2;
  std::vector<Pairing> pairings(order.size());
  for (int i = 0; i < half; ++i) {
    pairings[order[i]] = {order[i + half], order[i + half]};
    pairings[order[i + half]] = {order[i], order[i]};
  }
  return pairings;
}

// Sattolo's shuffle, which makes one cycle of all: nobody stays in place.
std::vector<Pairing> RandomPermutation(int ranks, std::uint64_t seed) {
  std::vector<int> to = InOrder(ranks);
  Random random(seed);
  for (int i = ranks - 1; i > 0; --i) {
    std::swap(to[i], to[random.Below(i)]);
  }
  std::vector<Pairing> pairings(ranks);
  for (int rank = 0; rank < ranks && ranks > 1; ++rank) {
    pairings[rank].to = to[rank];
    pairings[to[rank]].from = rank;
  }
  return pairings;
}

}  // namespace ringpipe::validate
