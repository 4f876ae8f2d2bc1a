// One rank of a job that checks collectives, or repeats one until it fails.
//
//   check_collectives check [BYTES...]
//   check_collectives repeat BYTES
//   check_collectives outlive BYTES
//   check_collectives algorithms RANKS
//
// Which rank it is, and its device, come from ringpipe's variables. "check"
// runs allreduce, reduce-scatter, all-gather and broadcast with messages of
// each size, in memory of malloc and of Communicator::Allocate, out of place
// and in place, and compares every element. It prints a line a case,
//
//   allreduce bytes=1000 memory=private in_place=0 wrong=0
//
// and at the end what this rank's algorithms must have sent, in all and to
// ranks of the other half of the job:
//
//   sent=123456 crossing=61728
//
// "algorithms" makes no communicator. It prints which algorithms of these
// collectives, and of barrier, there are for so many ranks, one a line:
// "allreduce:ring". "repeat" prints "running" after the first allreduce and
// goes on until one fails, whose status it prints: "failed after 12 calls: peer
// lost: ...". "outlive" has ranks 0 and 1 exchange a message of so many bytes,
// in a call that the others have ended, and have left, long before.
//
// Exit status: 0 where all elements were right; 1 where one was wrong; 3 where
// a call failed; 2: usage.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/algorithms.h"
#include "engine/communicator.h"
#include "pipeline/schedule.h"
#include "reduction/data_type.h"
#include "tests/reference.h"

namespace ringpipe::testing {
namespace {

// Integers this small are exact in it, whatever the order of additions.
using Element = float;
constexpr DataType kType = DataType::kFloat32;
constexpr ReduceOp kOp = ReduceOp::kSum;
constexpr Element kPoison = -1;  // no result is negative

constexpr int kExitWrong = 1;
constexpr int kExitUsage = 2;
constexpr int kExitFailed = 3;

// Messages up to this size run in both kinds of memory, out of place and in
// place; up to the next out of place in memory of malloc and in place in
// allocated memory; larger ones in one of these in turn. The guest moves some
// 100 MB/s.
constexpr std::size_t kFourPlacesBytes = 1U << 20;
constexpr std::size_t kTwoPlacesBytes = 16U << 20;

constexpr std::array kCollectives = {
    Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
    Collective::kBroadcast};

struct Case {
  Collective collective;
  std::size_t bytes;  // of the whole message, as asked for
  bool allocated;     // by the communicator
  bool in_place;
  int root;  // of a broadcast
};

// Bytes that this rank's algorithms must have sent.
struct Traffic {
  std::uint64_t sent = 0;
  std::uint64_t crossing = 0;  // to ranks of the other half
};

// Two buffers of equal size, of malloc or of the communicator.
class Buffers {
 public:
  static Result<Buffers> Create(Communicator* communicator,
                                std::size_t elements, bool allocated) {
    Buffers buffers(communicator);
    for (Element*& buffer : buffers.buffers_) {
      if (allocated) {
        RINGPIPE_ASSIGN_OR_RETURN(
            void* const memory,
            communicator->Allocate(elements * sizeof(Element)));
        buffers.allocated_.push_back(memory);
        buffer = static_cast<Element*>(memory);
      } else {
        buffers.private_.emplace_back(elements);
        buffer = buffers.private_.back().data();
      }
      std::fill(buffer, buffer + elements, kPoison);
    }
    return buffers;
  }

  Buffers(Buffers&& other) noexcept = default;
  Buffers& operator=(Buffers&&) = delete;
  ~Buffers() {
    for (void* memory : allocated_) {
      if (const Status status = communicator_->Free(memory); !status.ok()) {
        std::printf("Free: %s\n", status.ToString().c_str());
      }
    }
  }

  Element* operator[](int index) const { return buffers_[index]; }

 private:
  explicit Buffers(Communicator* communicator) : communicator_(communicator) {}

  Communicator* communicator_;
  std::array<Element*, 2> buffers_ = {};
  std::vector<void*> allocated_;
  std::vector<std::vector<Element>> private_;
};

// What a case is made of on one rank. Input i is InputValue(rank, i) for what
// is reduced, and InputValue(owner, i) for what is handed on.
class Run {
 public:
  Run(Communicator* communicator, const Case& what)
      : communicator_(communicator),
        case_(what),
        rank_(communicator->rank()),
        size_(communicator->size()),
        by_block_(what.collective == Collective::kReduceScatter ||
                  what.collective == Collective::kAllGather) {
    const std::size_t elements =
        std::max<std::size_t>(1, what.bytes / sizeof(Element));
    // A reduce-scatter's or all-gather's count is that of a block.
    count_ = by_block_ ? (elements + size_ - 1) / size_ : elements;
    elements_ = by_block_ ? count_ * size_ : count_;
  }

