// What an authenticated peer can send to a queue pair: requests for its
// responder and answers to its requester, in any order and however wrong.
//
// An input is: how many bytes arrive at once, how many the socket takes at
// once, and then the bytes. A packet's rkey kOwnKey stands for the region's.
#include "verbs/soft/fuzz/packets_fuzzer.h"

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "verbs/soft/context.h"
#include "verbs/soft/network/packet_channel.h"
#include "verbs/soft/network/packet_reader.h"
#include "verbs/soft/network/remote_peer.h"
#include "verbs/soft/queue_pair.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe::verbs::soft {
namespace {

void Require(bool condition, const char* what) {
  if (!condition) {
    fprintf(stderr, "packets_fuzzer: %s\n", what);
    abort();
  }
}

// Takes so many bytes and then, for once, none.
class Sink : public PacketChannel {
 public:
  explicit Sink(std::size_t most) : most_(most) {}

  ssize_t Send(const iovec* ranges, int count) override {
    full_ = !full_;
    if (full_) {
      return 0;
    }
    std::size_t taken = 0;
    for (int i = 0; i < count; ++i) {
      const std::size_t bytes = std::min(ranges[i].iov_len, most_ - taken);
      const auto* from = static_cast<const unsigned char*>(ranges[i].iov_base);
      for (std::size_t at = 0; at < bytes; at += 512) {  // it is there
        sum_ = sum_ + from[at];
      }
      taken += bytes;
    }
    return static_cast<ssize_t>(taken);
  }
  std::chrono::milliseconds UnacknowledgedFor() const override {
    return std::chrono::milliseconds(0);
  }
  void NotifyWhenWritable() override { waiting_ = true; }
  void Finish(std::vector<std::byte> /*rest*/) override { finished_ = true; }

  bool TakeWaiting() { return std::exchange(waiting_, false); }
  bool finished() const { return finished_; }

 private:
  const std::size_t most_;
  bool full_ = true;
  bool waiting_ = false;
  bool finished_ = false;
  volatile unsigned sum_ = 0;
};

// A queue pair that is connected to one on no host at all; made once, reset for
// each input.
class Target {
 public:
  Target();
  void Run(const std::uint8_t* data, std::size_t size);

 private:
  static constexpr std::size_t kDepth = 16;

  void Modify(ibv_qp_state state, int mask);
  void Connect();
  void Post();
  void Feed(std::vector<std::byte> bytes, std::size_t at_once, Sink* sink,
            RemotePeer* peer);
  void Substitute(std::vector<std::byte>* bytes) const;
  void Drain();

