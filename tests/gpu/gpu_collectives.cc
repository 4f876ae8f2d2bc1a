// Every collective on device buffers, against results that were computed
// without ringpipe; or the time of one allreduce. What bench/gpu_suite runs on
// a GPU.
//
//   gpu_collectives --ranks 4                       checks
//   gpu_collectives --ranks 4 --time 268435456      measures
//
// The ranks are processes on this host that share the current GPU. Rank 0
// prints rows of a markdown table. The exit status is 0 only if everything was
// right.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/local_ranks.h"
#include "engine/communicator.h"
#include "tests/gpu/test_memory.h"
#include "tests/reference.h"

namespace ringpipe::testing {
namespace {

struct Arguments {
  int ranks = 0;
  int error_fd = -1;
  std::string memory = "cuda";
  std::size_t time_bytes = 0;
  int iterations = 7;
};

class Checker {
 public:
  Checker(Communicator& communicator, TestMemory& memory)
      : c_(communicator), memory_(memory) {}

  Status Run() {
    RINGPIPE_RETURN_IF_ERROR(EveryOperation("allreduce", &Checker::AllReduce));
    RINGPIPE_RETURN_IF_ERROR(
        EveryOperation("reduce-scatter", &Checker::ReduceScatter));
    RINGPIPE_RETURN_IF_ERROR(
        EveryType("all-gather", [this]<typename T>(DataType type) {
          return EveryCount([&](std::size_t count, bool in_place) {
            return AllGather<T>(count, type, in_place);
          });
        }));
    RINGPIPE_RETURN_IF_ERROR(
        EveryType("broadcast", [this]<typename T>(DataType type) {
          return EveryCount([&](std::size_t count, bool in_place) {
            return Broadcast<T>(count, type, in_place);
          });
        }));
    return Barrier();
  }

 private:
  // One call: what its buffers hold before it, and after it.
  template <typename T>
  struct Case {
    std::vector<T> send;      // what `send` holds; empty: this rank has none
    std::size_t receive = 0;  // elements of `receive`
    std::vector<T> expected;
    // In place: where `receive` begins in `send`, or the other way round.
    std::size_t receive_in_send = 0;
    std::size_t send_in_receive = 0;
  };

  // Each element count, out of place and in place, in every sort of sub-chunk.
  template <typename Function>
  Status EveryCount(Function function) {
    const std::size_t p = c_.size();
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, p - 1, p + 1, std::size_t{1000},
          std::size_t{100'003}}) {
      for (const bool in_place : {false, true}) {
        RINGPIPE_RETURN_IF_ERROR(
            function(count, in_place)
                .WithContext(std::to_string(count) + " elements" +
                             (in_place ? " in place" : "")));
        ++cases_;
      }
    }
    return Status::Ok();
  }

  template <typename Function>
  Status EveryType(const char* name, Function function) {
    cases_ = 0;
    for (const DataType type : kDataTypes) {
      RINGPIPE_RETURN_IF_ERROR(
          WithType(type, [&]<typename T>() {
            return function.template operator()<T>(type);
          }).WithContext(std::string(name) + " of " + std::string(Name(type))));
    }
    Row(name);
    return Status::Ok();
  }

  Status EveryOperation(const char* name,
                        Status (Checker::*collective)(DataType, ReduceOp,
                                                      std::size_t, bool)) {
    return EveryType(name, [&]<typename T>(DataType type) -> Status {
      for (const ReduceOp op : kReduceOps) {
        RINGPIPE_RETURN_IF_ERROR(
            EveryCount([&](std::size_t count, bool in_place) {
              return (this->*collective)(type, op, count, in_place);
            }).WithContext(std::string(Name(op))));
      }
      return Status::Ok();
    });
  }

  Status AllReduce(DataType type, ReduceOp op, std::size_t count,
                   bool in_place) {
    return WithType(type, [&]<typename T>() {
      Case<T> test;
      test.send = Inputs<T>(c_.rank(), 0, count, op);
      test.receive = count;
      test.expected = Results<T>(c_.size(), 0, count, op);
      return Try(test, in_place, [&](const void* send, void* receive) {
        return Either(
            [&] { return c_.AllReduce(send, receive, count, type, op); },
            [&] { return c_.AllReduceAsync(send, receive, count, type, op); });
      });
    });
  }

  Status ReduceScatter(DataType type, ReduceOp op, std::size_t count,
                       bool in_place) {
    return WithType(type, [&]<typename T>() {
      const std::size_t mine = c_.rank() * count;
      Case<T> test;
      test.send = Inputs<T>(c_.rank(), 0, count * c_.size(), op);
      test.receive = count;
      test.receive_in_send = mine;
      test.expected = Results<T>(c_.size(), mine, count, op);
      return Try(test, in_place, [&](const void* send, void* receive) {
        return Either(
            [&] { return c_.ReduceScatter(send, receive, count, type, op); },
            [&] {
              return c_.ReduceScatterAsync(send, receive, count, type, op);
            });
      });
    });
  }

