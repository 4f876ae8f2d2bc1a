// usage: gloo_allreduce RANK SIZE DIRECTORY
//
// Allreduces by gloo, over its ibverbs transport, with checked results. The
// ranks meet through files in DIRECTORY.
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

namespace {

// Whole numbers that a double holds exactly, so that the order of adding does
// not matter.
double Input(int rank, std::size_t i, int round) {
  return static_cast<double>((rank + 1) * (i % 1009) + round);
}

double Sum(int size, std::size_t i, int round) {
  const std::size_t ranks_sum = std::size_t{1} * size * (size + 1) / 2;
  return static_cast<double>(ranks_sum * (i % 1009) + size * round);
}

// gloo's buffers must not be destroyed before the completions of their sends
// have been seen, and its algorithms do not wait for the last ones. Completions
// of a connection come in order: one that is waited for is after all others.
void WaitForSends(const std::shared_ptr<gloo::Context>& context) {
  const int slot = static_cast<int>(context->nextSlot());
  for (int peer = 0; peer < context->size; ++peer) {
    if (peer != context->rank) {
      char out = 1;
      char in = 0;
      auto& pair = context->getPair(peer);
      auto to = pair->createSendBuffer(slot, &out, sizeof out);
      auto from = pair->createRecvBuffer(slot, &in, sizeof in);
      to->send();
      from->waitRecv();
      to->waitSend();
    }
  }
}

template <template <typename> class Algorithm>
bool Check(const std::shared_ptr<gloo::Context>& context, const char* name,
           std::size_t count) {
  std::vector<double> data(count);
  Algorithm<double> allreduce(context, {data.data()}, static_cast<int>(count));
  for (int round = 0; round < 5; ++round) {
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = Input(context->rank, i, round);
    }
    allreduce.run();
    for (std::size_t i = 0; i < count; ++i) {
      const double want = Sum(context->size, i, round);
      if (data[i] != want) {
        std::fprintf(stderr,
                     "rank %d: %s of %zu, round %d: [%zu] is %f, not %f\n",
                     context->rank, name, count, round, i, data[i], want);
        return false;
      }
    }
  }
  WaitForSends(context);
  return true;
}

template <typename T>
using Chunked = gloo::AllreduceRingChunked<T>;
template <typename T>
using Ring = gloo::AllreduceRing<T>;
template <typename T>
using HalvingDoubling = gloo::AllreduceHalvingDoubling<T>;

// Does not return where all is correct.
void Run(int rank, int size, const char* directory) {
  gloo::transport::ibverbs::attr attr;
  attr.name = "soft0";
  attr.port = 1;
  attr.index = 0;
  auto device = gloo::transport::ibverbs::CreateDevice(attr);
  gloo::rendezvous::FileStore store(directory);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  for (const std::size_t count : {1u, 7u, 1000u, 65536u, 1u << 20}) {
    if (!Check<Ring>(context, "ring", count) ||
        !Check<Chunked>(context, "chunked ring", count) ||
        !Check<HalvingDoubling>(context, "halving-doubling", count)) {
      return;
    }
  }
  std::printf("rank %d: correct\n", rank);
  std::fflush(stdout);
  // gloo's own thread may still be at a pair whose last completion it has just
  // announced, and gloo's destructors do not wait for it.
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: gloo_allreduce RANK SIZE DIRECTORY\n");
    return 2;
  }
  try {
    Run(std::atoi(argv[1]), std::atoi(argv[2]), argv[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %s: %s\n", argv[1], error.what());
  }
  return 1;
}
