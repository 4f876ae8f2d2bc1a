#include "docs/algorithms_page.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "docs/schedule_picture.h"
#include "engine/algorithms.h"
#include "engine/test_name.h"
#include "pipeline/checker.h"

namespace ringpipe {
namespace {

constexpr std::string_view kIntroduction =
    R"(<!-- Made from the registry of algorithms; do not edit. To make it anew:
bazel run //docs:algorithms > docs/algorithms.md -->

# Algorithms

ringpipe has several algorithms for each collective. They give the same result; they differ in how many messages they
send one after another, in how many bytes each rank sends, and in who talks to whom. You need not choose: unless
`RINGPIPE_ALGORITHM` says otherwise, [this rule](#what-is-chosen) does. This page is for those who want to choose, and
for those who add an algorithm.

To choose, give a collective and a name, on all ranks the same:

    RINGPIPE_ALGORITHM=allreduce:rabenseifner,barrier:dissemination

## How to choose

- **Short messages** are a matter of latency: take the one with the fewest messages in its longest chain, as long as the
  busiest rank does not have too many to send. `one_shot` and `all_pairs` have chains of 1 and 2 messages, but each rank
  sends one to every other. From 16 ranks on, or where a message is expensive for the sender, those with lg p steps are
  better: `recursive_doubling`, `dissemination`, `bruck`, `binomial_tree`.
- **Long messages** are a matter of bytes. No allreduce can do with less than 2(p-1)/p n for the busiest rank, and
  `ring`, `torus`, `all_pairs`, `rabenseifner` and `halving_doubling` need no more. A long message is cut into sub-chunks
  that follow each other, so that latency and reductions are hidden behind the wire; then prefer the one whose
  messages cross the fewest links of your network. Around a ring each host's link is crossed once in each direction.
  `rabenseifner` sends half of all bytes to the farthest rank.
- **Many ranks on each of a few hosts:** `two_level` reduces within the hosts first, and its ranks then share the links
  between hosts; `torus` does the like for a network that is a grid.
- **A number of ranks that is no power of two** costs the recursive ones a whole message more each way. Rings, all pairs,
  the torus and Bruck's do not mind.
- **A rank that is slow** delays those that wait for it. In a chain all ranks behind it wait; in a tree its subtree.

A program that measures is better than a rule: `bazel run //bench:allreduce`, with `RINGPIPE_ALGORITHM` set, tells you.

## What the formulas mean

A formula is the time of one call between p ranks that are all equally far from each other, with links that
send and receive at the same time, and enough slots.

| | |
| --- | --- |
| p, n | ranks, and the bytes of the whole message (of an all-gather: of its result) |
| α | latency: from when a message has left until it has arrived |
| μ | what a message costs the link, however short it is |
| β | time on a link for each byte |
| γ | time to reduce a byte |
| k | sub-chunks of each chunk; where there is no k, one |
| lg p, ⌊lg p⌋, ⌈lg p⌉ | log2 p; rounded down, rounded up |
| a | 2^⌊lg p⌋, the largest power of two that is not above p |
| h | 1 where p is above 3/2 a, else 0 |
| s | the sum of 2^j + min(2^j, p-a) over all j below ⌊lg p⌋ |
| t | how many ones the binary digits of the numbers below p have together |
| w | p is a sum of powers of two, its blocks; for a block b, whose next larger block is b': 2 lg b + b'/b + 1, without b'/b for the largest block and without the 1 for the smallest; w is the largest of these |
| r, c | rows and columns: of `torus`, with r as near to c as the divisors of p permit; of `two_level` hosts, and ranks on each |

Textbooks have no μ: their α is α + μ here, so put α = 0 to find their formulas. They let a rank send one message after
another; here all that may leave does so at once, and the factor of α is the longest *chain*: messages of
which each can leave only when the one before has arrived. Where two things can happen at the same time, such as
a reduction while the next message arrives, the time is less than the sum.

Tests hold each formula against the [simulator](../pipeline/simulator.h), and the messages against what the
[checker](../pipeline/checker.h) counts; the numbers for 8 ranks below are the checker's. Ranks are on hosts of
their own, except for `two_level`, which has two hosts. What a call says in front (which call it is, a
message each way) is not counted.

)";

bool IsPowerOfTwo(int size) {
  return std::has_single_bit(static_cast<unsigned>(size));
}

// Of `size` ranks; those of two_level on two hosts.
std::vector<int> HostsFor(const AlgorithmInfo& info, int size) {
  std::vector<int> hosts;
  if (info.name == "two_level") {
    for (int rank = 0; rank < size; ++rank) {
      hosts.push_back(2 * rank / size);
    }
  }
  return hosts;
}

// What the checker says of so many ranks, with one sub-chunk.
struct Proof {
  std::vector<SentMessage> messages;
  int chunks = 1;
  bool equal_chunks = false;
};
Proof ProofOf(const AlgorithmInfo& info, int size) {
  const std::vector<int> hosts = HostsFor(info, size);
  const std::vector<Schedule> schedules =
      SchedulesOf(info.algorithm, size, /*root=*/0, hosts);
  CheckOptions options;
  options.collective = info.collective;
  options.same_bits = info.same_bits;
  options.subchunks = 1;
  options.slots = SlotsFor(info, {0, size, 0, hosts}, options.depth);
  RunResult result;
  const Status status = Check(schedules, options, &result);
  if (!status.ok()) {
    std::cerr << TestName(info) << ": " << status.ToString() << "\n";
    std::abort();
  }
  std::stable_sort(result.messages.begin(), result.messages.end(),
                   [](const SentMessage& a, const SentMessage& b) {
                     return std::tuple(a.from, a.chain, a.to) <
                            std::tuple(b.from, b.chain, b.to);
                   });
  return {std::move(result.messages), schedules[0].chunks,
          schedules[0].equal_chunks};
}

// The part of the message that the busiest rank sends: "1.75 n".
std::string BusiestBytes(const Proof& proof, int size) {
  std::vector<int> chunks(size);
  for (const SentMessage& message : proof.messages) {
    chunks[message.from] += message.source.count;
  }
  const double part =
      static_cast<double>(*std::max_element(chunks.begin(), chunks.end())) /
      proof.chunks;
  std::ostringstream text;
  text << std::setprecision(4) << part << " n";
  return text.str();
}

// For which numbers of ranks.
std::string SizesOf(const AlgorithmInfo& info) {
  bool powers = true;
  for (int size = 1; size <= 32; ++size) {
    powers = powers && Exists(info, {0, size}) == IsPowerOfTwo(size);
  }
  return info.exists == nullptr ? "all"
         : powers               ? "powers of two"
                                : "as many on each host";
}

std::string LinkTo(const AlgorithmInfo& info) {
  std::string anchor =
      std::string(CollectiveName(info.collective)) + std::string(info.name);
  return "[" + std::string(info.name) + "](#" + anchor + ")";
}

std::string TableOf(const std::vector<const AlgorithmInfo*>& algorithms) {
  std::string table =
      "| | time | longest chain, 8 ranks | messages of the busiest rank | its "
      "bytes | ranks | in place | same bits |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const AlgorithmInfo* const info : algorithms) {
    const Proof proof = ProofOf(*info, 8);
    const MessageCounts counts = CountMessages(proof.messages, 8);
    const bool reduces = info->collective == Collective::kAllReduce;
    table +=
        "| " + LinkTo(*info) + " | " + std::string(info->cost.time) + " | " +
        std::to_string(counts.longest_chain) + " | " +
        std::to_string(counts.sent_by_busiest) + " | " +
        (info->collective == Collective::kBarrier ? "–"
                                                  : BusiestBytes(proof, 8)) +
        " | " + SizesOf(*info) + " | " + (info->in_place ? "yes" : "no") +
        " | " +
        (!reduces          ? "–"
         : info->same_bits ? "yes"
                           : "no") +
        " |\n";
  }
  return table;
}

// Of 8 ranks where that is short, else of 4.
std::string BestPicture(const AlgorithmInfo& info, int& size) {
  constexpr std::size_t kMostColumns = 96;
  constexpr int kMostLines = 7;
  for (size = 8; size >= 4; size /= 2) {
    const Proof proof = ProofOf(info, size);
    std::string picture =
        PictureOf(proof.messages, size, proof.chunks, proof.equal_chunks);
    std::size_t columns = 0;
    std::istringstream lines(picture);
    for (std::string line; std::getline(lines, line);) {
      columns = std::max(columns, line.size());
    }
    if (size == 4 ||
        (columns <= kMostColumns &&
         std::count(picture.begin(), picture.end(), '\n') <= kMostLines)) {
      return picture;
    }
  }
  return "";
}

std::string FormulaLine(const char* when, const Cost& cost) {
  return std::string("- ") + when + ": time " + std::string(cost.time) +
         "; the busiest rank sends " + std::string(cost.sends) +
         (cost.sends == "1" ? " message" : " messages") + "\n";
}

std::string SectionOf(const AlgorithmInfo& info) {
  std::string section = "### `" + std::string(CollectiveName(info.collective)) +
                        ":" + std::string(info.name) + "`\n\n" +
                        std::string(info.how) + "\n\n";
  const bool varies = !info.cost_off_powers.time.empty();
  section += FormulaLine(varies ? "powers of two" : "cost", info.cost);
  if (varies) {
    section += FormulaLine("other numbers of ranks", info.cost_off_powers);
  }
  if (!info.remark.empty()) {
    section += "- " + std::string(info.remark) + "\n";
  }
  if (!info.also.empty()) {
    section += "- elsewhere: " + std::string(info.also) + "\n";
  }
  section += "- source: " + std::string(info.source) + "\n\n";
  int size = 0;
  const std::string picture = BestPicture(info, size);
  section += "```text\n" + picture + "```\n\n";
  if (varies) {
    const Proof proof = ProofOf(info, 3);
    section += "```text\n" +
               PictureOf(proof.messages, 3, proof.chunks, proof.equal_chunks) +
               "```\n\n";
  }
  return section;
}

// What RINGPIPE_ALGORITHM=mpich takes: from how many bytes on which.
std::string MpichTable() {
  constexpr std::uint64_t kMost = 1 << 20;
  std::string table =
      "`RINGPIPE_ALGORITHM=mpich` takes what MPICH does by the sizes that it "
      "has published (Thakur, Rabenseifner and Gropp, \"Optimization of "
      "collective communication operations in MPICH\", 2005), on one host as "
      "on several. Of a broadcast between a power of two it lacks the "
      "all-gather by recursive doubling. Bytes are those of the whole "
      "message.\n\n| | 7 ranks | 8 ranks |\n| --- | --- | --- |\n";
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter,
        Collective::kAllGather, Collective::kBroadcast, Collective::kReduce,
        Collective::kAllToAll}) {
    table += std::string("| ") + CollectiveName(collective) + " |";
    for (const int size : {7, 8}) {
      const AlgorithmChoice choice =
          AlgorithmChoice::Parse("mpich", {0, size}).value();
      table += " " + LinkTo(choice.For(collective, 0));
      std::uint64_t from = 0;
      while (&choice.For(collective, from) != &choice.For(collective, kMost)) {
        // Up to `same` it is the one of `from`.
        std::uint64_t same = from, other = kMost;
        while (other - same > 1) {
          const std::uint64_t middle = (same + other) / 2;
          (&choice.For(collective, middle) == &choice.For(collective, from)
               ? same
               : other) = middle;
        }
        from = other;
        table += "; from " + std::to_string(from) + " bytes " +
                 LinkTo(choice.For(collective, from));
      }
      table += " |";
    }
    table += "\n";
  }
  return table + "\n";
}

