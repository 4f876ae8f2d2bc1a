// Every collective on device and host buffers, against results that were
// computed without ringpipe. What bench/gpu_suite runs on a GPU.
//
//   gpu_collectives --ranks 4                a few cases, in which every two
//                                            values meet: of collective, type,
//                                            operation, memory of the input
//                                            and of the output, way, in place
//   gpu_collectives --ranks 4 --cases all    all of them
//
// The ranks are processes on this host that share the current GPU. Rank 0
// prints rows of a markdown table. The exit status is 0 only if everything was
// right.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/local_ranks.h"
#include "engine/communicator.h"
#include "tests/gpu/gpu_cases.h"
#include "tests/gpu/test_memory.h"
#include "tests/reference.h"

namespace ringpipe::testing {
namespace {

struct Arguments {
  int ranks = 0;
  int error_fd = -1;
  std::string memory = "cuda";
  std::string cases = "pairs";
  std::optional<unsigned> seed;
  std::optional<std::string> way;
};

// The same on each rank.
std::vector<GpuCase> CasesOf(const Arguments& arguments) {
  std::vector<MemoryKind> kinds = {MemoryKind::kPageable};
  if (arguments.memory == "cuda") {
    kinds.assign(kMemoryKinds.begin(), kMemoryKinds.end());
  }
  return arguments.cases == "all" ? AllCases(kinds)
                                  : CasesOfAllPairs(kinds, *arguments.seed);
}

class Checker {
 public:
  // With every count in each case, or with one that is drawn.
  Checker(Communicator& communicator, bool every_count)
      : c_(communicator), every_count_(every_count) {}

  // Those of `cases` that go this way.
  Status Run(const std::vector<GpuCase>& cases, Way way) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (cases[i].way == way) {
        RINGPIPE_RETURN_IF_ERROR(Calls(cases[i], i));
      }
    }
    RINGPIPE_RETURN_IF_ERROR(Barrier());
    for (const auto& [collective, calls] : calls_of_) {
      Row(CollectiveName(collective), way, calls);
    }
    return Status::Ok();
  }

 private:
  // Empty ones, and every sort of sub-chunk.
  Status Calls(const GpuCase& one, std::size_t turn) {
    const std::size_t p = c_.size();
    std::vector<std::size_t> counts = {0, 1, p - 1, p + 1, 1000, 100'003};
    if (!every_count_) {
      const auto drawn = std::mt19937(turn)() % counts.size();
      counts = {counts[drawn]};
    }
    for (const std::size_t count : counts) {
      Call call = {.collective = one.collective,
                   .count = count,
                   .type = one.type,
                   .op = one.op,
                   .root = static_cast<int>(turn++ % p)};
      if (one.collective == Collective::kSendReceive && p > 1) {
        const int rank = c_.rank(), size = c_.size();
        call.partners = {(rank + 1) % size, (rank + size - 1) % size};
      }
      RINGPIPE_RETURN_IF_ERROR(
          WithType(one.type, [&]<typename T>() { return Try<T>(one, call); })
              .WithContext(Words(one) + ", " + std::to_string(count) +
                           " elements, root " + std::to_string(call.root)));
      ++calls_of_[one.collective];
    }
    return Status::Ok();
  }

  // Makes the buffers, calls, compares.
  template <typename T>
  Status Try(const GpuCase& one, Call call) {
    const auto input = InputOf<T>(call, c_.rank(), c_.size());
    const auto expected = OutputOf<T>(call, c_.rank(), c_.size());
    const InPlace at =
        InPlaceOf(call.collective, PartOf(call, c_.rank()).first);
    const bool in_place = one.in_place && !input.empty() && !expected.empty();
    RINGPIPE_ASSIGN_OR_RETURN(TestMemory* const from, MemoryOf(one.input));
    RINGPIPE_ASSIGN_OR_RETURN(TestMemory* const to, MemoryOf(one.output));
    RINGPIPE_ASSIGN_OR_RETURN(
        const TestBuffer in,
        Filled(*from,
               in_place ? InPlaceValues(input, at, expected.size()) : input));
    RINGPIPE_ASSIGN_OR_RETURN(
        const TestBuffer out,
        Filled(*to, Poisoned<T>(in_place ? 0 : expected.size())));
    auto* const send = static_cast<T*>(in.data());
    auto* const receive =
        in_place ? send + at.output : static_cast<T*>(out.data());
    call.send = in_place ? send + at.input : send;
    call.receive = receive;
    RINGPIPE_RETURN_IF_ERROR(Make(call));
    RINGPIPE_RETURN_IF_ERROR(Compare(*to, receive, expected));
    return in_place ? Status::Ok()
                    : Compare(*from, send, input).WithContext("the input");
  }

  // Every other call is asynchronous.
  Status Make(const Call& call) {
    if (++calls_ % 2 == 0) {
      return c_.Run(call);
    }
    RINGPIPE_ASSIGN_OR_RETURN(Request request, c_.Start(call));
    return request.Wait();
  }

  Result<TestMemory*> MemoryOf(MemoryKind kind) {
    std::unique_ptr<TestMemory>& memory = memories_[kind];
    if (memory == nullptr) {
      RINGPIPE_ASSIGN_OR_RETURN(memory, TestMemory::Create(kind));
    }
    return memory.get();
  }

  template <typename T>
  static Result<TestBuffer> Filled(TestMemory& memory,
                                   const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    RINGPIPE_ASSIGN_OR_RETURN(TestBuffer buffer,
                              TestBuffer::Create(memory, bytes));
    RINGPIPE_RETURN_IF_ERROR(memory.Write(buffer.data(), values.data(), bytes));
    return buffer;
  }

  template <typename T>
  static Status Compare(TestMemory& memory, const T* data,
                        const std::vector<T>& expected) {
    std::vector<T> got(expected.size());
    RINGPIPE_RETURN_IF_ERROR(
        memory.Read(got.data(), data, got.size() * sizeof(T)));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!(got[i] == expected[i])) {
        return {StatusCode::kInternal, "element " + std::to_string(i) + " is " +
                                           std::to_string(got[i]) + ", not " +
                                           std::to_string(expected[i])};
      }
    }
    return Status::Ok();
  }

  // It has no memory, and is in no case.
  Status Barrier() {
    constexpr int kCalls = 20;
    for (int i = 0; i < kCalls; ++i) {
      RINGPIPE_RETURN_IF_ERROR(
          Make({.collective = Collective::kBarrier}).WithContext("barrier"));
    }
    calls_of_[Collective::kBarrier] = kCalls;
    return Status::Ok();
  }

  // Of what all ranks have found right.
  void Row(const char* name, Way way, int calls) const {
    if (c_.rank() == 0) {
      std::printf("| %s | %s | %d | %d | right |\n", name, Name(way).data(),
                  c_.size(), calls);
      std::fflush(stdout);
    }
  }

  Communicator& c_;
  const bool every_count_;
  std::map<MemoryKind, std::unique_ptr<TestMemory>> memories_;
  std::map<Collective, int> calls_of_;
  int calls_ = 0;
};