  template <typename T>
  Status AllGather(std::size_t count, DataType type, bool in_place) {
    Case<T> test;
    test.send = Inputs<T>(c_.rank(), 0, count, ReduceOp::kSum);
    test.receive = count * c_.size();
    test.send_in_receive = c_.rank() * count;
    for (int rank = 0; rank < c_.size(); ++rank) {
      const auto part = Inputs<T>(rank, 0, count, ReduceOp::kSum);
      test.expected.insert(test.expected.end(), part.begin(), part.end());
    }
    return Try(test, in_place, [&](const void* send, void* receive) {
      return Either(
          [&] { return c_.AllGather(send, receive, count, type); },
          [&] { return c_.AllGatherAsync(send, receive, count, type); });
    });
  }

  template <typename T>
  Status Broadcast(std::size_t count, DataType type, bool in_place) {
    for (int root = 0; root < c_.size(); ++root) {
      Case<T> test;
      test.expected = Inputs<T>(root, 0, count, ReduceOp::kSum);
      if (c_.rank() == root) {
        test.send = test.expected;
      }
      test.receive = count;
      RINGPIPE_RETURN_IF_ERROR(
          Try(test, in_place, [&](const void* send, void* receive) {
            return Either(
                [&] { return c_.Broadcast(send, receive, count, type, root); },
                [&] {
                  return c_.BroadcastAsync(send, receive, count, type, root);
                });
          }).WithContext("root " + std::to_string(root)));
    }
    return Status::Ok();
  }

  Status Barrier() {
    cases_ = 0;
    for (; cases_ < 20; ++cases_) {
      RINGPIPE_RETURN_IF_ERROR(Either([&] { return c_.Barrier(); },
                                      [&] { return c_.BarrierAsync(); })
                                   .WithContext("barrier"));
    }
    Row("barrier");
    return Status::Ok();
  }

  // Every other call is asynchronous.
  template <typename Now, typename Later>
  Status Either(Now now, Later later) {
    if (++calls_ % 2 == 0) {
      return now();
    }
    RINGPIPE_ASSIGN_OR_RETURN(Request request, later());
    return request.Wait();
  }

  // Makes the buffers, calls, compares.
  template <typename T, typename Call>
  Status Try(const Case<T>& test, bool in_place, Call call) {
    const std::size_t elements =
        in_place ? std::max(test.send.size(), test.receive) : test.receive;
    RINGPIPE_ASSIGN_OR_RETURN(
        const TestBuffer receive,
        TestBuffer::Create(memory_, elements * sizeof(T)));
    RINGPIPE_ASSIGN_OR_RETURN(
        const TestBuffer other,
        TestBuffer::Create(memory_, test.send.size() * sizeof(T)));
    std::vector<T> before = Poisoned<T>(elements);
    auto* const base = static_cast<T*>(receive.data());
    T* send = static_cast<T*>(other.data());
    T* target = base;
    if (in_place) {
      send = base + test.send_in_receive;
      target = base + test.receive_in_send;
      std::copy(test.send.begin(), test.send.end(),
                before.begin() + test.send_in_receive);
    } else {
      RINGPIPE_RETURN_IF_ERROR(
          memory_.Write(send, test.send.data(), test.send.size() * sizeof(T)));
    }
    RINGPIPE_RETURN_IF_ERROR(
        memory_.Write(base, before.data(), elements * sizeof(T)));
    RINGPIPE_RETURN_IF_ERROR(call(send, target));
    std::vector<T> got(test.receive);
    RINGPIPE_RETURN_IF_ERROR(
        memory_.Read(got.data(), target, got.size() * sizeof(T)));
    return Compare(got, test.expected);
  }

  template <typename T>
  static Status Compare(const std::vector<T>& got,
                        const std::vector<T>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!(got[i] == expected[i])) {
        return {StatusCode::kInternal, "element " + std::to_string(i) + " is " +
                                           std::to_string(got[i]) + ", not " +
                                           std::to_string(expected[i])};
      }
    }
    return Status::Ok();
  }

  // Of what all ranks have found right.
  void Row(const char* name) const {
    if (c_.rank() == 0) {
      std::printf("| %s | %d | %d | right |\n", name, c_.size(), cases_);
      std::fflush(stdout);
    }
  }

  Communicator& c_;
  TestMemory& memory_;
  int cases_ = 0;
  int calls_ = 0;
};

