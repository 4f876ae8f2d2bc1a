#include "verbs/queue_pair.h"

#include <arpa/inet.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "verbs/creation_failure.h"

namespace ringpipe::verbs {
namespace {

constexpr std::uint32_t k24Bits = 0xff'ffff;
// Routers that a RoCE packet may pass.
constexpr std::uint8_t kHopLimit = 64;

// Where a connection's packets are numbered from: at random, so that a late
// packet of an earlier connection is not taken for one of this.
std::uint32_t RandomPacketSequence() {
  std::uint32_t value = 0;
  if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != sizeof(value)) {
    value = static_cast<std::uint32_t>(
        std::chrono::steady_clock::now().time_since_epoch().count());
  }
  return value & k24Bits;
}

Status CheckLimit(const DeviceInfo& info, const char* what, int value, int most,
                  const char* advice) {
  if (value <= most) {
    return Status::Ok();
  }
  return {StatusCode::kResourceExhausted,
          info.name + ": a queue pair with " + std::to_string(value) + " " +
              what + ", of which the device has at most " +
              std::to_string(most) + ": " + advice};
}

Status CheckOptions(const DeviceInfo& info, const QueuePair::Options& options) {
  constexpr char kFewer[] = "lower RINGPIPE_SLOTS or RINGPIPE_DEPTH";
  constexpr char kShorter[] = "use fewer pieces of memory in a work request";
  RINGPIPE_RETURN_IF_ERROR(CheckLimit(
      info, "sends outstanding", options.max_send, info.max_qp_wr, kFewer));
  RINGPIPE_RETURN_IF_ERROR(CheckLimit(info, "receives outstanding",
                                      options.max_receive, info.max_qp_wr,
                                      kFewer));
  RINGPIPE_RETURN_IF_ERROR(CheckLimit(info, "pieces of memory in a send",
                                      options.max_send_sge, info.max_sge,
                                      kShorter));
  RINGPIPE_RETURN_IF_ERROR(CheckLimit(info, "pieces of memory in a receive",
                                      options.max_receive_sge, info.max_sge,
                                      kShorter));
  const auto fits = [](int value, int most) {
    return value >= 0 && value <= most;
  };
  if (!fits(options.timeout, 31) || !fits(options.retry_count, 7) ||
      !fits(options.rnr_retry, 7) || !fits(options.min_rnr_timer, 31) ||
      !fits(options.service_level, 15) || !fits(options.traffic_class, 255)) {
    return {StatusCode::kInvalidArgument,
            "timeout and min_rnr_timer are 0 to 31, retry_count and rnr_retry "
            "0 to 7, service_level 0 to 15, traffic_class 0 to 255"};
  }
  return Status::Ok();
}

// nullptr, with errno, where the device refuses.
ibv_qp* CreateReliableConnected(const Library& library, ibv_pd* pd, ibv_cq* cq,
                                const QueuePair::Options& options,
                                int inline_bytes, int* granted_inline_bytes) {
  ibv_qp_init_attr attr = {};
  attr.send_cq = cq;
  attr.recv_cq = cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = static_cast<std::uint32_t>(options.max_send);
  attr.cap.max_recv_wr = static_cast<std::uint32_t>(options.max_receive);
  attr.cap.max_send_sge = static_cast<std::uint32_t>(options.max_send_sge);
  attr.cap.max_recv_sge = static_cast<std::uint32_t>(options.max_receive_sge);
  attr.cap.max_inline_data = static_cast<std::uint32_t>(inline_bytes);
  errno = 0;
  ibv_qp* qp = library.create_qp(pd, &attr);
  *granted_inline_bytes = static_cast<int>(attr.cap.max_inline_data);
  return qp;
}

const char* LinkLayerName(bool ethernet) {
  return ethernet ? "Ethernet" : "InfiniBand";
}

// `remote` came over the network: nothing in it is believed.
Status CheckRemote(const DeviceInfo& info, const Endpoint& remote) {
  if (remote.ethernet > 1 || remote.qp_number > k24Bits ||
      remote.packet_sequence > k24Bits || remote.mtu < IBV_MTU_256 ||
      remote.mtu > IBV_MTU_4096) {
    return {StatusCode::kMismatch,
            info.name + ": the peer's endpoint is none (queue pair " +
                std::to_string(remote.qp_number) + ", MTU code " +
                std::to_string(remote.mtu) +
                "): do all ranks run the same version?"};
  }
  if ((remote.ethernet != 0) != info.ethernet) {
    return {StatusCode::kMismatch,
            "link layers differ: " + info.name + " here is " +
                LinkLayerName(info.ethernet) + ", the peer's device " +
                LinkLayerName(remote.ethernet != 0) +
                "; choose devices of one kind with RINGPIPE_DEVICE"};
  }
  return Status::Ok();
}

std::string GidText(const Endpoint& end) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, end.gid, text, sizeof(text));
  return std::string("GID ") + text;
}