Status RunRank(const Arguments& arguments, int* rank) {
  RINGPIPE_ASSIGN_OR_RETURN(const CommunicatorOptions options,
                            CommunicatorOptions::FromProcess());
  RINGPIPE_ASSIGN_OR_RETURN(const auto communicator,
                            Communicator::Create(options));
  *rank = communicator->rank();
  Status status = Checker(*communicator, arguments.cases != "all")
                      .Run(CasesOf(arguments), WayNamed(*arguments.way));
  if (!status.ok()) {
    communicator->Abort(status.ToString());
  }
  return status;
}

// One on this host; its exit status, after its errors were printed.
int RunJob(const Arguments& arguments, const std::vector<std::string>& line) {
  const auto end = RunLocalRanks(arguments.ranks, line);
  if (!end.ok()) {
    ReportError(-1, -1, end.status());
    return 1;
  }
  return EndAs(end.value());
}

// Whatever the environment says.
void Choose(Way way) {
  unsetenv("RINGPIPE_DEVICE");
  unsetenv("RINGPIPE_HOST_MEMORY");
  if (way == Way::kRails) {
    setenv("RINGPIPE_DEVICE", "soft", 1);
  }
}

double CpuSecondsOfJobs() {
  rusage usage = {};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A job for each way.
int Check(const Arguments& arguments, const std::vector<std::string>& line) {
  std::printf(
      "gpu_collectives: --cases %s --seed %u: %zu cases, each with %s\n",
      arguments.cases.c_str(), *arguments.seed, CasesOf(arguments).size(),
      arguments.cases == "all" ? "one of 6 counts" : "6 counts");
  std::fflush(stdout);
  for (const Way way : {Way::kHostMemory, Way::kRails}) {
    const std::string name(Name(way));
    if (arguments.way.value_or(name) == name) {
      Choose(way);
      std::vector<std::string> own = line;
      own.push_back("--seed=" + std::to_string(*arguments.seed));
      own.push_back("--way=" + name);
      if (const int status = RunJob(arguments, own); status != 0) {
        return status;
      }
    }
  }
  std::printf("gpu_collectives: %.1f s of CPU\n", CpuSecondsOfJobs());
  return 0;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Collectives on device buffers: are they right?");
  app.add_option("--ranks", arguments.ranks, "processes on this host")
      ->check(CLI::Range(1, 64))
      ->required();
  app.add_option("--memory", arguments.memory,
                 "cuda, or host (to try this program)")
      ->check(CLI::IsMember({"cuda", "host"}));
  app.add_option("--cases", arguments.cases,
                 "pairs: in which every two values meet; or all")
      ->check(CLI::IsMember({"pairs", "all"}));
  app.add_option("--seed", arguments.seed,
                 "of the choice of cases (default: another one each time)")
      ->take_last();
  app.add_option("--way", arguments.way,
                 "only the cases of one: host_memory, or rails (the software "
                 "device)")
      ->check(CLI::IsMember({"host_memory", "rails"}))
      ->take_last();
  app.add_option("--error-fd", arguments.error_fd)->group("");
  CLI11_PARSE(app, argc, argv);
  if (arguments.error_fd < 0) {
    const std::vector<std::string> line(argv, argv + argc);
    arguments.seed = arguments.seed.value_or(std::random_device()());
    return Check(arguments, line);
  }
  int rank = -1;
  const Status status = RunRank(arguments, &rank);
  if (!status.ok()) {
    ReportError(arguments.error_fd, rank, status);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) { return ringpipe::testing::Main(argc, argv); }
