// Calls whose buffers, or whose pieces of a list, are some of them host memory
// and some of them device memory, on each rank others: with ranks as threads,
// on the fake driver, for which a host pointer in a kernel is an error.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/fake_driver/control_client.h"
#include "cuda/test_device.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

// A list has pieces of both.
enum class Memory { kHost, kDevice, kList };

// A buffer of floats, or a list of them.
class Floats {
 public:
  static Result<Floats> Create(const TestDevice& device, Memory memory,
                               std::size_t count) {
    RINGPIPE_ASSIGN_OR_RETURN(
        void* const on_device,
        device.Allocate(std::max<std::size_t>(count, 1) * sizeof(float)));
    return Floats(device, memory, count, static_cast<float*>(on_device));
  }
  ~Floats() {
    if (on_device_ != nullptr) {
      device_.Free(on_device_);
    }
  }
  Floats(Floats&& other) noexcept
      : device_(other.device_),
        on_host_(std::move(other.on_host_)),
        on_device_(std::exchange(other.on_device_, nullptr)),
        pieces_(std::move(other.pieces_)) {}
  Floats& operator=(Floats&&) = delete;

  float* buffer() const {
    return pieces_.size() == 1 ? static_cast<float*>(pieces_[0].data) : nullptr;
  }
  BufferList list() const {
    return pieces_.size() == 1 ? BufferList() : BufferList(pieces_);
  }

  Status Write(const std::vector<float>& values) {
    return ForEachPiece([&](void* piece, std::size_t at, std::size_t bytes) {
      return device_.Copy(piece, values.data() + at, bytes);
    });
  }
  Result<std::vector<float>> Read() {
    std::vector<float> values(on_host_.size());
    RINGPIPE_RETURN_IF_ERROR(
        ForEachPiece([&](void* piece, std::size_t at, std::size_t bytes) {
          return device_.Copy(values.data() + at, piece, bytes);
        }));
    return values;
  }

 private:
  Floats(const TestDevice& device, Memory memory, std::size_t count,
         float* on_device)
      : device_(device), on_host_(count), on_device_(on_device) {
    if (memory != Memory::kList) {
      pieces_ = {
          {memory == Memory::kHost ? on_host_.data() : on_device, count}};
      return;
    }
    constexpr std::size_t kPieces = 5;
    for (std::size_t i = 0; i < kPieces; ++i) {
      const std::size_t begin = i * count / kPieces;
      pieces_.push_back({(i % 2 == 0 ? on_host_.data() : on_device) + begin,
                         (i + 1) * count / kPieces - begin});
    }
  }

  template <typename Copy>
  Status ForEachPiece(Copy copy) {
    std::size_t at = 0;
    for (const Buffer& piece : pieces_) {
      if (piece.count > 0) {
        RINGPIPE_RETURN_IF_ERROR(
            copy(piece.data, at, piece.count * sizeof(float)));
      }
      at += piece.count;
    }
    return Status::Ok();
  }

  const TestDevice& device_;
  std::vector<float> on_host_;
  float* on_device_;
  std::vector<Buffer> pieces_;
};

// What one rank gives to a call, and what it gets.
struct Case {
  Collective collective;
  std::size_t count;
  double prescale = 1;
};

std::size_t ElementsOf(const Case& test, Holds holds, int size) {
  const bool has_parts = InfoOf(test.collective).has_parts;
  return holds == Holds::kNothing ? 0
         : holds == Holds::kWhole ? test.count * (has_parts ? size : 1)
                                  : test.count;
}

// The result, by buffers in such memory.
Result<std::vector<float>> ResultOf(Communicator& c, const TestDevice& device,
                                    const Case& test, Memory input,
                                    Memory output) {
  constexpr int kRoot = 1;
  const auto [reads, writes] = InfoOf(test.collective).Of(c.rank() == kRoot);
  const std::size_t sent = ElementsOf(test, reads, c.size());
  RINGPIPE_ASSIGN_OR_RETURN(Floats send, Floats::Create(device, input, sent));
  RINGPIPE_ASSIGN_OR_RETURN(
      Floats receive,
      Floats::Create(device, output, ElementsOf(test, writes, c.size())));
  std::vector<float> values(sent);
  for (std::size_t i = 0; i < sent; ++i) {
    values[i] = static_cast<float>(1 + i % 1013) / (3.0F + c.rank());
  }
  RINGPIPE_RETURN_IF_ERROR(send.Write(values));
  RINGPIPE_RETURN_IF_ERROR(
      c.Run({.collective = test.collective,
             .send = send.buffer(),
             .receive = receive.buffer(),
             .count = test.count,
             .type = DataType::kFloat32,
             .op = ReduceOp::kAverage,
             .root = InfoOf(test.collective).is_rooted() ? kRoot : 0,
             .timeout = std::chrono::seconds(60),
             .partners = {(c.rank() + 1) % c.size(),
                          (c.rank() + c.size() - 1) % c.size()},
             .send_list = send.list(),
             .receive_list = receive.list(),
             .prescale = test.prescale}));
  return receive.Read();
}

// How ranks are connected, and whether it is given who reduces.
struct Setting {
  Way way;
  int size;
  bool given = false;
};