// Whether both are InfiniBand ports with LIDs, but of different subnets, whose
// number is the first half of a GID (0: not set).
bool InDifferentSubnets(const Endpoint& a, const Endpoint& b) {
  constexpr std::size_t kPrefixBytes = 8;
  const auto is_set = [](const Endpoint& end) {
    return std::any_of(end.gid, end.gid + kPrefixBytes,
                       [](std::uint8_t byte) { return byte != 0; });
  };
  return is_set(a) && is_set(b) &&
         !std::equal(a.gid, a.gid + kPrefixBytes, b.gid);
}

// Whether packets between the two need a global route header.
bool NeedsGlobalRoute(const Endpoint& local, const Endpoint& remote) {
  return local.ethernet != 0 || local.lid == 0 || remote.lid == 0 ||
         InDifferentSubnets(local, remote);
}

// `end` as it is addressed on the way to or from `other`.
std::string AddressText(const Endpoint& end, const Endpoint& other) {
  if (end.ethernet != 0 || end.lid == 0) {
    return GidText(end);
  }
  const std::string lid = "LID " + std::to_string(end.lid);
  return NeedsGlobalRoute(end, other) ? lid + ", " + GidText(end) : lid;
}

// Where InfiniBand packets to `remote` go first. Into another subnet that is a
// router, under the forwarding LID that subnet managers of routed fabrics put
// into each GID, as NCCL reads it (src/transport/net_ib: ncclIbExtractFlid):
//
//   bytes 0..3      4..5             6..7     8..15
//         prefix    forwarding LID   subnet   port
//
// Without one, the port's own LID: routers can be set up to answer to that.
std::uint16_t DestinationLid(const Endpoint& local, const Endpoint& remote) {
  const bool same_subnet =
      std::equal(local.gid + 6, local.gid + 8, remote.gid + 6);
  const auto forwarding_lid =
      static_cast<std::uint16_t>(remote.gid[4] << 8 | remote.gid[5]);
  return InDifferentSubnets(local, remote) && !same_subnet &&
                 forwarding_lid != 0
             ? forwarding_lid
             : remote.lid;
}

ibv_ah_attr Address(const DeviceInfo& info, const Endpoint& local,
                    const Endpoint& remote, const QueuePair::Options& options) {
  ibv_ah_attr address = {};
  address.sl = static_cast<std::uint8_t>(options.service_level);
  address.port_num = static_cast<std::uint8_t>(info.port);
  if (!info.ethernet) {
    address.dlid = DestinationLid(local, remote);
  }
  if (NeedsGlobalRoute(local, remote)) {
    address.is_global = 1;
    std::memcpy(address.grh.dgid.raw, remote.gid, sizeof(remote.gid));
    // Of the GID that the peer was given; 0 on InfiniBand, unless chosen.
    address.grh.sgid_index = static_cast<std::uint8_t>(info.gid_index);
    address.grh.hop_limit = kHopLimit;
    address.grh.traffic_class =
        static_cast<std::uint8_t>(options.traffic_class);
  }
  return address;
}

int MtuBytes(int mtu) { return 128 << mtu; }  // of an ibv_mtu

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::Create(
    std::shared_ptr<ProtectionDomain> pd, std::shared_ptr<CompletionQueue> cq,
    const Options& options) {
  RINGPIPE_RETURN_IF_ERROR(CheckOptions(pd->device()->info(), options));
  // From here on the destructor gives back.
  std::unique_ptr<QueuePair> created(
      new QueuePair(std::move(pd), std::move(cq), options));
  RINGPIPE_RETURN_IF_ERROR(created->Open());
  RINGPIPE_RETURN_IF_ERROR(created->ToInit());
  return created;
}

QueuePair::QueuePair(std::shared_ptr<ProtectionDomain> pd,
                     std::shared_ptr<CompletionQueue> cq,
                     const Options& options)
    : pd_(std::move(pd)),
      cq_(std::move(cq)),
      options_(options),
      packet_sequence_(RandomPacketSequence()) {}

QueuePair::~QueuePair() {
  if (qp_ != nullptr) {
    device().library().destroy_qp(qp_);
  }
}

Status QueuePair::Open() {
  const auto create = [this](int inline_bytes) {
    qp_ = CreateReliableConnected(device().library(), pd_->get(), cq_->get(),
                                  options_, inline_bytes, &max_inline_bytes_);
  };
  create(options_.max_inline_bytes);
  if (qp_ == nullptr && options_.max_inline_bytes > 0) {
    // Some devices have no inline data, and none says so beforehand.
    create(0);
  }
  if (qp_ != nullptr) {
    return Status::Ok();
  }
  const int error = errno;
  return CreationFailed(device(), LimitedObject::kQueuePair,
                        "ibv_create_qp with " +
                            std::to_string(options_.max_send) + " sends and " +
                            std::to_string(options_.max_receive) + " receives",
                        error);
}

Endpoint QueuePair::endpoint() const {
  const DeviceInfo& info = device().info();
  Endpoint endpoint;
  endpoint.qp_number = qp_->qp_num;
  endpoint.packet_sequence = packet_sequence_;
  endpoint.lid = info.lid;
  endpoint.mtu = static_cast<std::uint8_t>(info.mtu);
  endpoint.ethernet = info.ethernet ? 1 : 0;
  std::memcpy(endpoint.gid, info.gid.raw, sizeof(endpoint.gid));
  return endpoint;
}

