#include "pipeline/test_job.h"

#include <gtest/gtest.h>

#include <utility>

#include "pipeline/host/host_transport.h"
#include "pipeline/host/region_memory.h"
#include "verbs/device.h"

namespace ringpipe {
namespace {

bool OnHost(Way way) {
  return way == Way::kHostMemory || way == Way::kHostAndTestNetwork;
}

// Which two ranks the test network connects.
bool ByTestNetwork(Way way, int a, int b) {
  return way == Way::kTestNetwork ||
         ((way == Way::kBoth || way == Way::kHostAndTestNetwork) &&
          (a + b) % 2 != 0);
}

}  // namespace

std::string DescribeForTest(const Digest& digest) {
  return "call(count " + std::to_string(digest.count) + ")";
}

OwnedDomains SoftRails(int count, const verbs::soft::Options& options) {
  OwnedDomains rails;
  for (int rail = 0; rail < count; ++rail) {
    auto device = verbs::Device::OpenSoftware(
        verbs::soft::CreateSoftLibrary(options), "the test asks for it");
    EXPECT_TRUE(device.ok()) << device.status().ToString();
    rails.push_back(
        verbs::ProtectionDomain::Create(std::move(device).value()).value());
  }
  return rails;
}

RailTransport::Options RailOptions(int rank, int size, int rails,
                                   const CallCheck& check, Way way) {
  RailTransport::Options options;
  options.rank = rank;
  options.size = size;
  options.rails_of_peer.resize(size);
  options.check = &check;
  for (int peer = 0; peer < size; ++peer) {
    for (int rail = 0; rail < rails && !ByTestNetwork(way, rank, peer);
         ++rail) {
      options.rails_of_peer[peer].push_back(rail);
    }
  }
  return options;
}

Operation MakeOperation(const Plan& plan, const float* input, float* output,
                        std::size_t count, int depth, Accelerator* host,
                        std::chrono::milliseconds timeout, int widest) {
  Operation operation;
  operation.plan = &plan;
  operation.name = &DescribeForTest;
  operation.digest.count = count;
  operation.input.base = reinterpret_cast<std::uintptr_t>(input);
  operation.output.base = reinterpret_cast<std::uintptr_t>(output);
  operation.host = host;
  operation.chunking =
      Chunking(count, plan.chunks, kSubchunkBytes / sizeof(float) / widest,
               Walk::kSegments);
  operation.depth = depth;
  operation.deadline = Deadline::After(timeout);
  ShortRun::Measure(operation);
  return operation;
}

TestJob::TestJob(const Options& options)
    : network_({options.size, static_cast<std::uint64_t>(options.seed) + 1,
                options.abilities, options.reach,
                [way = options.way](int a, int b) {
                  return ByTestNetwork(way, a, b);
                }}),
      ranks_(options.size) {
  for (int rank = 0; rank < options.size; ++rank) {
    Create(rank, options);
  }
  for (std::size_t i = 0; i < ranks_[0].executor->transports().all().size();
       ++i) {
    Connect(i);
  }
}

void TestJob::Create(int rank, const Options& options) {
  Rank& self = ranks_[rank];
  self.rails = SoftRails(options.rails,
                         {.adversary_seed = static_cast<std::uint64_t>(
                              options.seed == 0 ? 0 : options.seed + rank)});
  self.abort = AbortSignal::Create().value();
  self.check = std::make_unique<CallCheck>(rank, &DescribeForTest);
  self.source = self.rails[0]->device();
  std::shared_ptr<Region> region;
  if (OnHost(options.way)) {
    region = HostTransport::CreateRegion(rank, options.size).value();
    self.source = std::make_shared<RegionMemory>(region);
  }
  self.memory = std::make_unique<RegisteredMemory>(self.rails, self.source);
  auto transports = TransportsOf(rank, options, region);
  Executor::Options executor;
  executor.rank = rank;
  executor.size = options.size;
  executor.abort = self.abort.get();
  executor.check = self.check.get();
  if (options.traces) {
    self.trace = std::make_unique<Trace>(1 << 14);
    executor.trace = self.trace.get();
  }
  // As the bootstrap does: a rank that fails may take its own message with
  // it, so the reason reaches the others another way.
  executor.on_error = [this](const Status& reason, std::uint64_t first) {
    for (Rank& other : ranks_) {
      static_cast<void>(other.abort->Raise(reason, first));
    }
  };
  self.executor = std::make_unique<Executor>(
      SlotPool::Create(self.rails, *self.source, options.subchunk_bytes,
                       options.slots)
          .value(),
      std::move(transports), executor);
}

std::vector<std::unique_ptr<Transport>> TestJob::TransportsOf(
    int rank, const Options& options, const std::shared_ptr<Region>& region) {
  Rank& self = ranks_[rank];
  const Way way = options.way;
  std::vector<std::unique_ptr<Transport>> transports;
  if (OnHost(way)) {
    HostTransport::Options host;
    host.rank = rank;
    host.size = options.size;
    host.job_key = "a job of tests";
    host.check = self.check.get();
    for (int peer = 0; peer < options.size; ++peer) {
      host.local.push_back(peer != rank && !ByTestNetwork(way, rank, peer));
    }
    transports.push_back(HostTransport::Create(host, region).value());
  }
  if (way == Way::kRails || way == Way::kBoth) {
    RailTransport::Options rails =
        RailOptions(rank, options.size, options.rails, *self.check, way);
    rails.receives = options.slots;
    rails.memory = self.memory.get();
    rails.registered_sends_from = 1;
    transports.push_back(
        RailTransport::Create(self.rails, self.rails[0]->device(), rails)
            .value());
  }
  if (way != Way::kRails && way != Way::kHostMemory) {
    transports.push_back(network_.Create(rank, *self.check));
  }
  return transports;
}

void TestJob::Connect(std::size_t transport) {
  // At the same time, as some need.
  const auto statuses = OnAll([&](int rank) {
    std::vector<std::string> addresses;
    for (int peer = 0; peer < size(); ++peer) {
      addresses.push_back(
          ranks_[peer].executor->transports().all()[transport]->AddressFor(
              rank));
    }
    return ranks_[rank].executor->transports().all()[transport]->Connect(
        addresses, Deadline::After(std::chrono::minutes(1)), -1);
  });
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

}  // namespace ringpipe