  // The number of wrong elements.
  Result<std::uint64_t> CountWrong() {
    RINGPIPE_ASSIGN_OR_RETURN(
        Buffers buffers,
        Buffers::Create(communicator_, elements_, case_.allocated));
    Element* const input = buffers[0];
    Element* const output = case_.in_place ? input : buffers[1];
    Fill(input);
    RINGPIPE_RETURN_IF_ERROR(Call(input, output));
    return Verify(output);
  }

  // What the algorithm sends from this rank: a chunk each of its sends.
  Traffic ComputeTraffic() const {
    Traffic traffic;
    const Schedule schedule =
        AlgorithmChoice()
            .For(case_.collective, elements_ * sizeof(Element))
            .algorithm({rank_, size_, case_.root});
    const std::uint64_t chunk_bytes =
        elements_ / schedule.chunks * sizeof(Element);  // or one element more
    for (const Transfer& transfer : schedule.transfers) {
      if (transfer.kind == Transfer::Kind::kSend) {
        traffic.sent += chunk_bytes * transfer.count();
        const bool here = rank_ < size_ / 2;
        const bool there = transfer.peer < size_ / 2;
        traffic.crossing += here != there ? chunk_bytes * transfer.count() : 0;
      }
    }
    return traffic;
  }

 private:
  void Fill(Element* input) const {
    const bool gather = case_.collective == Collective::kAllGather;
    // An all-gather's block lies where it will be in the output.
    Element* const begin =
        gather && case_.in_place ? input + rank_ * count_ : input;
    const std::size_t inputs = gather ? count_ : elements_;
    if (case_.collective == Collective::kBroadcast && rank_ != case_.root) {
      return;
    }
    for (std::size_t i = 0; i < inputs; ++i) {
      begin[i] = InputValue<Element>(rank_, i, kOp);
    }
  }

  Status Call(Element* input, Element* output) {
    const std::size_t block = rank_ * count_;
    switch (case_.collective) {
      case Collective::kAllReduce:
        return communicator_->AllReduce(input, output, count_, kType, kOp);
      case Collective::kReduceScatter:
        return communicator_->ReduceScatter(
            input, case_.in_place ? output + block : output, count_, kType,
            kOp);
      case Collective::kAllGather:
        return communicator_->AllGather(case_.in_place ? input + block : input,
                                        output, count_, kType);
      case Collective::kBroadcast:
        return communicator_->Broadcast(input, output, count_, kType,
                                        case_.root);
      default:
        return {StatusCode::kInternal, "no such case"};
    }
  }

  std::uint64_t Verify(const Element* output) const {
    const std::size_t block = rank_ * count_;
    const bool scatter = case_.collective == Collective::kReduceScatter;
    const Element* const begin =
        scatter && case_.in_place ? output + block : output;
    const std::size_t outputs = scatter ? count_ : elements_;
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < outputs; ++i) {
      wrong += begin[i] != Expected(scatter ? block + i : i) ? 1 : 0;
    }
    return wrong;
  }

  // Element `index` of the whole message.
  Element Expected(std::size_t index) const {
    switch (case_.collective) {
      case Collective::kAllGather:
        return InputValue<Element>(static_cast<int>(index / count_),
                                   index % count_, kOp);
      case Collective::kBroadcast:
        return InputValue<Element>(case_.root, index, kOp);
      default:
        return ExpectedValue<Element>(size_, index, kOp);
    }
  }

