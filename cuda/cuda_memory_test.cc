#include "cuda/cuda_memory.h"

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

// A driver that knows some pointers. Every other function of the table is null,
// so that calling it would end the test: whoever only asks must make no
// context.
struct Known {
  unsigned type = 0;
  unsigned managed = 0;
  int device = 0;
};
std::map<std::uintptr_t, Known>* known = nullptr;
CudaDriver::Error answer = CudaDriver::kSuccess;

CudaDriver::Error GetAttributes(unsigned count, int* attributes, void** values,
                                unsigned long long pointer) {
  const auto found = known->find(pointer);
  for (unsigned i = 0; i < count; ++i) {
    const Known what = found == known->end() ? Known() : found->second;
    switch (attributes[i]) {
      case CudaDriver::kMemoryType:
        *static_cast<unsigned*>(values[i]) = what.type;
        break;
      case CudaDriver::kIsManaged:
        *static_cast<unsigned*>(values[i]) = what.managed;
        break;
      case CudaDriver::kContext:  // as of a pool
        *static_cast<CudaDriver::Context*>(values[i]) = nullptr;
        break;
      case CudaDriver::kDeviceOrdinal:
        *static_cast<int*>(values[i]) = what.device;
        break;
      default:
        ADD_FAILURE() << "attribute " << attributes[i];
    }
  }
  return answer;
}

class CudaMemoryTest : public testing::Test {
 protected:
  CudaMemoryTest() {
    driver_.pointer_get_attributes = &GetAttributes;
    known = &known_;
    answer = CudaDriver::kSuccess;
    constexpr unsigned kDevice = CudaDriver::kMemoryTypeDevice;
    constexpr unsigned kHost = 1;
    known_[Address(&on_gpu0_)] = {kDevice, 0, 0};
    known_[Address(&on_gpu1_)] = {kDevice, 0, 1};
    known_[Address(&also_on_gpu1_)] = {kDevice, 0, 1};
    known_[Address(&managed_of_gpu0_)] = {kDevice, 1, 0};
    known_[Address(&pinned_by_gpu0_)] = {kHost, 0, 0};
  }

  static std::uintptr_t Address(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
  }

  bool Owns(const void* pointer) {
    const Result<bool> owned = memory_.Owns(pointer);
    EXPECT_TRUE(owned.ok()) << owned.status().ToString();
    return owned.ok() && owned.value();
  }

  CudaDriver driver_;
  std::map<std::uintptr_t, Known> known_;
  CudaMemory memory_{driver_};
  int on_gpu0_ = 0;
  int on_gpu1_ = 0;
  int also_on_gpu1_ = 0;
  int managed_of_gpu0_ = 0;
  int pinned_by_gpu0_ = 0;
  int host_ = 0;
};

TEST_F(CudaMemoryTest, HostMemoryIsNotOwnedAndDecidesForNoDevice) {
  EXPECT_FALSE(Owns(&host_));
  EXPECT_FALSE(Owns(&pinned_by_gpu0_));
  EXPECT_FALSE(Owns(nullptr));
  EXPECT_EQ(memory_.device(), CudaMemory::kNone);
  EXPECT_EQ(memory_.name(), "cuda");
}

TEST_F(CudaMemoryTest, TheFirstDeviceBufferDecidesForItsDevice) {
  EXPECT_TRUE(Owns(&on_gpu1_));
  EXPECT_EQ(memory_.device(), 1);
  EXPECT_EQ(memory_.name(), "cuda:1");
  EXPECT_TRUE(Owns(&also_on_gpu1_));
  EXPECT_FALSE(Owns(&host_));
}

TEST_F(CudaMemoryTest, MemoryOfAnotherDeviceIsRefusedAndBothAreNamed) {
  ASSERT_TRUE(Owns(&on_gpu1_));
  const Result<bool> owned = memory_.Owns(&on_gpu0_);
  ASSERT_FALSE(owned.ok());
  EXPECT_EQ(owned.status().code(), StatusCode::kInvalidArgument);
  const std::string& message = owned.status().message();
  EXPECT_NE(message.find("memory of cuda:0,"), std::string::npos) << message;
  EXPECT_NE(message.find("uses cuda:1,"), std::string::npos) << message;
  EXPECT_NE(message.find("create a communicator for each GPU"),
            std::string::npos)
      << message;
  EXPECT_TRUE(Owns(&on_gpu1_)) << "as before";
}

TEST_F(CudaMemoryTest, ManagedMemoryIsOwnedWhicheverTheDevice) {
  ASSERT_TRUE(Owns(&on_gpu1_));
  EXPECT_TRUE(Owns(&managed_of_gpu0_));
  EXPECT_EQ(memory_.device(), 1);
}

TEST_F(CudaMemoryTest, AManagedBufferThatIsTheFirstDecidesToo) {
  EXPECT_TRUE(Owns(&managed_of_gpu0_));
  EXPECT_EQ(memory_.device(), 0);
  EXPECT_FALSE(memory_.Owns(&on_gpu1_).ok());
}

TEST_F(CudaMemoryTest, WhereTheDriverIsNotInUseEverythingIsHostMemory) {
  for (const CudaDriver::Error error :
       {CudaDriver::kNotInitialized, CudaDriver::kDeinitialized,
        CudaDriver::kInvalidValue}) {
    answer = error;
    EXPECT_FALSE(Owns(&host_)) << error;
  }
  EXPECT_EQ(memory_.device(), CudaMemory::kNone);
}

TEST_F(CudaMemoryTest, AnyOtherErrorIsNotTakenForHostMemory) {
  answer = 700;  // an illegal address, earlier
  const Result<bool> owned = memory_.Owns(&on_gpu0_);
  ASSERT_FALSE(owned.ok());
  EXPECT_EQ(owned.status().code(), StatusCode::kDeviceError);
  EXPECT_NE(owned.status().message().find("(700)"), std::string::npos)
      << owned.status().ToString();
}

TEST_F(CudaMemoryTest, ThreadsThatAskAtOnceAgreeOnOneDevice) {
  for (int round = 0; round < 200; ++round) {
    CudaMemory memory(driver_);
    std::vector<int> owned(2);
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        const Result<bool> mine = memory.Owns(i == 0 ? &on_gpu0_ : &on_gpu1_);
        owned[i] = mine.ok() && mine.value() ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(owned[0] + owned[1], 1);
    EXPECT_EQ(owned[memory.device()], 1);
  }
}

}  // namespace
}  // namespace ringpipe
