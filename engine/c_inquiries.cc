// The functions of the C interface that ask a communicator for something
// without making a call.
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/c_interface.h"

using ringpipe::Communicator;
using ringpipe::Result;
using ringpipe::Status;
using ringpipe::c_interface::Guarded;
using ringpipe::c_interface::Invalid;
using ringpipe::c_interface::IsOpen;
using ringpipe::c_interface::NullArgument;
using ringpipe::c_interface::ToC;
using ringpipe::c_interface::WhyNotOpen;
using ringpipe::c_interface::Write;

namespace {

Status Exchange(Communicator& communicator, std::string_view send,
                unsigned char* receive, std::size_t capacity,
                std::size_t* sizes) {
  RINGPIPE_ASSIGN_OR_RETURN(const std::vector<std::string> blobs,
                            communicator.Exchange(std::string(send)));
  int longest = 0;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const std::string& blob = blobs[rank];
    if (sizes != nullptr) {
      sizes[rank] = blob.size();
    }
    if (blob.size() > blobs[longest].size()) {
      longest = rank;
    }
    std::copy_n(blob.begin(), std::min(blob.size(), capacity),
                receive + rank * capacity);
  }
  if (blobs[longest].size() > capacity) {
    return Invalid("rank " + std::to_string(longest) + "'s blob has " +
                   std::to_string(blobs[longest].size()) +
                   " bytes, more than the capacity, " +
                   std::to_string(capacity));
  }
  return Status::Ok();
}

}  // namespace

extern "C" {

ringpipe_status ringpipe_exchange(ringpipe_communicator* communicator,
                                  const void* send, size_t bytes, void* receive,
                                  size_t capacity, size_t* sizes) {
  return Guarded([&] {
    if (!IsOpen(communicator)) {
      return ToC(WhyNotOpen(communicator));
    }
    if ((send == nullptr && bytes > 0) ||
        (receive == nullptr && capacity > 0)) {
      return NullArgument(receive == nullptr && capacity > 0 ? "receive"
                                                             : "send");
    }
    try {
      return ToC(Exchange(
          *communicator->communicator, {static_cast<const char*>(send), bytes},
          static_cast<unsigned char*>(receive), capacity, sizes));
    } catch (const std::bad_alloc&) {
      return ToC(communicator->OutOfMemory());
    }
  });
}

ringpipe_status ringpipe_failure(const ringpipe_communicator* communicator) {
  return Guarded([&] {
    return ToC(IsOpen(communicator) ? communicator->communicator->failure()
                                    : WhyNotOpen(communicator));
  });
}

ringpipe_status ringpipe_lost_ranks(const ringpipe_communicator* communicator,
                                    int32_t* ranks, size_t capacity,
                                    size_t* count) {
  return Guarded([&] {
    if (!IsOpen(communicator)) {
      return ToC(WhyNotOpen(communicator));
    }
    if (count == nullptr || (ranks == nullptr && capacity > 0)) {
      return NullArgument(count == nullptr ? "count" : "ranks");
    }
    const Result<std::vector<int>> lost =
        communicator->communicator->lost_ranks();
    if (lost.ok()) {
      *count = lost->size();
      std::copy_n(lost->begin(), std::min(capacity, lost->size()), ranks);
    }
    return ToC(lost.status());
  });
}

ringpipe_status ringpipe_device(const ringpipe_communicator* communicator,
                                char* text, size_t capacity, size_t* length) {
  return Guarded([&] {
    if (!IsOpen(communicator)) {
      return ToC(WhyNotOpen(communicator));
    }
    if (text == nullptr && capacity > 0) {
      return NullArgument("text");
    }
    const std::string device = communicator->communicator->device();
    if (device.empty()) {
      return ToC(ringpipe::OutOfMemory());
    }
    if (capacity > 0) {
      const std::size_t bytes = std::min(device.size(), capacity - 1);
      device.copy(text, bytes);
      text[bytes] = '\0';
    }
    if (length != nullptr) {
      *length = device.size();
    }
    return RINGPIPE_OK;
  });
}

ringpipe_status ringpipe_read_stage(const ringpipe_communicator* communicator,
                                    size_t index,
                                    ringpipe_stage_counters* counters) {
  return Guarded([&] {
    if (!IsOpen(communicator)) {
      return ToC(WhyNotOpen(communicator));
    }
    if (counters == nullptr) {
      return NullArgument("counters");
    }
    const auto stages = communicator->communicator->stage_counters();
    if (stages.empty()) {
      return ToC(ringpipe::OutOfMemory());
    }
    if (index >= stages.size()) {
      return ToC(Invalid("there is no stage number " + std::to_string(index) +
                         "; there are " + std::to_string(stages.size())));
    }
    const ringpipe::StageCounters& stage = stages[index];
    ringpipe_stage_counters read = {};
    read.stage = stage.stage.data();
    read.operations = stage.operations;
    read.bytes = stage.bytes;
    read.busy_ns = stage.busy_ns;
    read.waits = stage.waits;
    read.wait_ns = stage.wait_ns;
    return ToC(Write(read, counters, "ringpipe_stage_counters"));
  });
}

ringpipe_status ringpipe_read_slots(const ringpipe_communicator* communicator,
                                    ringpipe_slot_counters* counters) {
  return Guarded([&] {
    if (!IsOpen(communicator)) {
      return ToC(WhyNotOpen(communicator));
    }
    if (counters == nullptr) {
      return NullArgument("counters");
    }
    const ringpipe::SlotCounters slots =
        communicator->communicator->slot_counters();
    ringpipe_slot_counters read = {};
    read.slots = slots.slots;
    read.in_use = slots.in_use;
    read.high_water = slots.high_water;
    read.waits = slots.waits;
    return ToC(Write(read, counters, "ringpipe_slot_counters"));
  });
}

}  // extern "C"
