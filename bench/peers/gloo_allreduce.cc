// gloo's allreduce over its ibverbs or its TCP transport, measured as
// bench/allreduce measures ringpipe: float32 sum, private buffers, a barrier
// before each call, the slowest rank's time of each call, every element of a
// checked call verified. bench/compare_guest and bench/compare_peers run it.
//
//   gloo_allreduce RANKS BYTES WARMUPS ITERATIONS ALGORITHM DEVICE GID_INDEX
//                  [WORD]...
//
// ALGORITHM: ring, ring_chunked or halving_doubling, all of which are in place
// only; with "+poll" at the end the caller polls, where otherwise gloo's thread
// sleeps until there is a completion. Or allreduce_ring or allreduce_bcube,
// gloo's newer interface, which cannot poll (nor use ibverbs).
// DEVICE: of verbs, or "tcp", over the loopback interface, where GID_INDEX
// means nothing. The words are those of mpi_allreduce.c: touch, pinned, huge,
// align=BYTES. Ranks are processes of this program, on this host. It prints a
// line, or two with the newer interface:
//   in_place wrong 0 first 12.3 samples 4.5 4.6 ...     (microseconds)
// "first" includes making the algorithm object, which registers memory. Exit
// status: 0; 1 where an argument, a call or a value is wrong.
#include <dlfcn.h>
#include <gloo/algorithm.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <gloo/transport/tcp/device.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/peers/placing.h"
#include "bench/peers/test_data.h"
#include "bench/peers/touch.h"

namespace {

constexpr int kMaxRanks = 64;
constexpr int kMaxCalls = 4096;

struct Arguments {
  int ranks = 0;
  long long bytes = 0;
  int warmups = 0;
  int iterations = 0;
  std::string algorithm;
  std::string device;
  int gid_index = 0;
  bool poll = false;
  bool touch = false;
  bool pinned = false;
  bool huge = false;
  int align = kMallocAlign;
};

// What a rank has measured, out of place or in place.
struct Series {
  bool measured;
  uint64_t wrong[kMaxRanks];
  double times_us[kMaxRanks][kMaxCalls];
};

// In memory that all ranks map. Its barrier needs no message, which is to
// gloo's advantage: its own would take the same queue pairs.
struct Shared {
  pthread_barrier_t barrier;
  Series out_of_place;
  Series in_place;
};

bool ParseWords(int argc, char** argv, int first, Arguments& arguments) {
  for (int i = first; i < argc; ++i) {
    const std::string_view word = argv[i];
    arguments.touch = arguments.touch || word == "touch";
    arguments.pinned = arguments.pinned || word == "pinned";
    arguments.huge = arguments.huge || word == "huge";
    if (const int align = ParseAlign(argv[i]); align >= 0) {
      arguments.align = align;
    } else if (word != "touch" && word != "pinned" && word != "huge") {
      return false;
    }
  }
  return true;
}

bool Parse(int argc, char** argv, Arguments& arguments) {
  constexpr int kFirstWord = 8;
  if (argc < kFirstWord || !ParseWords(argc, argv, kFirstWord, arguments)) {
    return false;
  }
  arguments.ranks = std::atoi(argv[1]);
  arguments.bytes = std::atoll(argv[2]);
  arguments.warmups = std::atoi(argv[3]);
  arguments.iterations = std::atoi(argv[4]);
  arguments.algorithm = argv[5];
  arguments.device = argv[6];
  arguments.gid_index = std::atoi(argv[7]);
  constexpr std::string_view kPoll = "+poll";
  if (arguments.algorithm.ends_with(kPoll)) {
    arguments.poll = true;
    arguments.algorithm.resize(arguments.algorithm.size() - kPoll.size());
  }
  return arguments.ranks >= 2 && arguments.ranks <= kMaxRanks &&
         arguments.bytes >= 4 && arguments.bytes / 4 <= INT32_MAX &&
         arguments.warmups >= 0 && arguments.iterations >= 1 &&
         arguments.warmups + arguments.iterations < kMaxCalls;
}

Shared* MapShared(int ranks) {
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  auto* const shared = static_cast<Shared*>(memory);
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, ranks);
  return shared;
}

std::unique_ptr<gloo::Algorithm> MakeAlgorithm(
    const std::string& name, const std::shared_ptr<gloo::Context>& context,
    float* data, int count) {
  const std::vector<float*> buffers = {data};
  if (name == "ring") {
    return std::make_unique<gloo::AllreduceRing<float>>(context, buffers,
                                                        count);
  }
  if (name == "ring_chunked") {
    return std::make_unique<gloo::AllreduceRingChunked<float>>(context, buffers,
                                                               count);
  }
  if (name == "halving_doubling") {
    return std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
        context, buffers, count);
  }
  return nullptr;
}

// The next call of an algorithm on buffers that it was made for.
using Run = std::function<void()>;