class MixedMemoryTest : public ::testing::TestWithParam<Setting> {
 protected:
  // On all ranks, each of which begins with another pair of kinds.
  static Status Compare(Communicator& c, const TestDevice& device,
                        const Case& test) {
    constexpr auto kHost = Memory::kHost;
    constexpr auto kDevice = Memory::kDevice;
    constexpr auto kList = Memory::kList;
    constexpr std::array kKinds = {
        std::pair(kHost, kDevice),   std::pair(kDevice, kHost),
        std::pair(kList, kList),     std::pair(kHost, kHost),
        std::pair(kDevice, kDevice), std::pair(kHost, kList),
        std::pair(kList, kDevice)};
    RINGPIPE_ASSIGN_OR_RETURN(const auto expected,
                              ResultOf(c, device, test, kHost, kHost));
    for (std::size_t i = 0; i < kKinds.size(); ++i) {
      const std::size_t kind = (i + 2 * c.rank()) % kKinds.size();
      const auto [input, output] = kKinds[kind];
      RINGPIPE_ASSIGN_OR_RETURN(const auto found,
                                ResultOf(c, device, test, input, output));
      if (found != expected) {
        return {StatusCode::kInternal,
                std::string(CollectiveName(test.collective)) + " of " +
                    std::to_string(test.count) + ", kind " +
                    std::to_string(kind) + " is not as in host memory"};
      }
    }
    return Status::Ok();
  }
};

TEST_P(MixedMemoryTest, EveryCollectiveGivesTheBitsThatItGivesInHostMemory) {
  const auto [way, size, given] = GetParam();
  const RankBody body = [](Communicator& c) -> Status {
    RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kReduceScatter,
          Collective::kAllGather, Collective::kBroadcast, Collective::kReduce,
          Collective::kGather, Collective::kScatter, Collective::kAllToAll,
          Collective::kSendReceive}) {
      for (const std::size_t count : {1, 1000, 70'001}) {
        const bool scales = InfoOf(collective).reduces && count == 1000;
        RINGPIPE_RETURN_IF_ERROR(
            Compare(c, *device,
                    {.collective = collective,
                     .count = count,
                     .prescale = scales ? 1.0 / (2 + c.rank()) : 1}));
      }
    }
    return Status::Ok();
  };
  ExpectRanks(
      way, size, body, [given = given](int rank, CommunicatorOptions& options) {
        if (given) {
          options.environment.gpu_reduce = rank % 2 == 0 ? "host" : "gpu";
        }
      });
}

INSTANTIATE_TEST_SUITE_P(
    Settings, MixedMemoryTest,
    ::testing::Values(Setting{Way::kHostMemory, 2},
                      Setting{Way::kHostMemory, 4},
                      Setting{Way::kAdversarialRails, 2},
                      Setting{Way::kAdversarialRails, 4},
                      Setting{Way::kHostMemoryAndTestNetwork, 4},
                      Setting{Way::kHostMemory, 4, true},
                      Setting{Way::kAdversarialRails, 2, true}),
    [](const auto& info) {
      return std::string(Name(info.param.way)) + "_" +
             std::to_string(info.param.size) +
             (info.param.given ? "_given" : "");
    });

// How many kernels an allreduce of two ranks launches, and whether it is right.
Result<long> LaunchesOf(Communicator& c, const fake_cuda::Control& fake,
                        Memory input, Memory output) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
  const Case test = {.collective = Collective::kAllReduce, .count = 5000};
  // At the first call all kernels are launched, to load them.
  RINGPIPE_RETURN_IF_ERROR(
      ResultOf(c, *device, test, Memory::kDevice, Memory::kDevice).status());
  RINGPIPE_RETURN_IF_ERROR(c.Barrier());
  const long before = fake.fake_cuda_calls("cuLaunchKernel");
  RINGPIPE_RETURN_IF_ERROR(c.Barrier());
  RINGPIPE_RETURN_IF_ERROR(ResultOf(c, *device, test, input, output).status());
  RINGPIPE_RETURN_IF_ERROR(c.Barrier());
  return fake.fake_cuda_calls("cuLaunchKernel") - before;
}

TEST(GpuReduceTest, WhoReducesIsAsTheVariableSays) {
  const fake_cuda::Control fake = fake_cuda::Control::Find().value();
  struct Row {
    const char* gpu_reduce;
    Memory input;
    Memory output;
    bool by_gpu;
  };
  for (const Row& row :
       {Row{"auto", Memory::kDevice, Memory::kHost, true},
        Row{"auto", Memory::kHost, Memory::kDevice, false},
        Row{"gpu", Memory::kHost, Memory::kDevice, true},
        Row{"gpu", Memory::kHost, Memory::kHost, false},
        Row{"host", Memory::kDevice, Memory::kDevice, false}}) {
    ExpectRanks(
        Way::kHostMemory, 2,
        [&](Communicator& c) -> Status {
          RINGPIPE_ASSIGN_OR_RETURN(const long launches,
                                    LaunchesOf(c, fake, row.input, row.output));
          EXPECT_EQ(launches > 0, row.by_gpu)
              << row.gpu_reduce << ": " << launches;
          return Status::Ok();
        },
        [&](int, CommunicatorOptions& options) {
          options.environment.gpu_reduce = row.gpu_reduce;
        });
  }
}

}  // namespace
}  // namespace ringpipe::testing
