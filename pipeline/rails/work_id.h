#ifndef RINGPIPE_PIPELINE_RAILS_WORK_ID_H_
#define RINGPIPE_PIPELINE_RAILS_WORK_ID_H_

#include <cstdint>

namespace ringpipe {

// Which work request of which queue pair, packed into its 64-bit wr_id.
struct WorkId {
  static constexpr std::uint8_t kControl = 0xff;

  bool receive = false;
  std::uint8_t channel = kControl;  // else a rail of the connection
  std::uint16_t peer = 0;
  // Of a send: its number on its queue pair, from 0, modulo 2^32. Of a receive
  // of a control message: its buffer.
  std::uint32_t number = 0;

  std::uint64_t Pack() const {
    return static_cast<std::uint64_t>(receive) << 56 |
           static_cast<std::uint64_t>(channel) << 48 |
           static_cast<std::uint64_t>(peer) << 32 | number;
  }
  static WorkId Unpack(std::uint64_t wr_id) {
    return {(wr_id >> 56 & 1) != 0, static_cast<std::uint8_t>(wr_id >> 48),
            static_cast<std::uint16_t>(wr_id >> 32),
            static_cast<std::uint32_t>(wr_id)};
  }
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_RAILS_WORK_ID_H_