// Empty where there is no such algorithm. gloo's newer interface.
Run MakeNewer(const std::string& name,
              const std::shared_ptr<gloo::Context>& context, float* input,
              float* output, std::size_t count) {
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  if (name != "allreduce_ring" && name != "allreduce_bcube") {
    return {};
  }
  auto options = std::make_shared<gloo::AllreduceOptions>(context);
  options->setAlgorithm(name == "allreduce_ring" ? Algorithm::RING
                                                 : Algorithm::BCUBE);
  if (input != output) {
    options->setInput(input, count);
  }
  options->setOutput(output, count);
  options->setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, std::size_t)>(
          &gloo::sum<float>));
  return [options, tag = std::uint32_t{0}]() mutable {
    options->setTag(tag++);
    gloo::allreduce(*options);
  };
}

Run Make(const Arguments& arguments,
         const std::shared_ptr<gloo::Context>& context, float* input,
         float* output, std::size_t count) {
  if (Run newer =
          MakeNewer(arguments.algorithm, context, input, output, count)) {
    return newer;
  }
  if (input != output) {
    return {};
  }
  // Never destroyed: its buffers insist on having seen the completions of all
  // their sends, and the algorithms do not wait for the last ones. The process
  // ends without destructors.
  gloo::Algorithm* const classic =
      MakeAlgorithm(arguments.algorithm, context, output,
                    static_cast<int>(count))
          .release();
  return classic == nullptr ? Run() : Run([classic] { classic->run(); });
}

// One rank's calls on two buffers, or one.
class Measurement {
 public:
  Measurement(const Arguments& arguments, int rank,
              std::shared_ptr<gloo::Context> context, Shared& shared)
      : arguments_(arguments),
        rank_(rank),
        count_(arguments.bytes / sizeof(float)),
        context_(std::move(context)),
        shared_(shared) {}

  // The order is bench/allreduce's: first call, warm-ups, timed calls, a
  // checked call. Returns whether there is such an algorithm.
  bool Measure(float* input, float* output, Series& series) {
    const bool in_place = input == output;
    double* const times = series.times_us[rank_];
    FillInput(input, count_, rank_);
    Run run;
    times[0] = Time(input, output, [&] {
      run = Make(arguments_, context_, input, output, count_);
      if (run) run();
    });
    if (!run) {
      return false;
    }
    const int calls = 1 + arguments_.warmups + arguments_.iterations;
    for (int i = 1; i < calls; ++i) {
      if (in_place && i % CallsUntilRefill(arguments_.ranks) == 0) {
        // A rank that has returned may still be reading from this one's data.
        pthread_barrier_wait(&shared_.barrier);
        FillInput(input, count_, rank_);
      }
      times[i] = Time(input, output, run);
    }
    pthread_barrier_wait(&shared_.barrier);
    if (in_place) {
      FillInput(input, count_, rank_);
    } else {
      std::memset(output, 0xff, count_ * sizeof(float));  // NaN
    }
    Time(input, output, run);
    series.wrong[rank_] = CountWrongSums(output, 0, count_, arguments_.ranks);
    series.measured = true;
    pthread_barrier_wait(&shared_.barrier);
    return true;
  }

 private:
  // Returns the time in microseconds.
  double Time(float* input, const float* output, const Run& run) {
    pthread_barrier_wait(&shared_.barrier);
    const auto start = std::chrono::steady_clock::now();
    if (arguments_.touch) {
      RewriteInput(input, count_ * sizeof(float));
    }
    run();
    if (arguments_.touch) {
      ReadOutput(output, count_ * sizeof(float));
    }
    const std::chrono::duration<double, std::micro> time =
        std::chrono::steady_clock::now() - start;
    return time.count();
  }

  const Arguments& arguments_;
  const int rank_;
  const std::size_t count_;
  const std::shared_ptr<gloo::Context> context_;
  Shared& shared_;
};

// Returns whether there is such an algorithm.
bool MeasureBoth(const Arguments& arguments, int rank,
                 const std::shared_ptr<gloo::Context>& context,
                 Shared& shared) {
  // gloo registers them; private, as everybody's, and never freed either.
  float* const input =
      MapBuffer(arguments.bytes, arguments.huge, arguments.align);
  float* const output =
      MapBuffer(arguments.bytes, arguments.huge, arguments.align);
  if (input == nullptr || output == nullptr) {
    throw std::bad_alloc();
  }
  Measurement measurement(arguments, rank, context, shared);
  if (arguments.algorithm.starts_with("allreduce_") &&
      !measurement.Measure(input, output, shared.out_of_place)) {
    return false;
  }
  return measurement.Measure(output, output, shared.in_place);
}