  Communicator* const communicator_;
  const Case case_;
  const int rank_;
  const int size_;
  const bool by_block_;
  std::size_t count_ = 0;     // of the call
  std::size_t elements_ = 0;  // of the whole message
};

bool HasCase(std::size_t bytes, std::size_t turn, bool allocated,
             bool in_place) {
  if (bytes <= kFourPlacesBytes) {
    return true;
  }
  return allocated == in_place &&
         (bytes <= kTwoPlacesBytes || allocated == (turn % 2 == 1));
}

std::vector<Case> MakeCases(const std::vector<std::size_t>& sizes, int ranks) {
  std::vector<Case> cases;
  for (const std::size_t bytes : sizes) {
    for (std::size_t turn = 0; turn < kCollectives.size(); ++turn) {
      for (const bool allocated : {false, true}) {
        for (const bool in_place : {false, true}) {
          if (HasCase(bytes, turn, allocated, in_place)) {
            const int root = static_cast<int>(cases.size()) % ranks;
            cases.push_back(
                {kCollectives[turn], bytes, allocated, in_place, root});
          }
        }
      }
    }
  }
  return cases;
}

int Check(Communicator* communicator, const std::vector<std::size_t>& sizes) {
  Traffic total;
  std::uint64_t all_wrong = 0;
  for (const Case& what : MakeCases(sizes, communicator->size())) {
    Run run(communicator, what);
    const Result<std::uint64_t> wrong = run.CountWrong();
    if (!wrong.ok()) {
      std::printf("%s bytes=%zu failed: %s\n", CollectiveName(what.collective),
                  what.bytes, wrong.status().ToString().c_str());
      return kExitFailed;
    }
    std::printf("%s bytes=%zu memory=%s in_place=%d wrong=%llu\n",
                CollectiveName(what.collective), what.bytes,
                what.allocated ? "allocated" : "private", what.in_place ? 1 : 0,
                static_cast<unsigned long long>(wrong.value()));
    all_wrong += wrong.value();
    const Traffic traffic = run.ComputeTraffic();
    total.sent += traffic.sent;
    total.crossing += traffic.crossing;
  }
  std::printf("sent=%llu crossing=%llu\n",
              static_cast<unsigned long long>(total.sent),
              static_cast<unsigned long long>(total.crossing));
  return all_wrong == 0 ? 0 : kExitWrong;
}

int Repeat(Communicator* communicator, std::size_t bytes) {
  const std::size_t count = bytes / sizeof(Element);
  std::vector<Element> input(count, 1);
  std::vector<Element> output(count);
  for (std::uint64_t calls = 0;; ++calls) {
    const Status status =
        communicator->AllReduce(input.data(), output.data(), count, kType, kOp);
    if (!status.ok()) {
      std::printf("failed after %llu calls: %s\n",
                  static_cast<unsigned long long>(calls),
                  status.ToString().c_str());
      return kExitFailed;
    }
    if (calls == 0) {
      std::puts("running");
    }
    const auto right = static_cast<Element>(communicator->size());
    if (std::any_of(output.begin(), output.end(),
                    [right](Element value) { return value != right; })) {
      std::printf("wrong in call %llu\n",
                  static_cast<unsigned long long>(calls));
      return kExitWrong;
    }
  }
}

int Outlive(Communicator* communicator, std::size_t bytes) {
  const std::size_t count = bytes / sizeof(Element);
  const std::vector<Element> input(count, 1);
  std::vector<Element> output(count);
  const int peer = communicator->rank() > 1 ? -1 : 1 - communicator->rank();
  Status status = communicator->Barrier();
  if (status.ok()) {
    status = communicator->SendReceive(input.data(), peer, output.data(), peer,
                                       count, kType);
  }
  if (!status.ok()) {
    std::printf("failed: %s\n", status.ToString().c_str());
    return kExitFailed;
  }
  return peer == -1 || output == input ? 0 : kExitWrong;
}

std::optional<std::vector<std::size_t>> ParseNumbers(int argc, char** argv) {
  std::vector<std::size_t> numbers;
  for (int i = 2; i < argc; ++i) {
    const std::string_view text = argv[i];
    std::size_t number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
      return std::nullopt;
    }
    numbers.push_back(number);
  }
  return numbers;
}

int ListAlgorithms(int ranks) {
  for (const AlgorithmInfo& algorithm : Algorithms()) {
    const bool checked = algorithm.collective == Collective::kBarrier ||
                         std::find(kCollectives.begin(), kCollectives.end(),
                                   algorithm.collective) != kCollectives.end();
    if (checked && Exists(algorithm, {0, ranks})) {
      std::printf("%s:%s\n", CollectiveName(algorithm.collective),
                  std::string(algorithm.name).c_str());
    }
  }
  return 0;
}

int Main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  const auto numbers = ParseNumbers(argc, argv);
  if (numbers && numbers->size() == 1 && mode == "algorithms") {
    return ListAlgorithms(static_cast<int>(numbers->front()));
  }
  if (!numbers || numbers->empty() ||
      (mode != "check" && mode != "repeat" && mode != "outlive") ||
      *std::min_element(numbers->begin(), numbers->end()) < sizeof(Element)) {
    std::fputs(
        "usage: check_collectives check BYTES... | repeat BYTES | outlive "
        "BYTES | algorithms RANKS\n",
        stderr);
    return kExitUsage;
  }
  // A line reaches the test that waits for it at once.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const auto options = CommunicatorOptions::FromProcess();
  if (!options.ok()) {
    std::printf("failed: %s\n", options.status().ToString().c_str());
    return kExitFailed;
  }
  auto communicator = Communicator::Create(options.value());
  if (!communicator.ok()) {
    std::printf("failed: %s\n", communicator.status().ToString().c_str());
    return kExitFailed;
  }
  Communicator* const ranks = communicator.value().get();
  std::printf("device %s\n", ranks->device().c_str());
  return mode == "check"    ? Check(ranks, *numbers)
         : mode == "repeat" ? Repeat(ranks, numbers->front())
                            : Outlive(ranks, numbers->front());
}

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) { return ringpipe::testing::Main(argc, argv); }