// The slowest rank's times, in ms: of the first call, and of the others.
struct Times {
  double first = 0;
  std::vector<double> sorted;
};

Result<Times> SlowestOf(Communicator& c, const std::vector<double>& mine) {
  std::ostringstream text;
  text.precision(9);
  for (const double ms : mine) {
    text << ms << ' ';
  }
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, c.Exchange(text.str()));
  std::vector<double> slowest(mine.size());
  for (const std::string& blob : all) {
    std::istringstream in(blob);
    for (double& worst : slowest) {
      double ms = 0;
      in >> ms;
      worst = std::max(worst, ms);
    }
  }
  Times times;
  times.first = slowest.front();
  times.sorted.assign(slowest.begin() + 1, slowest.end());
  std::sort(times.sorted.begin(), times.sorted.end());
  return times;
}

// Times an allreduce of float32, out of place, and checks its result.
Status Measure(Communicator& c, TestMemory& memory,
               const Arguments& arguments) {
  const std::size_t count = arguments.time_bytes / sizeof(float);
  const auto input = Inputs<float>(c.rank(), 0, count, ReduceOp::kSum);
  RINGPIPE_ASSIGN_OR_RETURN(const TestBuffer send,
                            TestBuffer::Create(memory, count * sizeof(float)));
  RINGPIPE_ASSIGN_OR_RETURN(const TestBuffer receive,
                            TestBuffer::Create(memory, count * sizeof(float)));
  RINGPIPE_RETURN_IF_ERROR(
      memory.Write(send.data(), input.data(), count * sizeof(float)));
  std::vector<double> mine;
  for (int call = 0; call <= arguments.iterations; ++call) {
    RINGPIPE_RETURN_IF_ERROR(c.Barrier());
    const auto start = std::chrono::steady_clock::now();
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send.data(), receive.data(), count,
                                         DataType::kFloat32, ReduceOp::kSum));
    mine.push_back(std::chrono::duration<double, std::milli>(
                       std::chrono::steady_clock::now() - start)
                       .count());
  }
  std::vector<float> got(count);
  RINGPIPE_RETURN_IF_ERROR(
      memory.Read(got.data(), receive.data(), count * sizeof(float)));
  for (std::size_t i = 0; i < count; ++i) {
    if (got[i] != ExpectedValue<float>(c.size(), i, ReduceOp::kSum)) {
      return {StatusCode::kInternal,
              "element " + std::to_string(i) + " is wrong"};
    }
  }
  RINGPIPE_ASSIGN_OR_RETURN(const Times times, SlowestOf(c, mine));
  if (c.rank() == 0) {
    const double median = times.sorted[times.sorted.size() / 2];
    const double bytes = 2.0 * (c.size() - 1) / c.size() *
                         static_cast<double>(arguments.time_bytes);
    std::printf("| %d | %zu | %.1f | %.1f | %.1f | %.2f | %.1f |\n", c.size(),
                arguments.time_bytes, median, times.sorted.front(),
                times.sorted.back(), bytes / median / 1e6, times.first);
  }
  return Status::Ok();
}

Status RunRank(const Arguments& arguments, int* rank) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto memory,
                            TestMemory::Create(arguments.memory));
  RINGPIPE_ASSIGN_OR_RETURN(const CommunicatorOptions options,
                            CommunicatorOptions::FromProcess());
  RINGPIPE_ASSIGN_OR_RETURN(const auto communicator,
                            Communicator::Create(options));
  *rank = communicator->rank();
  Status status = arguments.time_bytes > 0
                      ? Measure(*communicator, *memory, arguments)
                      : Checker(*communicator, *memory).Run();
  if (!status.ok()) {
    communicator->Abort(status.ToString());
  }
  return status;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Collectives on device buffers: right, and how fast");
  app.add_option("--ranks", arguments.ranks, "processes on this host")
      ->check(CLI::Range(1, 64))
      ->required();
  app.add_option("--memory", arguments.memory,
                 "cuda, or host (to try this program)")
      ->check(CLI::IsMember({"cuda", "host"}));
  app.add_option("--time", arguments.time_bytes,
                 "measure an allreduce of that many bytes instead");
  app.add_option("--iterations", arguments.iterations,
                 "timed calls, after a first one")
      ->check(CLI::Range(1, 1000));
  app.add_option("--error-fd", arguments.error_fd)->group("");
  CLI11_PARSE(app, argc, argv);
  if (arguments.error_fd < 0) {
    const auto end = RunLocalRanks(arguments.ranks,
                                   std::vector<std::string>(argv, argv + argc));
    if (!end.ok()) {
      ReportError(-1, -1, end.status());
      return 1;
    }
    return EndAs(end.value());
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
