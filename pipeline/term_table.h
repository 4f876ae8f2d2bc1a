// Symbolic values: what a piece of memory holds, as the expression by which it
// came about.
#ifndef RINGPIPE_PIPELINE_TERM_TABLE_H_
#define RINGPIPE_PIPELINE_TERM_TABLE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace ringpipe {

// Numbers expressions so that equal ones have equal numbers. Reduction neither
// commutes nor associates: terms are equal exactly where the values are the
// same bits for every operation. Not thread-safe.
class TermTable {
 public:
  using Term = std::uint32_t;
  // What nobody has written.
  static constexpr Term kUndefined = 0;

  // One piece of one rank's input.
  struct Piece {
    int chunk = 0;
    int rank = 0;
    std::uint64_t subchunk = 0;

    auto operator<=>(const Piece&) const = default;
  };

  // What a term is made of.
  struct Contents {
    std::map<Piece, std::uint64_t> pieces;  // how often each
    bool undefined = false;                 // and something never written
    bool finished = false;                  // once, after all reductions
    bool finished_early = false;            // before the last, or twice
    bool unscaled = false;                  // input that had to be scaled
    bool scaled_again = false;              // what needed it not, or no more

    bool operator==(const Contents&) const = default;
  };

  TermTable();

  Term Input(const Piece& piece);
  // The same input before it is scaled, and what it is then. Of all else: a
  // value that is nobody's promise.
  Term Unscaled(const Piece& piece);
  Term Scale(Term value);
  Term Reduce(Term a, Term b);
  Term Finish(Term value);

  Contents Expand(Term term) const;

  // The same for equal terms of two tables.
  std::uint64_t Hash(Term term) const { return nodes_[term].hash; }

 private:
  enum class Kind {
    kUndefined,
    kInput,
    kUnscaled,
    kReduce,
    kFinish,
    kScaledAgain,
  };
  struct Node {
    Kind kind = Kind::kUndefined;
    Term a = 0;  // kInput, kUnscaled: index in inputs_
    Term b = 0;
    std::uint64_t hash = 0;
  };

  Term Add(const Node& node);

  std::vector<Node> nodes_;  // operands have smaller numbers
  std::vector<Piece> inputs_;
  std::map<Piece, Term> input_terms_;
  std::map<Piece, Term> unscaled_terms_;
  std::unordered_map<std::uint64_t, Term> reductions_;  // by operands
  std::unordered_map<Term, Term> finished_;
  std::unordered_map<Term, Term> scaled_again_;
};

// "input[2] of ranks 0, 1, 3 twice; not finished", for messages.
std::string ToString(const TermTable::Contents& contents);

// A well-mixed hash of both.
std::uint64_t HashPair(std::uint64_t a, std::uint64_t b);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_TERM_TABLE_H_
