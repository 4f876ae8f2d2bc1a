// For tests: a call in each of the ways in which a rank can make it, beside
// what it has to give.
#ifndef RINGPIPE_TESTS_TESTED_CALL_H_
#define RINGPIPE_TESTS_TESTED_CALL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/reference.h"
#include "tests/scattered.h"

namespace ringpipe::testing {

enum class Memory { kPrivate, kRegistered, kAllocated };

// How a rank makes a call. The ranks of one call may differ in this.
struct How {
  bool in_place = false;
  bool asynchronous = false;
  Memory memory = Memory::kPrivate;
  bool in_pieces = false;  // of private memory
};

inline constexpr How kHows[] = {{}, {.in_place = true}, {.asynchronous = true}};
inline constexpr How kHowsInPieces[] = {
    {.in_pieces = true},
    {.in_place = true, .in_pieces = true},
    {.asynchronous = true, .in_pieces = true},
};

inline std::string Words(std::string_view call, const How& how) {
  return std::string(call) + (how.in_place ? " in place" : "") +
         (how.asynchronous ? ", asynchronous" : "") +
         (how.in_pieces ? ", in pieces" : "");
}

// A buffer of a call, in memory of one of the kinds.
template <typename T>
class Buffer {
 public:
  Buffer(Communicator& c, Memory memory, std::vector<T> values)
      : c_(c), memory_(memory), values_(std::move(values)) {
    data_ = values_.data();
    if (memory_ == Memory::kAllocated && !values_.empty()) {
      auto allocated = c_.Allocate(values_.size() * sizeof(T));
      EXPECT_TRUE(allocated.ok()) << allocated.status().ToString();
      data_ = allocated.ok() ? static_cast<T*>(*allocated) : nullptr;
      std::copy_n(values_.data(), data_ == nullptr ? 0 : values_.size(), data_);
    } else if (memory_ == Memory::kRegistered && !values_.empty()) {
      const Status status = c_.Register(data_, values_.size() * sizeof(T));
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  }
  ~Buffer() {
    if (values_.empty() || memory_ == Memory::kPrivate) {
      return;
    }
    const Status status =
        memory_ == Memory::kAllocated ? c_.Free(data_) : c_.Deregister(data_);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return data_; }

 private:
  Communicator& c_;
  const Memory memory_;
  std::vector<T> values_;
  T* data_;
};

// Makes the call and, where it is asynchronous, waits for its end.
// `after_start`: nothing that it does may make a difference.
template <typename F>
Status Make(Communicator& c, const How& how, const Call& call, F after_start) {
  if (!how.asynchronous) {
    return c.Run(call);
  }
  RINGPIPE_ASSIGN_OR_RETURN(Request request, c.Start(call));
  after_start();
  return request.Wait();
}

template <typename T>
Status Compare(const T* got, const std::vector<T>& expected,
               const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!(got[i] == expected[i])) {
      return {StatusCode::kInternal,
              what + ": element " + std::to_string(i) + " of " +
                  std::to_string(expected.size()) + " is " +
                  std::to_string(got[i]) + ", not " +
                  std::to_string(expected[i])};
    }
  }
  return Status::Ok();
}

template <typename T>
Status Compare(const std::vector<T>& got, const std::vector<T>& expected,
               const std::string& what) {
  return Compare(got.data(), expected, what);
}

// The same with lists of buffers, cut differently on each rank; one of them may
// be a buffer.
template <typename T>
Status MakeInPieces(Communicator& c, Call call, const How& how,
                    const std::vector<T>& values, const InPlace& at,
                    std::size_t input, const std::vector<T>& expected,
                    bool in_place) {
  const std::uint64_t seed = 1000 * call.count + 10 * c.rank();
  Scattered<T> in(values, seed);
  Scattered<T> out(Poisoned<T>(in_place ? 0 : expected.size()), seed + 1);
  Scattered<T>& target = in_place ? in : out;
  std::vector<ringpipe::Buffer> send =
      in.Pieces(in_place ? at.input : 0, input);
  std::vector<ringpipe::Buffer> receive =
      target.Pieces(in_place ? at.output : 0, expected.size());
  call.send_list = send;
  call.receive_list = receive;
  auto together = Poisoned<T>(expected.size());
  const bool receives_together = !in_place && seed % 3 == 0;
  if (receives_together) {
    call.receive_list = {};
    call.receive = together.data();
  }
  RINGPIPE_RETURN_IF_ERROR(Make(c, how, call, [&] {
    std::fill(send.begin(), send.end(), ringpipe::Buffer{});
    std::fill(receive.begin(), receive.end(), ringpipe::Buffer{});
  }));
  EXPECT_TRUE(in.GapsAreWhole() && out.GapsAreWhole())
      << "something was written between the pieces";
  return Compare(receives_together
                     ? together
                     : target.Values(in_place ? at.output : 0, expected.size()),
                 expected, Words(CollectiveName(call.collective), how));
}

// Makes the call, whose buffers are not set, in each of these ways, and
// compares the result with what is expected.
template <typename T>
Status TestCall(Communicator& c, Call call, std::span<const How> hows = kHows) {
  const auto input = InputOf<T>(call, c.rank(), c.size());
  const auto expected = OutputOf<T>(call, c.rank(), c.size());
  const InPlace at = InPlaceOf(call.collective, PartOf(call, c.rank()).first);
  for (const How& how : hows) {
    const bool in_place = how.in_place && !input.empty() && !expected.empty() &&
                          call.collective != Collective::kAllToAll;
    std::vector<T> values =
        in_place ? InPlaceValues(input, at, expected.size()) : input;
    if (how.in_pieces) {
      RINGPIPE_RETURN_IF_ERROR(MakeInPieces<T>(
          c, call, how, values, at, input.size(), expected, in_place));
      continue;
    }
    const Buffer<T> in(c, how.memory, std::move(values));
    const Buffer<T> out(c, how.memory,
                        Poisoned<T>(in_place ? 0 : expected.size()));
    T* const receive = in_place ? in.data() + at.output : out.data();
    call.send = in_place ? in.data() + at.input : in.data();
    call.receive = receive;
    RINGPIPE_RETURN_IF_ERROR(Make(c, how, call, [] {}));
    RINGPIPE_RETURN_IF_ERROR(Compare(
        receive, expected, Words(CollectiveName(call.collective), how)));
  }
  return Status::Ok();
}

// The same by the call's type.
inline Status TestCallOfType(Communicator& c, const Call& call,
                             std::span<const How> hows = kHows) {
  return WithType(call.type,
                  [&]<typename T>() { return TestCall<T>(c, call, hows); })
      .WithContext(std::string(Name(call.type)) + " " +
                   std::string(Name(call.op)) + ", count " +
                   std::to_string(call.count) + ", root " +
                   std::to_string(call.root));
}

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_TESTED_CALL_H_
