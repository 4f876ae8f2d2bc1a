#ifndef RINGPIPE_VERBS_SOFT_FUZZ_HOSTILE_PEER_H_
#define RINGPIPE_VERBS_SOFT_FUZZ_HOSTILE_PEER_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/file_descriptor.h"
#include "verbs/soft/link_message.h"
#include "verbs/soft/segment.h"

namespace ringpipe::verbs::soft {

// A context's peer that obeys no rule: a segment, a listening socket and a
// connection to the context, but no code that would keep them consistent. To
// the context it is another process, whose memory holds nothing of interest:
// that of a child which sleeps.
class HostilePeer {
 public:
  static constexpr std::uint32_t kPd = 7;
  // Keys of its regions: in the child's memory, and in the segment.
  static constexpr std::uint32_t kPrivateKey = 1 << 8 | 1;
  static constexpr std::uint32_t kSharedKey = 2 << 8 | 1;
  static constexpr std::uint64_t kRegionBytes = 128 * 1024;
  static constexpr std::uint64_t kRegionAddress = 0x10000;  // to its keys

  // What a descriptor that it sends is.
  enum File : std::uint8_t {
    kNoFile,
    kOwned,
    kShared,
    kVictimsOwned,
    kVictimsShared,
    kChannel,
    kFullChannel,
    kDeadPipe,
    kFullPipe,
    kNull,
    kUnsealedFile,
    kTinyFile,
    kReadOnlyFile,
    kHugePageFile,  // where the system has no huge pages to give
    kFiles,
  };
  using Files = std::array<File, kMaxLinkFiles>;

  HostilePeer();
  HostilePeer(const HostilePeer&) = delete;
  HostilePeer& operator=(const HostilePeer&) = delete;

  // Attacks the context of `block`, which shares `segment`.
  void SetVictim(std::uint32_t block, const Segment& segment);

  std::uint32_t Qpn(std::uint32_t index) const {
    return block_ << kIndexBits | index;
  }
  std::uint32_t block() const { return block_; }
  OwnedLayout& owned() { return segment_->OwnedForWriting(); }
  SharedLayout& shared() { return segment_->shared(); }

  // A segment as if it were a decent context's, with queue pair `index`
  // connected to `requester_qpn` and some receives posted.
  void ResetSegment();
  void AddQueuePair(std::uint32_t index, ibv_qp_type type,
                    std::uint32_t requester_qpn, bool shared_receives);

  // As a responder: takes connections, and answers as a decent one whoever asks
  // to be attached.
  void AnswerAll();
  // Sends `bytes` and the files to each context that has connected.
  void SendAsResponder(std::span<const std::uint8_t> bytes, const Files& files);
  void HangUpAsResponder() { accepted_.clear(); }

  // As a requester.
  void SendAsRequester(std::span<const std::uint8_t> bytes, const Files& files);
  void HangUpAsRequester() { to_victim_.Close(); }
  // A UD datagram.
  void SendDatagram(std::span<const std::uint8_t> bytes);

 private:
  void Listen();
  void OpenFiles();
  void Accept();
  void Drain(int socket);
  void Send(int socket, std::span<const std::uint8_t> bytes,
            const Files& files);
  void PostReceives(std::uint32_t index);
  void PostSharedReceives();

  std::byte* const private_memory_;
  std::shared_ptr<Segment> segment_;
  std::uint64_t shared_offset_ = 0;
  std::uint32_t block_ = 0;
  std::uint32_t victim_block_ = 0;
  pid_t child_ = -1;
  FileDescriptor listener_;
  FileDescriptor to_victim_;
  FileDescriptor datagrams_;
  std::vector<FileDescriptor> accepted_;
  std::array<FileDescriptor, kFiles> files_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_FUZZ_HOSTILE_PEER_H_
