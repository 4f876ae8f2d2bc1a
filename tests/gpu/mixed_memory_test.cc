// Calls whose buffers, or whose pieces of a list, are some of them host memory
// and some of them device memory, on each rank others: with ranks as threads,
// on the fake driver, for which a host pointer in a kernel is an error.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/fake_driver/control_client.h"
#include "cuda/test_device.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"
#include "tests/reference.h"

namespace ringpipe::testing {
namespace {

// A list has pieces of both.
enum class Memory { kHost, kDevice, kList };

// Some of the elements below, as a call takes them.
class Given {
 public:
  Given(Memory memory, std::vector<Buffer> pieces)
      : memory_(memory), pieces_(std::move(pieces)) {}

  void* buffer() const {
    return memory_ == Memory::kList || pieces_.empty() ? nullptr
                                                       : pieces_[0].data;
  }
  BufferList list() const {
    return memory_ == Memory::kList ? BufferList(pieces_) : BufferList();
  }

 private:
  Memory memory_;
  std::vector<Buffer> pieces_;
};

// Elements in memory of such a kind; of a list, in 5 pieces of the host's and
// of the device's in turn.
template <typename T>
class Elements {
 public:
  static Result<Elements> Create(const TestDevice& device, Memory memory,
                                 const std::vector<T>& values) {
    RINGPIPE_ASSIGN_OR_RETURN(
        void* const on_device,
        device.Allocate(std::max<std::size_t>(values.size(), 1) * sizeof(T)));
    Elements elements(device, memory, values.size(),
                      static_cast<T*>(on_device));
    RINGPIPE_RETURN_IF_ERROR(elements.Write(values));
    return elements;
  }
  ~Elements() {
    if (on_device_ != nullptr) {
      device_.Free(on_device_);
    }
  }
  Elements(Elements&& other) noexcept
      : device_(other.device_),
        memory_(other.memory_),
        on_host_(std::move(other.on_host_)),
        on_device_(std::exchange(other.on_device_, nullptr)) {}
  Elements& operator=(Elements&&) = delete;

  // The elements [first, first + count).
  Given Part(std::size_t first, std::size_t count) {
    return {memory_, Pieces(first, count)};
  }