std::shared_ptr<gloo::transport::Device> MakeDevice(
    const Arguments& arguments) {
  if (arguments.device == "tcp") {
    gloo::transport::tcp::attr attr;
    attr.iface = "lo";
    attr.ai_family = AF_INET;
    return gloo::transport::tcp::CreateDevice(attr);
  }
  gloo::transport::ibverbs::attr attr;
  attr.name = arguments.device;
  attr.port = 1;
  attr.index = arguments.gid_index;
  return gloo::transport::ibverbs::CreateDevice(attr);
}

// Does not return.
void RunRank(const Arguments& arguments, int rank, const std::string& directory,
             Shared& shared) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    if (arguments.pinned && PinToCore(rank) != 0) {
      throw std::runtime_error("a rank cannot be pinned to its core");
    }
    auto device = MakeDevice(arguments);
    gloo::rendezvous::FileStore store(directory);
    auto context =
        std::make_shared<gloo::rendezvous::Context>(rank, arguments.ranks);
    context->connectFullMesh(store, device);
    for (int peer = 0; arguments.poll && peer < arguments.ranks; ++peer) {
      if (peer != rank) {
        context->getPair(peer)->setSync(true, true);
      }
    }
    if (MeasureBoth(arguments, rank, context, shared)) {
      // gloo's own thread may still be at a pair whose last completion it has
      // just announced, and gloo's destructors do not wait for it.
      std::_Exit(0);
    }
    std::fprintf(stderr, "gloo_allreduce: no algorithm %s\n",
                 arguments.algorithm.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo_allreduce: rank %d: %s\n", rank, error.what());
  }
  std::_Exit(1);
}

// Starts the ranks and waits for them. The first that fails ends the others,
// which would wait for it for ever.
bool RunRanks(const Arguments& arguments, const std::string& directory,
              Shared& shared) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      RunRank(arguments, rank, directory, shared);
    }
    children.push_back(child);
  }
  bool good = true;
  for (std::size_t ended = 0; ended < children.size(); ++ended) {
    int status = 0;
    if (wait(&status) < 0 || status != 0) {
      if (good) {
        for (const pid_t child : children) {
          if (child > 0) kill(child, SIGKILL);
        }
      }
      good = false;
    }
  }
  return good;
}

// Prints a line; returns how many values were wrong.
uint64_t Report(const Arguments& arguments, const char* place,
                const Series& series) {
  uint64_t wrong = 0;
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    wrong += series.wrong[rank];
  }
  const auto slowest = [&](int call) {
    double time = 0;
    for (int rank = 0; rank < arguments.ranks; ++rank) {
      time = std::max(time, series.times_us[rank][call]);
    }
    return time;
  };
  std::printf("%s wrong %llu first %.3f samples", place,
              static_cast<unsigned long long>(wrong), slowest(0));
  for (int i = 0; i < arguments.iterations; ++i) {
    std::printf(" %.3f", slowest(1 + arguments.warmups + i));
  }
  std::printf("\n");
  return wrong;
}

uint64_t ReportAll(const Arguments& arguments, const Shared& shared) {
  uint64_t wrong = Report(arguments, "in_place", shared.in_place);
  if (shared.out_of_place.measured) {
    wrong += Report(arguments, "out_of_place", shared.out_of_place);
  }
  return wrong;
}

}  // namespace

// In place of libibverbs' own, which it calls. gloo hard-codes a path MTU of
// 1024 bytes, and an acknowledge timeout of 4.096 us * 2^14 = 67 ms, which an
// emulated machine exceeds while nothing is lost; all since is then sent again.
// The other contenders take the port's MTU and wait a second or more, so gloo
// does here.
extern "C" int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  constexpr std::uint8_t kOneSecond = 18;
  const auto next = reinterpret_cast<decltype(&ibv_modify_qp)>(
      dlsym(RTLD_NEXT, "ibv_modify_qp"));
  if (next == nullptr) {
    return ENOSYS;
  }
  if ((mask & IBV_QP_TIMEOUT) != 0) {
    attr->timeout = std::max(attr->timeout, kOneSecond);
  }
  ibv_port_attr port = {};
  if ((mask & IBV_QP_PATH_MTU) != 0 &&
      ibv_query_port(qp->context, attr->ah_attr.port_num, &port) == 0) {
    attr->path_mtu = std::max(attr->path_mtu, port.active_mtu);
  }
  return next(qp, attr, mask);
}

int main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, arguments)) {
    std::fprintf(
        stderr,
        "usage: gloo_allreduce RANKS BYTES WARMUPS ITERATIONS "
        "ALGORITHM DEVICE GID_INDEX [touch|pinned|huge|align=BYTES]...\n");
    return 1;
  }
  std::string directory =
      (std::filesystem::temp_directory_path() / "gloo.XXXXXX").string();
  Shared* const shared = MapShared(arguments.ranks);
  if (shared == nullptr || mkdtemp(directory.data()) == nullptr) {
    std::perror("gloo_allreduce");
    return 1;
  }
  const bool good = RunRanks(arguments, directory, *shared);
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return good && ReportAll(arguments, *shared) == 0 ? 0 : 1;
}
