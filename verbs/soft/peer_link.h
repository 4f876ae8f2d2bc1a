#ifndef RINGPIPE_VERBS_SOFT_PEER_LINK_H_
#define RINGPIPE_VERBS_SOFT_PEER_LINK_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/file_descriptor.h"
#include "verbs/soft/link_message.h"
#include "verbs/soft/segment.h"

namespace ringpipe::verbs::soft {

// A requester's way to another context: one for each pair of contexts, shared
// by the queue pairs between them. Its socket's hang-up tells that the peer is
// gone. Thread-safe, except for Receive.
class PeerLink {
 public:
  // To the context of `block`. nullptr if nobody is there who may be trusted;
  // never blocks.
  static std::shared_ptr<PeerLink> Connect(const Options& options,
                                           std::uint32_t block);
  // To the own context: `segment` is its, `wake` wakes its housekeeper.
  static std::shared_ptr<PeerLink> ToSelf(std::shared_ptr<Segment> segment,
                                          std::function<void()> wake);

  int socket() const { return socket_.get(); }
  pid_t pid() const { return pid_; }
  bool same_process() const { return same_process_; }

  bool dead() const { return dead_.load(std::memory_order_acquire); }
  void MarkDead() { dead_.store(true, std::memory_order_release); }

  // Whether private memory of the peer is only reached through slots, because
  // the kernel refused process_vm_writev.
  bool slots_only() const { return slots_only_.load(); }
  void UseSlots() { slots_only_ = true; }

  // Asks for what is needed to reach queue pair `responder_qpn`.
  void RequestAttach(std::uint32_t requester_qpn, std::uint32_t responder_qpn);
  // Wakes the peer's housekeeper.
  void Ring();

  // Takes one message, and keeps the descriptors that came with it. Only the
  // housekeeper calls this.
  Received Receive(LinkMessage* message);
  // What came with messages so far; -1: no such channel.
  const std::shared_ptr<Segment>& segment() const { return segment_; }
  int ChannelFd(std::uint32_t channel) const;

 private:
  PeerLink(FileDescriptor socket, pid_t pid);

  FileDescriptor socket_;
  std::function<void()> wake_;  // instead, where the peer is this context
  const pid_t pid_;
  const bool same_process_;
  std::atomic<bool> dead_{false};
  std::atomic<bool> slots_only_{false};
  std::atomic<bool> has_segment_{false};
  std::shared_ptr<Segment> segment_;
  std::map<std::uint32_t, FileDescriptor> channels_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_PEER_LINK_H_