  Result<std::vector<T>> Read(std::size_t first, std::size_t count) {
    std::vector<T> values;
    for (const Buffer& piece : Pieces(first, count)) {
      std::vector<T> part(piece.count);
      RINGPIPE_RETURN_IF_ERROR(Copy(part.data(), piece.data, piece.count));
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  }

 private:
  Elements(const TestDevice& device, Memory memory, std::size_t count,
           T* on_device)
      : device_(device),
        memory_(memory),
        on_host_(count),
        on_device_(on_device) {}

  std::vector<Buffer> Pieces(std::size_t first, std::size_t count) {
    if (memory_ != Memory::kList) {
      T* const data = memory_ == Memory::kHost ? on_host_.data() : on_device_;
      return {{data + first, count}};
    }
    constexpr std::size_t kPieces = 5;
    std::vector<Buffer> pieces;
    for (std::size_t i = 0; i < kPieces; ++i) {
      const std::size_t begin = std::max(first, i * on_host_.size() / kPieces);
      const std::size_t end =
          std::min(first + count, (i + 1) * on_host_.size() / kPieces);
      T* const data = i % 2 == 0 ? on_host_.data() : on_device_;
      pieces.push_back({data + begin, end > begin ? end - begin : 0});
    }
    return pieces;
  }

  Status Write(const std::vector<T>& values) {
    const T* from = values.data();
    for (const Buffer& piece : Pieces(0, values.size())) {
      RINGPIPE_RETURN_IF_ERROR(Copy(piece.data, from, piece.count));
      from += piece.count;
    }
    return Status::Ok();
  }
  Status Copy(void* target, const void* source, std::size_t count) {
    return count == 0 ? Status::Ok()
                      : device_.Copy(target, source, count * sizeof(T));
  }

  const TestDevice& device_;
  Memory memory_;
  std::vector<T> on_host_;
  T* on_device_;
};

// Where a rank's buffers of a call are. In place, where the rank's call can be,
// input and output are both in memory of the input's kind.
struct Kinds {
  Memory input = Memory::kHost;
  Memory output = Memory::kHost;
  bool in_place = false;
};
constexpr std::array kAllKinds = {
    Kinds{Memory::kHost, Memory::kDevice},
    Kinds{Memory::kDevice, Memory::kHost},
    Kinds{Memory::kList, Memory::kList},
    Kinds{Memory::kHost, Memory::kHost},
    Kinds{Memory::kDevice, Memory::kDevice},
    Kinds{Memory::kHost, Memory::kList},
    Kinds{Memory::kList, Memory::kDevice},
    Kinds{Memory::kList, Memory::kList, true},
    Kinds{Memory::kDevice, Memory::kDevice, true},
    Kinds{Memory::kHost, Memory::kHost, true},
};

// Makes a call, whose buffers are not set, with this input. Returns its result,
// of `received` elements.
template <typename T>
Result<std::vector<T>> ResultOf(Communicator& c, const TestDevice& device,
                                Call call, const Kinds& kinds,
                                const std::vector<T>& input,
                                std::size_t received) {
  const bool in_place = kinds.in_place && InfoOf(call.collective).in_place &&
                        !input.empty() && received > 0;
  const InPlace at =
      in_place ? InPlaceOf(call.collective, PartOf(call, c.rank()).first)
               : InPlace();
  RINGPIPE_ASSIGN_OR_RETURN(
      Elements<T> in,
      Elements<T>::Create(
          device, kinds.input,
          in_place ? InPlaceValues(input, at, received) : input));
  RINGPIPE_ASSIGN_OR_RETURN(
      Elements<T> out,
      Elements<T>::Create(device, kinds.output,
                          Poisoned<T>(in_place ? 0 : received)));
  Elements<T>& target = in_place ? in : out;
  const Given send = in.Part(at.input, input.size());
  const Given receive = target.Part(at.output, received);
  call.send = send.buffer();
  call.receive = receive.buffer();
  call.send_list = send.list();
  call.receive_list = receive.list();
  RINGPIPE_RETURN_IF_ERROR(c.Run(call));
  if (!in_place) {
    RINGPIPE_ASSIGN_OR_RETURN(const auto after, in.Read(0, input.size()));
    if (after != input) {
      return Status(StatusCode::kInternal, "the input has changed");
    }
  }
  return target.Read(at.output, received);
}

std::string Words(const Call& call, std::size_t kind) {
  std::string counts;
  for (const std::size_t count : call.counts) {
    counts += (counts.empty() ? " each of " : ", ") + std::to_string(count);
  }
  return std::string(CollectiveName(call.collective)) + " of " +
         std::string(Name(call.type)) + ", " +
         (counts.empty() ? std::to_string(call.count) : counts) +
         " elements, kind " + std::to_string(kind);
}

// Makes the call with buffers of every kind, each rank beginning with another
// one, and compares the results.
template <typename T>
Status TryAllKinds(Communicator& c, const TestDevice& device, const Call& call,
                   const std::vector<T>& input,
                   const std::vector<T>& expected) {
  for (std::size_t i = 0; i < kAllKinds.size(); ++i) {
    const std::size_t kind = (i + 2 * c.rank()) % kAllKinds.size();
    const auto found =
        ResultOf<T>(c, device, call, kAllKinds[kind], input, expected.size());
    RINGPIPE_RETURN_IF_ERROR(found.status().WithContext(Words(call, kind)));
    if (found.value() != expected) {
      return {StatusCode::kInternal, Words(call, kind) + ": a wrong result"};
    }
  }
  return Status::Ok();
}

// A call of `count` elements without buffers, and the ring's neighbours.
Call CallOf(const Communicator& c, Collective collective, DataType type,
            std::size_t count) {
  Call call = {.collective = collective,
               .count = count,
               .type = type,
               .root = InfoOf(collective).is_rooted() ? 1 : 0,
               .timeout = std::chrono::seconds(60)};
  if (collective == Collective::kSendReceive) {
    call.partners = {(c.rank() + 1) % c.size(),
                     (c.rank() + c.size() - 1) % c.size()};
  }
  return call;
}

constexpr std::array kCollectivesWithBuffers = {
    Collective::kAllReduce,  Collective::kReduceScatter,
    Collective::kAllGather,  Collective::kBroadcast,
    Collective::kReduce,     Collective::kGather,
    Collective::kScatter,    Collective::kAllToAll,
    Collective::kSendReceive};

// How ranks are connected, and whether it is given who reduces.
struct Setting {
  Way way;
  int size;
  bool given = false;
};

class MixedMemoryTest : public ::testing::TestWithParam<Setting> {
 protected:
  // Of 1 KiB: messages of a few thousand elements are cut too.
  static constexpr std::int64_t kShortSubchunks = 1024;

