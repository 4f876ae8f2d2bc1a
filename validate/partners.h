// Who talks to whom in each step of a validation. Pure: all ranks find the
// same.
#ifndef RINGPIPE_VALIDATE_PARTNERS_H_
#define RINGPIPE_VALIDATE_PARTNERS_H_

#include <cstdint>
#include <vector>

namespace ringpipe::validate {

// -1: nobody.
struct Pairing {
  int to = -1;
  int from = -1;
  bool operator==(const Pairing&) const = default;
};

// --- Every directed link once, by shifts -------------------------------------
//
// In phase d = 1 ... ranks - 1 rank r sends to r + d, as mpiGraph has it
// (Moody, "Contention-free Routing for Shift-based Communication in MPI
// Applications on Large-scale InfiniBand Clusters", LLNL, 2009): a pattern that
// a fat tree carries without contention.
//
// But a rank that sends and receives at once waits for the slower of the two,
// so that one slow link would show in its neighbours' times too. So each phase
// has two steps, in which a rank either sends or receives: the links r -> r + d
// make rings, and alternate links of a ring belong to alternate steps. A ring
// of an odd number of ranks has one link left over, for a third step.
int ShiftSteps(int ranks, int distance);
Pairing ShiftPairing(int ranks, int distance, int step, int rank);

// The step of its phase in which a link is measured.
int StepOfLink(int ranks, int from, int to);

// How many links between hosts are in use together with the link from -> to, on
// the busier of the two hosts, counting itself; inside a host, how many of its
// links. `hosts` by rank: equal numbers are one host.
class LinkLoads {
 public:
  explicit LinkLoads(const std::vector<int>& hosts);
  int Of(int from, int to) const {
    return loads_[static_cast<std::size_t>(from) * ranks_ + to];
  }

 private:
  int ranks_;
  std::vector<int> loads_;
};

// --- Pairs that exchange ---

// Round k of a tournament in which each pair of ranks meets once; `ranks` - 1
// rounds, or `ranks` where that is odd. -1: this rank has no partner.
int TournamentRounds(int ranks);
int TournamentPartner(int ranks, int round, int rank);

// --- All at once ---

// A ring through all ranks, in a random order: the next rank and the one
// before.
std::vector<Pairing> RandomRing(int ranks, std::uint64_t seed);
std::vector<Pairing> NaturalRing(int ranks);

// Two halves, each rank of one with one of the other; where the number is odd,
// one rank has no partner. By position in an order of the ranks: i with
// i + ranks / 2.
std::vector<Pairing> Bisection(const std::vector<int>& order);
std::vector<int> InOrder(int ranks);
std::vector<int> RandomOrder(int ranks, std::uint64_t seed);

// Everybody sends to somebody else and receives from somebody else: a random
// permutation that leaves nobody in place.
std::vector<Pairing> RandomPermutation(int ranks, std::uint64_t seed);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_PARTNERS_H_
