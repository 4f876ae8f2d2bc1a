#include "verbs/soft/network/packet_reader.h"

#include "reduction/host_copy.h"

namespace ringpipe::verbs::soft {

// Not zeroed: an idle connection takes no memory.
PacketReader::PacketReader() : buffer_(new std::byte[kBufferBytes]) {}

std::span<std::byte> PacketReader::Space() {
  if (begin_ > 0) {
    HostCopy(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return {buffer_.get() + end_, kBufferBytes - end_};
}

PacketReader::Outcome PacketReader::Next(PacketHeader* header,
                                         std::span<const std::byte>* payload) {
  const std::size_t available = end_ - begin_;
  if (available < kPacketHeaderBytes) {
    return Outcome::kMore;
  }
  const std::byte* const start = buffer_.get() + begin_;
  if (!DecodePacketHeader(std::span<const std::byte, kPacketHeaderBytes>(
                              start, kPacketHeaderBytes),
                          header)) {
    return Outcome::kGarbage;
  }
  if (available < kPacketHeaderBytes + header->payload_bytes) {
    return Outcome::kMore;
  }
  *payload = {start + kPacketHeaderBytes, header->payload_bytes};
  begin_ += kPacketHeaderBytes + header->payload_bytes;
  return Outcome::kPacket;
}

}  // namespace ringpipe::verbs::soft