  // On each rank, which is given who reduces where the setting says so.
  // `subchunk_bytes`: 0 for the default.
  static void ExpectAll(
      std::int64_t subchunk_bytes,
      const std::function<Status(Communicator&, const TestDevice&)>& body) {
    const auto [way, size, given] = GetParam();
    ExpectRanks(
        way, size,
        [&body](Communicator& c) -> Status {
          RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
          return body(c, *device);
        },
        [given = given, subchunk_bytes](int rank,
                                        CommunicatorOptions& options) {
          if (given) {
            options.environment.gpu_reduce = rank % 2 == 0 ? "host" : "gpu";
          }
          if (subchunk_bytes > 0) {
            options.environment.subchunk_bytes = subchunk_bytes;
          }
        });
  }

  // Of numbers whose sums round, beside the call with host memory alone.
  template <typename T>
  static Status CompareBits(Communicator& c, const TestDevice& device,
                            Collective collective, DataType type,
                            std::size_t count) {
    Call call = CallOf(c, collective, type, count);
    call.op = ReduceOp::kAverage;
    if (InfoOf(collective).reduces && count == 1000) {
      call.prescale = 1.0 / (2 + c.rank());
    }
    std::vector<T> input(InputOf<T>(call, c.rank(), c.size()).size());
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] = static_cast<T>(static_cast<float>(1 + i % 1013) /
                                (3.0F + static_cast<float>(c.rank())));
    }
    RINGPIPE_ASSIGN_OR_RETURN(
        const std::vector<T> expected,
        ResultOf<T>(c, device, call, Kinds(), input,
                    OutputOf<T>(call, c.rank(), c.size()).size()));
    return TryAllKinds<T>(c, device, call, input, expected);
  }