// By what the engine takes.
std::string ChoiceTable() {
  struct Case {
    const char* name;
    std::uint64_t bytes;
    CommonHost host;
  };
  constexpr std::array kCases = {
      Case{"between hosts, up to 4 KiB", 4096, {}}, Case{"longer", 4097, {}},
      Case{"8 ranks on one host, up to 4 KiB", 4096, {8, 8}},
      Case{"longer", 4097, {8, 8}},
      Case{"with 2 processors, up to 256 KiB", 256 << 10, {8, 2}}};
  std::string table = "## What is chosen\n\n| |";
  std::string line = "| --- |";
  for (const Case& which : kCases) {
    table += std::string(" ") + which.name + " |";
    line += " --- |";
  }
  table += "\n" + line + "\n";
  for (int number = 0; number < kCollectives; ++number) {
    const auto collective = static_cast<Collective>(number);
    table += std::string("| ") + CollectiveName(collective) + " |";
    for (const Case& which : kCases) {
      table +=
          " " +
          LinkTo(AlgorithmChoice().For(collective, which.bytes, which.host)) +
          " |";
    }
    table += "\n";
  }
  return table +
         "\nOn one host, the column \"longer\" also holds for an allreduce or "
         "reduce-scatter whose inputs of all ranks together have more than 32 "
         "KiB, and for a reduce-scatter of more than a sub-chunk; instead of "
         "it the last column where there are at least 4 ranks a processor, "
         "for a reduce-scatter of any size. Between hosts it holds for a "
         "reduce-scatter, all-gather or broadcast of more than a "
         "sub-chunk.\n\n" +
         MpichTable();
}

constexpr std::string_view kHowToRead =
    R"(## How to read the pictures

A column is what a rank sends. `AB -> 2` is a message with the chunks A and B to rank 2; `AB +-> 2` is one that rank 2
adds to what it has. Messages of one step can leave together; one of a later step carries what came with an
earlier one. The root is rank 0. What ranks copy and reduce by themselves is not shown.

)";

}  // namespace

std::string AlgorithmsPage() {
  std::string page = std::string(kIntroduction) + ChoiceTable();
  page += kHowToRead;
  for (int number = 0; number < kCollectives; ++number) {
    const auto collective = static_cast<Collective>(number);
    std::vector<const AlgorithmInfo*> algorithms;
    for (const AlgorithmInfo& info : Algorithms()) {
      if (info.collective == collective) {
        algorithms.push_back(&info);
      }
    }
    page += std::string("## ") + CollectiveName(collective) + "\n\n" +
            TableOf(algorithms) + "\n";
    for (const AlgorithmInfo* const info : algorithms) {
      page += SectionOf(*info);
    }
  }
  page.pop_back();  // the last of two
  return page;
}

}  // namespace ringpipe