  std::shared_ptr<const Library> library_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_gid gid_ = {};
  PacketReader reader_;
};

// Its peer is on what is to be another host.
Target::Target()
    : library_(CreateSoftLibrary({.host_id = "fuzzed", .key = "fuzzed"})) {
  ibv_device** devices = library_->get_device_list(nullptr);
  context_ = library_->open_device(devices[0]);
  Require(context_ != nullptr, "open_device");
  library_->free_device_list(devices);
  pd_ = library_->alloc_pd(context_);
  cq_ = library_->create_cq(context_, 256, nullptr, nullptr, 0);
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = cq_;
  attr.cap = {kDepth, kDepth, 2, 2, 16};
  attr.qp_type = IBV_QPT_RC;
  qp_ = library_->create_qp(pd_, &attr);
  // Where it always is, for inputs to name it. A hole behind it, for whoever
  // goes past its end.
  auto* const address = reinterpret_cast<void*>(kRegionAddress);
  Require(
      mmap(address, kRegionBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == address,
      "mmap");
  mr_ = library_->reg_mr(pd_, address, kRegionBytes,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  Require(cq_ != nullptr && qp_ != nullptr && mr_ != nullptr &&
              library_->query_gid(context_, 1, 0, &gid_) == 0,
          "objects");
}

void Target::Modify(ibv_qp_state state, int mask) {
  ibv_qp_attr attr = {};
  attr.qp_state = state;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                         IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  attr.path_mtu = IBV_MTU_4096;
  attr.dest_qp_num = kPeerQpn;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid_;
  const int error = library_->modify_qp(qp_, &attr, mask | IBV_QP_STATE);
  if (error != 0) {
    fprintf(stderr, "to state %d: %s\n", state, strerror(error));
    abort();
  }
}

void Target::Connect() {
  Modify(IBV_QPS_RESET, 0);
  Modify(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  Modify(IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                          IBV_QP_MIN_RNR_TIMER);
  Modify(IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

// One request of each kind that has an answer of its own, and some receives.
void Target::Post() {
  ibv_sge sge = {kRegionAddress, 8, mr_->lkey};
  ibv_send_wr* bad_send = nullptr;
  for (const ibv_wr_opcode opcode :
       {IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_RDMA_WRITE}) {
    ibv_send_wr request = {};
    request.opcode = opcode;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    sge.length = IsAtomic(opcode) ? 8 : 1000;
    Require(ibv_post_send(qp_, &request, &bad_send) == 0, "post_send");
  }
  ibv_sge receives[2] = {{kRegionAddress + 4096, 200, mr_->lkey},
                         {kRegionAddress + 8192, 100'000, mr_->lkey}};
  ibv_recv_wr receive = {};
  receive.sg_list = receives;
  receive.num_sge = 2;
  ibv_recv_wr* bad_receive = nullptr;
  for (int i = 0; i < 2; ++i) {
    Require(ibv_post_recv(qp_, &receive, &bad_receive) == 0, "post_recv");
  }
}

void Target::Drain() {
  std::array<ibv_wc, 32> completions;
  while (ibv_poll_cq(cq_, static_cast<int>(completions.size()),
                     completions.data()) > 0) {
  }
}

// Puts the region's key where an input names it.
void Target::Substitute(std::vector<std::byte>* bytes) const {
  constexpr std::size_t kKeyAt = 12;
  constexpr std::size_t kPayloadBytesAt = 56;
  std::size_t at = 0;
  while (bytes->size() - at >= kPacketHeaderBytes) {
    std::uint32_t key;
    std::uint32_t payload_bytes;
    memcpy(&key, bytes->data() + at + kKeyAt, sizeof key);
    memcpy(&payload_bytes, bytes->data() + at + kPayloadBytesAt,
           sizeof payload_bytes);
    if (key == kOwnKey) {
      memcpy(bytes->data() + at + kKeyAt, &mr_->rkey, sizeof key);
    }
    at += kPacketHeaderBytes +
          std::min<std::size_t>(payload_bytes,
                                bytes->size() - at - kPacketHeaderBytes);
  }
}

void Target::Feed(std::vector<std::byte> bytes, std::size_t at_once, Sink* sink,
                  RemotePeer* peer) {
  QueuePair& qp = QueuePair::From(qp_);
  reader_.Clear();
  bool sane = true;
  for (std::size_t at = 0; at < bytes.size() && sane && !sink->finished();) {
    const std::span<std::byte> space = reader_.Space();
    const std::size_t count =
        std::min({at_once, bytes.size() - at, space.size()});
    Require(count > 0, "no room for a packet");
    memcpy(space.data(), bytes.data() + at, count);
    reader_.Commit(count);
    at += count;
    sane = sane && qp.WithRemote(peer, [&](RemotePeer& remote) {
      sane = remote.Receive(&reader_);
    });
    if (sink->TakeWaiting()) {
      qp.WithRemote(peer, [](RemotePeer& remote) { remote.OnWritable(); });
    }
  }
}

void Target::Run(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return;
  }
  Connect();
  Post();
  QueuePair& qp = QueuePair::From(qp_);
  const std::shared_ptr<RemotePeer> peer = qp.FindRemote({gid_, kPeerQpn});
  Require(peer != nullptr, "no remote peer");
  const auto sink = std::make_shared<Sink>(std::size_t{1} << data[1] % 18);
  qp.WithRemote(peer.get(),
                [&sink](RemotePeer& self) { self.OnConnected(sink); });
  const std::span<const std::byte> rest =
      std::as_bytes(std::span(data + 2, size - 2));
  std::vector<std::byte> bytes(rest.begin(), rest.end());
  Substitute(&bytes);
  Feed(std::move(bytes), std::size_t{16} << data[0] % 16, sink.get(),
       peer.get());
  // Some answers may still be due.
  for (int i = 0; i < 64 && sink->TakeWaiting(); ++i) {
    qp.WithRemote(peer.get(), [](RemotePeer& self) { self.OnWritable(); });
  }
  Drain();
}

}  // namespace

void FuzzPackets(const std::uint8_t* data, std::size_t size) {
  // Never destroyed: its threads end with the process.
  static Target* const target = new Target;
  target->Run(data, size);
}

}  // namespace ringpipe::verbs::soft