  // Beside what was computed without ringpipe.
  static Status CompareNumbers(Communicator& c, const TestDevice& device,
                               const Call& call) {
    return WithType(call.type, [&]<typename T>() {
      return TryAllKinds<T>(c, device, call,
                            InputOf<T>(call, c.rank(), c.size()),
                            OutputOf<T>(call, c.rank(), c.size()));
    });
  }
};

TEST_P(MixedMemoryTest, EveryCollectiveGivesTheBitsThatItGivesInHostMemory) {
  ExpectAll(0, [](Communicator& c, const TestDevice& device) -> Status {
    for (const Collective collective : kCollectivesWithBuffers) {
      for (const std::size_t count : {1, 1000, 70'001}) {
        RINGPIPE_RETURN_IF_ERROR(CompareBits<float>(c, device, collective,
                                                    DataType::kFloat32, count));
      }
    }
    return Status::Ok();
  });
}

TEST_P(MixedMemoryTest, ReductionsOf16BitsGiveTheBitsThatTheyGiveInHostMemory) {
  ExpectAll(kShortSubchunks,
            [](Communicator& c, const TestDevice& device) -> Status {
              for (const Collective collective :
                   {Collective::kAllReduce, Collective::kReduceScatter,
                    Collective::kReduce}) {
                for (const std::size_t count : {1000, 3001}) {
                  RINGPIPE_RETURN_IF_ERROR(CompareBits<Float16>(
                      c, device, collective, DataType::kFloat16, count));
                  RINGPIPE_RETURN_IF_ERROR(CompareBits<Bfloat16>(
                      c, device, collective, DataType::kBfloat16, count));
                }
              }
              return Status::Ok();
            });
}

TEST_P(MixedMemoryTest, EveryCollectiveIsRightOf16BitsAndOfNothing) {
  ExpectAll(
      kShortSubchunks, [](Communicator& c, const TestDevice& device) -> Status {
        for (const Collective collective : kCollectivesWithBuffers) {
          for (const auto& [type, count] : {std::pair(DataType::kFloat16, 333),
                                            {DataType::kBfloat16, 1001},
                                            {DataType::kFloat32, 0},
                                            {DataType::kFloat16, 0}}) {
            RINGPIPE_RETURN_IF_ERROR(
                CompareNumbers(c, device, CallOf(c, collective, type, count)));
          }
        }
        return Status::Ok();
      });
}

struct UnevenCase {
  DataType type;
  std::vector<std::size_t> counts;  // by rank
};

std::vector<UnevenCase> UnevenCases(int size) {
  std::vector<std::size_t> first_has_none(size, 777);
  first_has_none.front() = 0;
  std::vector<std::size_t> last_has_all(size, 0);
  last_has_all.back() = 1501;
  return {{DataType::kFloat32, std::vector<std::size_t>(size, 0)},
          {DataType::kFloat32, first_has_none},
          {DataType::kFloat16, last_has_all},
          {DataType::kBfloat16, first_has_none}};
}

TEST_P(MixedMemoryTest, PartsOfNothingBesideOthersAreRight) {
  ExpectAll(
      kShortSubchunks, [](Communicator& c, const TestDevice& device) -> Status {
        for (const Collective collective : kCollectivesWithBuffers) {
          const CollectiveInfo& info = InfoOf(collective);
          if (!info.takes_counts() && !info.takes_counts_of_pairs()) {
            continue;
          }
          for (const auto& [type, counts] : UnevenCases(c.size())) {
            Call call = CallOf(c, collective, type, 0);
            call.counts = counts;
            // Every rank has as much for this one.
            const std::vector<std::size_t> received(c.size(), counts[c.rank()]);
            if (info.takes_counts_of_pairs()) {
              call.receive_counts = received;
            }
            RINGPIPE_RETURN_IF_ERROR(CompareNumbers(c, device, call));
          }
        }
        return Status::Ok();
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

// An allreduce with buffers of these kinds, beside what was computed without
// ringpipe.
Status ExpectRightSum(Communicator& c, const TestDevice& device,
                      const Kinds& kinds) {
  const Call call = CallOf(c, Collective::kAllReduce, DataType::kFloat32, 5000);
  const auto expected = OutputOf<float>(call, c.rank(), c.size());
  RINGPIPE_ASSIGN_OR_RETURN(
      const std::vector<float> found,
      ResultOf<float>(c, device, call, kinds,
                      InputOf<float>(call, c.rank(), c.size()),
                      expected.size()));
  return found == expected
             ? Status::Ok()
             : Status(StatusCode::kInternal, "an allreduce's sum is wrong");
}

// How many kernels an allreduce of two ranks launches.
Result<long> LaunchesOf(Communicator& c, const fake_cuda::Control& fake,
                        const Kinds& kinds) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
  // At the first call all kernels are launched, to load them.
  RINGPIPE_RETURN_IF_ERROR(
      ExpectRightSum(c, *device, {Memory::kDevice, Memory::kDevice}));
  RINGPIPE_RETURN_IF_ERROR(c.Barrier());
  const long before = fake.fake_cuda_calls("cuLaunchKernel");
  RINGPIPE_RETURN_IF_ERROR(c.Barrier());
  RINGPIPE_RETURN_IF_ERROR(ExpectRightSum(c, *device, kinds));
  RINGPIPE_RETURN_IF_ERROR(c.Barrier());
  const long after = fake.fake_cuda_calls("cuLaunchKernel");
  if (before < 0) {
    return Status(StatusCode::kInternal, "the driver counts no launches");
  }
  return after - before;
}

TEST(GpuReduceTest, WhoReducesIsAsTheVariableSays) {
  const fake_cuda::Control fake = fake_cuda::Control::Find().value();
  struct Row {
    const char* gpu_reduce;
    Kinds kinds;
    bool by_gpu;
  };
  for (const Row& row :
       {Row{"auto", {Memory::kDevice, Memory::kHost}, true},
        Row{"auto", {Memory::kHost, Memory::kDevice}, false},
        Row{"gpu", {Memory::kHost, Memory::kDevice}, true},
        Row{"gpu", {Memory::kHost, Memory::kHost}, false},
        Row{"host", {Memory::kDevice, Memory::kDevice}, false}}) {
    ExpectRanks(
        Way::kHostMemory, 2,
        [&](Communicator& c) -> Status {
          RINGPIPE_ASSIGN_OR_RETURN(const long launches,
                                    LaunchesOf(c, fake, row.kinds));
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
