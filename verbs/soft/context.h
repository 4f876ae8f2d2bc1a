#ifndef RINGPIPE_VERBS_SOFT_CONTEXT_H_
#define RINGPIPE_VERBS_SOFT_CONTEXT_H_

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/deadline.h"
#include "base/log.h"
#include "base/status.h"
#include "verbs/soft/async_events.h"
#include "verbs/soft/completion_queue.h"
#include "verbs/soft/datagrams.h"
#include "verbs/soft/housekeeper.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/network/network.h"
#include "verbs/soft/options.h"
#include "verbs/soft/peer_link.h"
#include "verbs/soft/port.h"
#include "verbs/soft/queue_pair.h"
#include "verbs/soft/region_table.h"
#include "verbs/soft/segment.h"
#include "verbs/soft/shared_receive_queue.h"

namespace ringpipe::verbs::soft {

struct ProtectionDomain : ibv_pd {
  std::uint32_t id = 0;
  std::uint32_t users = 0;  // regions, queue pairs and address handles
};

// An ibv_ah, with the path that it stands for.
struct AddressHandle : ibv_ah {
  ibv_ah_attr attr = {};
  ibv_gid destination = {};
};

// An open soft0: its segment, its name (a block of queue pair numbers), its
// objects and its housekeeper. Functions that are named after a verb have its
// contract. Thread-safe as verbs is: an object's destruction may not race with
// its use.
class Context : public verbs_context {
 public:
  // nullptr, with errno.
  static std::unique_ptr<Context> Open(ibv_device* device,
                                       const Options& options,
                                       const Logger& logger);
  // Ends the housekeeper. Objects that the user left go too.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  static Context& From(ibv_context* context) {
    return *static_cast<Context*>(verbs_get_ctx(context));
  }
  ibv_context& verbs() { return context; }

  ibv_pd* AllocPd();
  int DeallocPd(ibv_pd* pd);
  ibv_mr* RegMr(ibv_pd* pd, void* address, std::size_t length,
                std::uint64_t iova, int access);
  int DeregMr(ibv_mr* mr);
  ibv_comp_channel* CreateCompChannel();
  int DestroyCompChannel(ibv_comp_channel* channel);
  ibv_cq* CreateCq(int entries, void* cq_context, ibv_comp_channel* channel,
                   int vector);
  int DestroyCq(ibv_cq* cq);
  ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr);
  int ModifySrq(ibv_srq* srq, const ibv_srq_attr& attr, int mask);
  int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr);
  int DestroySrq(ibv_srq* srq);
  ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr);
  int DestroyQp(ibv_qp* qp);
  ibv_ah* CreateAh(ibv_pd* pd, const ibv_ah_attr& attr);
  int DestroyAh(ibv_ah* ah);

  // For the objects.
  const Options& options() const { return options_; }
  std::uint32_t block() const { return block_; }
  Port& port() { return port_; }
  Datagrams& datagrams() { return datagrams_; }
  Network& network() { return network_; }
  OwnedLayout& owned() { return segment_->OwnedForWriting(); }
  SharedLayout& shared() { return segment_->shared(); }
  Segment& segment() { return *segment_; }
  const std::shared_ptr<Segment>& shared_segment() { return segment_; }
  const OwnedRegion* regions() const { return regions_->regions(); }
  AsyncEvents& async_events() { return async_events_; }
  std::uint32_t Qpn(std::uint32_t index) const {
    return block_ << kIndexBits | index;
  }
  // The link to a context, shared; nullptr: nobody is there.
  std::shared_ptr<PeerLink> LinkTo(std::uint32_t block);

  // Queue pairs that have something outstanding which did not end at once.
  bool HasStalledWork() const {
    return stalled_count_.load(std::memory_order_relaxed) != 0;
  }
  void SetStalled(std::uint32_t qp_index, bool stalled);
  void ProgressStalled();
  void NeedTimer(Clock::time_point when) { housekeeper_.NeedTimer(when); }
  void WakeHousekeeper() { housekeeper_.Wake(); }
  Housekeeper& housekeeper() { return housekeeper_; }

  // For the housekeeper.
  std::shared_ptr<QueuePair> FindQueuePair(std::uint32_t index);
  std::vector<std::shared_ptr<QueuePair>> QueuePairs();
  std::shared_ptr<PeerLink> FindLink(int socket);
  // The requester of this number no longer exists: nobody waits for it now.
  void OnRequesterGone(std::uint32_t index, std::uint32_t requester_qpn);
  // Waits until the peer that is inside the queue pair, if one is, has left;
  // false if it has not for much longer than any copy takes. Who is stopped or
  // hangs in a copy is waited for once.
  bool WaitForPeer(std::uint32_t index);
  // The channel of the queue pair's receive completions; id 0: none.
  struct ChannelOf {
    std::uint32_t id = 0;
    FileDescriptor fd;
  };
  ChannelOf ReceiveChannel(QueuePair& qp);
  // Lets what is stalled get on; returns when to do so again.
  Clock::time_point ProgressByTimer();
  void ReportOverruns();
  void ReportSharedReceiveLimits();
  void RefreshPort();
  // A datagram came while somebody wants to be told.
  void DrainDatagrams();

 private:
  Context(ibv_device* device, const Options& options, const Logger& logger);

  Status Start();
  bool Bind(FileDescriptor* listener);
  bool IsValid(const ibv_qp_init_attr& attr) const;
  // Returns when everybody, here and in peers, who looked a region up before
  // is done with it; false if that is not so for as long.
  bool WaitForUsers();
  // Whether the peer whose `busy` was `seen` leaves by the deadline.
  bool WaitToLeave(std::uint32_t index, std::uint32_t seen, Deadline deadline);
  std::uint32_t TakeQueuePairIndex();

  const Options options_;
  Port port_;
  Datagrams datagrams_{this};
  std::uint32_t block_ = 0;
  std::shared_ptr<Segment> segment_;
  std::unique_ptr<RegionTable> regions_;
  AsyncEvents async_events_;

  std::mutex objects_mutex_;  // for what follows
  std::uint32_t last_pd_ = 0;
  std::uint32_t last_channel_ = 0;
  std::map<ibv_pd*, std::unique_ptr<ProtectionDomain>> pds_;
  std::map<ibv_mr*, std::unique_ptr<ibv_mr>> mrs_;
  std::map<ibv_comp_channel*, std::unique_ptr<CompletionChannel>> channels_;
  std::map<ibv_ah*, std::unique_ptr<AddressHandle>> ahs_;
  std::array<std::unique_ptr<CompletionQueue>, kMaxCompletionQueues> cqs_;
  std::array<std::shared_ptr<SharedReceiveQueue>, kMaxSharedReceiveQueues>
      srqs_;
  std::array<std::shared_ptr<QueuePair>, kMaxQueuePairs> qps_;
  std::uint32_t qps_used_ = 0;            // indexes ever used
  std::deque<std::uint32_t> qps_unused_;  // first in, first out: late reuse

  std::mutex links_mutex_;
  std::map<std::uint32_t, std::weak_ptr<PeerLink>> links_;  // by block

  // The `busy` of queue pairs whose peers did not leave in time; 0: none.
  std::array<std::atomic<std::uint32_t>, kMaxQueuePairs> inside_ = {};

  std::atomic<int> stalled_count_{0};
  std::atomic<std::uint64_t> stalled_[kMaxQueuePairs / 64] = {};

  Network network_;
  Housekeeper housekeeper_;  // last: its thread uses all of the above
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_CONTEXT_H_