Status QueuePair::Connect(const Endpoint& remote) {
  RINGPIPE_RETURN_IF_ERROR(CheckRemote(device().info(), remote));
  remote_ = remote;
  RINGPIPE_RETURN_IF_ERROR(ToReadyToReceive(remote));
  return ToReadyToSend();
}

std::string QueuePair::DescribePath() const {
  const Endpoint local = endpoint();
  const std::string from = device().info().name + " (" +
                           AddressText(local, remote_.value_or(local)) + ")";
  return has_peer() ? from + " to " + PeerText() : from + ", not connected";
}

std::string QueuePair::DescribeFailure(const ibv_wc& completion) const {
  const DeviceInfo& info = device().info();
  const bool silent = completion.status == IBV_WC_RETRY_EXC_ERR ||
                      completion.status == IBV_WC_RESP_TIMEOUT_ERR;
  if (silent) {
    if (const std::string loss = Loss().text; !loss.empty()) {
      return NameCompletion(completion.status, completion.vendor_err) + ": " +
             loss;
    }
  }
  if (silent && has_peer()) {
    return NameCompletion(completion.status, completion.vendor_err) + ": " +
           DescribeSilence();
  }
  return DescribeCompletion(completion.status, completion.vendor_err) +
         " on port " + std::to_string(info.port) + " of " + DescribePath();
}

PeerLoss QueuePair::Loss() const {
  const auto describe_loss = device().library().describe_loss;
  return describe_loss != nullptr
             ? describe_loss(qp_)
             : PeerLoss{.kind = PeerLoss::Kind::kSilent, .text = ""};
}

std::string QueuePair::PeerText() const {
  return remote_.has_value() ? AddressText(*remote_, endpoint())
                             : peer_address_;
}

std::string QueuePair::DescribeSilence() const {
  return "no answer from " + PeerText() + " through " + device().info().name +
         " port " + std::to_string(device().info().port) + " (" +
         AdviceOnSilence() + ")";
}

std::string QueuePair::AdviceOnSilence() const {
  const DeviceInfo& info = device().info();
  if (info.software) {
    return "does its process run?";  // on this host
  }
  if (!remote_.has_value()) {
    return "does its process run, and can the two hosts ping each other?";
  }
  std::string advice =
      info.ethernet ? "does its process run, and is it reachable: ping, same "
                      "MTU, same VLAN, RoCE version?"
                    : "does its process run, and is it reachable: ibping, same "
                      "partition, a subnet manager?";
  if (remote_->mtu != info.mtu) {
    // The smaller one is used. That they differ is a sign that the network
    // between them was not set up for the one or the other.
    advice += " do both ends have the same MTU (here " +
              std::to_string(MtuBytes(info.mtu)) + ", there " +
              std::to_string(MtuBytes(remote_->mtu)) + ")?";
  }
  return advice;
}

Status QueuePair::Fail() {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  const int error = device().library().modify_qp(qp_, &attr, IBV_QP_STATE);
  return error == 0 ? Status::Ok()
                    : device().CallFailed("ibv_modify_qp to ERR", error);
}

Status QueuePair::ToInit() {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = 0;
  attr.port_num = static_cast<std::uint8_t>(device().info().port);
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const int error = device().library().modify_qp(
      qp_, &attr,
      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return error == 0 ? Status::Ok()
                    : device().CallFailed("ibv_modify_qp to INIT", error);
}

Status QueuePair::ToReadyToReceive(const Endpoint& remote) {
  const DeviceInfo& info = device().info();
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = std::min(info.mtu, static_cast<ibv_mtu>(remote.mtu));
  attr.dest_qp_num = remote.qp_number;
  attr.rq_psn = remote.packet_sequence;
  attr.max_dest_rd_atomic = 1;  // ringpipe reads nothing; 0 upsets some devices
  attr.min_rnr_timer = static_cast<std::uint8_t>(options_.min_rnr_timer);
  attr.ah_attr = Address(info, endpoint(), remote, options_);
  const int error = device().library().modify_qp(
      qp_, &attr,
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error == 0) {
    return Status::Ok();
  }
  const std::string what = "ibv_modify_qp to RTR, from " + DescribePath();
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
    // RoCE looks the peer's Ethernet address up here.
    return ErrnoStatus(StatusCode::kUnavailable,
                       what + " (can the two addresses ping each other?)",
                       error);
  }
  return device().CallFailed(what, error);
}

Status QueuePair::ToReadyToSend() {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = static_cast<std::uint8_t>(options_.timeout);
  attr.retry_cnt = static_cast<std::uint8_t>(options_.retry_count);
  attr.rnr_retry = static_cast<std::uint8_t>(options_.rnr_retry);
  attr.sq_psn = packet_sequence_;
  attr.max_rd_atomic = 1;
  const int error = device().library().modify_qp(
      qp_, &attr,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return error == 0 ? Status::Ok()
                    : device().CallFailed("ibv_modify_qp to RTS", error);
}

}  // namespace ringpipe::verbs
