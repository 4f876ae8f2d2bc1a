// gloo's allreduce over its ibverbs transport, measured as bench/allreduce
// measures ringpipe: float32 sum, private buffers, a barrier before each call,
// the slowest rank's time of each call, every element of a checked call
// verified. bench/compare_guest runs it.
//
//   gloo_allreduce RANKS BYTES WARMUPS ITERATIONS ALGORITHM DEVICE GID_INDEX
//
// ALGORITHM: ring, ring_chunked or halving_doubling, all of which are in place
// only; with "+poll" at the end the caller polls, where otherwise gloo's thread
// sleeps until there is a completion.
// Ranks are processes of this program, on this host. It prints one line:
//   in_place wrong 0 first 12.3 samples 4.5 4.6 ...     (microseconds)
// "first" includes making the algorithm object, which registers memory. Exit
// status: 0; 1 where an argument, a call or a value is wrong.
#include <dlfcn.h>
#include <gloo/algorithm.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/peers/test_data.h"

namespace {

constexpr int kMaxRanks = 64;
constexpr int kMaxCalls = 4096;

struct Arguments {
  int ranks;
  long long bytes;
  int warmups;
  int iterations;
  std::string algorithm;
  std::string device;
  int gid_index;
  bool poll;
};

// In memory that all ranks map. Its barrier needs no message, which is to
// gloo's advantage: its own would take the same queue pairs.
struct Shared {
  pthread_barrier_t barrier;
  uint64_t wrong[kMaxRanks];
  double times_us[kMaxRanks][kMaxCalls];
};

bool Parse(int argc, char** argv, Arguments& arguments) {
  if (argc != 8) {
    return false;
  }
  arguments = {std::atoi(argv[1]),
               std::atoll(argv[2]),
               std::atoi(argv[3]),
               std::atoi(argv[4]),
               argv[5],
               argv[6],
               std::atoi(argv[7]),
               false};
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

// Returns the time in microseconds.
template <typename Call>
double Time(Shared& shared, const Call& call) {
  pthread_barrier_wait(&shared.barrier);
  const auto start = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double, std::micro> time =
      std::chrono::steady_clock::now() - start;
  return time.count();
}

// The order is bench/allreduce's: first call, warm-ups, timed calls, a checked
// call. Returns whether there is such an algorithm.
bool Measure(const Arguments& arguments, int rank,
             const std::shared_ptr<gloo::Context>& context, Shared& shared) {
  const std::size_t count = arguments.bytes / sizeof(float);
  // gloo registers it; private, as everybody's, and never freed either.
  auto& data = *new std::vector<float>(count);
  // Never destroyed: its buffers insist on having seen the completions of all
  // their sends, and the algorithms do not wait for the last ones. The process
  // ends without destructors.
  gloo::Algorithm* allreduce = nullptr;
  FillInput(data.data(), count, rank);
  double* const times = shared.times_us[rank];
  times[0] = Time(shared, [&] {
    allreduce = MakeAlgorithm(arguments.algorithm, context, data.data(),
                              static_cast<int>(count))
                    .release();
    if (allreduce != nullptr) {
      allreduce->run();
    }
  });
  if (allreduce == nullptr) {
    return false;
  }
  for (int i = 1; i < 1 + arguments.warmups + arguments.iterations; ++i) {
    if (i % CallsUntilRefill(arguments.ranks) == 0) {
      // A rank that has returned may still be reading from this one's data.
      pthread_barrier_wait(&shared.barrier);
      FillInput(data.data(), count, rank);
    }
    times[i] = Time(shared, [&] { allreduce->run(); });
  }
  pthread_barrier_wait(&shared.barrier);
  FillInput(data.data(), count, rank);
  Time(shared, [&] { allreduce->run(); });
  shared.wrong[rank] = CountWrong(data.data(), count, arguments.ranks);
  pthread_barrier_wait(&shared.barrier);
  return true;
}

// Does not return.
void RunRank(const Arguments& arguments, int rank, const std::string& directory,
             Shared& shared) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    gloo::transport::ibverbs::attr attr;
    attr.name = arguments.device;
    attr.port = 1;
    attr.index = arguments.gid_index;
    auto device = gloo::transport::ibverbs::CreateDevice(attr);
    gloo::rendezvous::FileStore store(directory);
    auto context =
        std::make_shared<gloo::rendezvous::Context>(rank, arguments.ranks);
    context->connectFullMesh(store, device);
    for (int peer = 0; arguments.poll && peer < arguments.ranks; ++peer) {
      if (peer != rank) {
        context->getPair(peer)->setSync(true, true);
      }
    }
    if (Measure(arguments, rank, context, shared)) {
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

uint64_t Report(const Arguments& arguments, const Shared& shared) {
  uint64_t wrong = 0;
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    wrong += shared.wrong[rank];
  }
  const auto slowest = [&](int call) {
    double time = 0;
    for (int rank = 0; rank < arguments.ranks; ++rank) {
      time = std::max(time, shared.times_us[rank][call]);
    }
    return time;
  };
  std::printf("in_place wrong %llu first %.3f samples",
              static_cast<unsigned long long>(wrong), slowest(0));
  for (int i = 0; i < arguments.iterations; ++i) {
    std::printf(" %.3f", slowest(1 + arguments.warmups + i));
  }
  std::printf("\n");
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
    std::fprintf(stderr,
                 "usage: gloo_allreduce RANKS BYTES WARMUPS ITERATIONS "
                 "ALGORITHM DEVICE GID_INDEX\n");
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
  return good && Report(arguments, *shared) == 0 ? 0 : 1;
}
