#include "pipeline/term_table.h"

#include <algorithm>
#include <functional>

namespace ringpipe {

std::uint64_t HashPair(std::uint64_t a, std::uint64_t b) {
  // The finalizer of MurmurHash3, by Austin Appleby (public domain).
  std::uint64_t hash = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53u;
  return hash ^ (hash >> 33);
}

TermTable::TermTable() { nodes_.emplace_back(); }

TermTable::Term TermTable::Add(const Node& node) {
  nodes_.push_back(node);
  return static_cast<Term>(nodes_.size() - 1);
}

TermTable::Term TermTable::Input(const Piece& piece) {
  const auto [known, is_new] = input_terms_.try_emplace(piece, kUndefined);
  if (is_new) {
    inputs_.push_back(piece);
    known->second =
        Add({Kind::kInput, static_cast<Term>(inputs_.size() - 1), 0,
             HashPair(HashPair(piece.rank, piece.chunk), piece.subchunk)});
  }
  return known->second;
}

TermTable::Term TermTable::Unscaled(const Piece& piece) {
  const auto [known, is_new] = unscaled_terms_.try_emplace(piece, kUndefined);
  if (is_new) {
    const Term input = Input(piece);
    known->second =
        Add({Kind::kUnscaled, nodes_[input].a, 0, HashPair(2, Hash(input))});
  }
  return known->second;
}

TermTable::Term TermTable::Scale(Term value) {
  if (nodes_[value].kind == Kind::kUnscaled) {
    return Input(inputs_[nodes_[value].a]);
  }
  const auto [known, is_new] = scaled_again_.try_emplace(value, kUndefined);
  if (is_new) {
    known->second =
        Add({Kind::kScaledAgain, value, 0, HashPair(3, Hash(value))});
  }
  return known->second;
}

TermTable::Term TermTable::Reduce(Term a, Term b) {
  const std::uint64_t operands = std::uint64_t{a} << 32 | b;
  const auto [known, is_new] = reductions_.try_emplace(operands, kUndefined);
  if (is_new) {
    known->second = Add({Kind::kReduce, a, b, Hash(a) + Hash(b)});
  }
  return known->second;
}

TermTable::Term TermTable::Finish(Term value) {
  const auto [known, is_new] = finished_.try_emplace(value, kUndefined);
  if (is_new) {
    known->second = Add({Kind::kFinish, value, 0, HashPair(1, Hash(value))});
  }
  return known->second;
}

TermTable::Contents TermTable::Expand(Term term) const {
  Contents contents;
  if (nodes_[term].kind == Kind::kFinish) {
    contents.finished = true;
    term = nodes_[term].a;
  }
  // From the largest number down, so that a term that occurs several times is
  // expanded once, after all its occurrences have been counted.
  std::map<Term, std::uint64_t, std::greater<>> open = {{term, 1}};
  while (!open.empty()) {
    const auto [at, times] = *open.begin();
    open.erase(open.begin());
    const Node& node = nodes_[at];
    switch (node.kind) {
      case Kind::kUndefined:
        contents.undefined = true;
        break;
      case Kind::kInput:
        contents.pieces[inputs_[node.a]] += times;
        break;
      case Kind::kUnscaled:
        contents.unscaled = true;
        contents.pieces[inputs_[node.a]] += times;
        break;
      case Kind::kReduce:
        open[node.a] += times;
        open[node.b] += times;
        break;
      case Kind::kScaledAgain:
        contents.scaled_again = true;
        open[node.a] += times;
        break;
      case Kind::kFinish:
        contents.finished_early = true;
        open[node.a] += times;
        break;
    }
  }
  return contents;
}

std::string ToString(const TermTable::Contents& contents) {
  std::string text;
  int chunk = -1;
  for (const auto& [piece, times] : contents.pieces) {
    if (piece.chunk != chunk) {
      chunk = piece.chunk;
      text += (text.empty() ? "" : "; ") + std::string("input[") +
              std::to_string(chunk) + "] of ranks ";
    } else {
      text += ", ";
    }
    text += std::to_string(piece.rank);
    if (times > 1) {
      text += " (" + std::to_string(times) + " times)";
    }
  }
  if (text.empty()) {
    text = "nothing";
  }
  if (contents.undefined) {
    text += "; memory never written";
  }
  if (contents.unscaled) {
    text += "; not scaled";
  }
  if (contents.scaled_again) {
    text += "; scaled once too often";
  }
  if (contents.finished_early) {
    text += "; finished too early";
  }
  return text + (contents.finished ? "; finished" : "; not finished");
}

}  // namespace ringpipe
