#include "verbs/soft/endpoint.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/deadline.h"
#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

void Require(bool condition, const char* what) {
  if (!condition) {
    fprintf(stderr, "endpoint: %s: %s\n", what, strerror(errno));
    abort();
  }
}

}  // namespace

Options DeviceOptions(const EndpointOptions& options) {
  Options device;
  device.adversary_seed = options.adversary_seed;
  device.host_id = options.host_id;
  device.key = options.secret.empty() ? kTestKey : options.secret;
  device.other_hosts = !options.secret.empty();
  device.interfaces = options.interfaces;
  device.tcp_timeout = options.tcp_timeout;
  device.connect_by = options.connect_by;
  return device;
}

Endpoint::Endpoint(const EndpointOptions& options)
    : options_(options),
      library_(CreateSoftLibrary(DeviceOptions(options), options.logger)) {
  ibv_device** devices = library_->get_device_list(nullptr);
  context = library_->open_device(devices[0]);
  Require(context != nullptr, "open_device");
  library_->free_device_list(devices);
  pd = library_->alloc_pd(context);
  channel = library_->create_comp_channel(context);
  Require(channel != nullptr, "create_comp_channel");
  cq = library_->create_cq(context, options.cqe, this, channel, 0);
  Require(cq != nullptr, "create_cq");
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = options.cap;
  attr.qp_type = options.type;
  attr.sq_sig_all = options.signal_all ? 1 : 0;
  if (options.shared_receives > 0) {
    ibv_srq_init_attr shared = {};
    shared.attr = {options.shared_receives, 4, 0};
    srq = CreateSrq(pd, &shared);
    Require(srq != nullptr, "create_srq");
    attr.srq = srq;
  }
  qp = library_->create_qp(pd, &attr);
  Require(qp != nullptr, "create_qp");
  void* memory =
      options.private_memory
          ? mmap(nullptr, options.buffer_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
          : library_->allocate(context, options.buffer_bytes);
  Require(memory != nullptr && memory != MAP_FAILED, "memory");
  buffer_ = static_cast<std::byte*>(memory);
  mr = library_->reg_mr(pd, buffer_, options.buffer_bytes,
                        options.memory_access);
  Require(mr != nullptr, "reg_mr");
  ToInit();
}

Endpoint::~Endpoint() {
  Require(qp == nullptr || library_->destroy_qp(qp) == 0, "destroy_qp");
  Require(srq == nullptr || DestroySrq(srq) == 0, "destroy_srq");
  Require(mr == nullptr || library_->dereg_mr(mr) == 0, "dereg_mr");
  Require(library_->destroy_cq(cq) == 0, "destroy_cq");
  Require(library_->destroy_comp_channel(channel) == 0, "destroy_comp_channel");
  Require(library_->dealloc_pd(pd) == 0, "dealloc_pd");
  if (options_.private_memory) {
    munmap(buffer_, options_.buffer_bytes);
  } else {
    library_->free(context, buffer_, options_.buffer_bytes);
  }
  Require(library_->close_device(context) == 0, "close_device");
}

Identity Endpoint::identity() const {
  return {qp->qp_num, mr->rkey, reinterpret_cast<std::uint64_t>(buffer_)};
}

void Endpoint::ToInit() {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = options_.qp_access;
  Require(library_->modify_qp(qp, &attr,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                  IBV_QP_ACCESS_FLAGS) == 0,
          "to INIT");
}

void Endpoint::ToRtr(const Identity& peer) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_4096;
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = receive_psn;
  attr.min_rnr_timer = options_.min_rnr_timer;
  attr.max_dest_rd_atomic = options_.max_rd_atomic;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 1;
  Require(library_->query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0,
          "query_gid");
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
             IBV_QP_RQ_PSN;
  if (options_.type == IBV_QPT_RC) {
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  Require(library_->modify_qp(qp, &attr, mask) == 0, "to RTR");
}

void Endpoint::ToRts() {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = send_psn;
  attr.timeout = options_.timeout;
  attr.retry_cnt = options_.retry_count;
  attr.rnr_retry = options_.rnr_retry;
  attr.max_rd_atomic = options_.max_rd_atomic;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (options_.type == IBV_QPT_RC) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
            IBV_QP_MAX_QP_RD_ATOMIC;
  }
  Require(library_->modify_qp(qp, &attr, mask) == 0, "to RTS");
}

void Endpoint::ToReset() {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RESET;
  Require(library_->modify_qp(qp, &attr, IBV_QP_STATE) == 0, "to RESET");
}

void Endpoint::ToError() {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  Require(library_->modify_qp(qp, &attr, IBV_QP_STATE) == 0, "to ERR");
}

ibv_qp_state Endpoint::State() {
  ibv_qp_attr attr;
  ibv_qp_init_attr init_attr;
  Require(library_->query_qp(qp, &attr, IBV_QP_STATE, &init_attr) == 0,
          "query_qp");
  return attr.qp_state;
}

ibv_sge Endpoint::Sge(std::size_t offset, std::uint32_t bytes) const {
  return {reinterpret_cast<std::uint64_t>(buffer_ + offset), bytes, mr->lkey};
}

int Endpoint::Receive(std::uint64_t id, std::vector<ibv_sge> sges) {
  ibv_recv_wr request = {};
  request.wr_id = id;
  request.sg_list = sges.data();
  request.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  return srq != nullptr ? ibv_post_srq_recv(srq, &request, &bad)
                        : ibv_post_recv(qp, &request, &bad);
}

int Endpoint::PostSend(ibv_send_wr& request, std::uint64_t id,
                       std::vector<ibv_sge>& sges, unsigned flags) {
  request.wr_id = id;
  request.sg_list = sges.data();
  request.num_sge = static_cast<int>(sges.size());
  request.send_flags = flags;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &request, &bad);
}

int Endpoint::Send(std::uint64_t id, std::vector<ibv_sge> sges, unsigned flags,
                   std::optional<std::uint32_t> immediate) {
  ibv_send_wr request = {};
  request.opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  request.imm_data = immediate.value_or(0);
  return PostSend(request, id, sges, flags);
}

int Endpoint::Write(std::uint64_t id, std::vector<ibv_sge> sges,
                    const Identity& peer, std::uint64_t peer_offset,
                    unsigned flags, std::optional<std::uint32_t> immediate) {
  ibv_send_wr request = {};
  request.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.imm_data = immediate.value_or(0);
  request.wr.rdma.remote_addr = peer.address + peer_offset;
  request.wr.rdma.rkey = peer.rkey;
  return PostSend(request, id, sges, flags);
}

int Endpoint::Read(std::uint64_t id, std::vector<ibv_sge> sges,
                   const Identity& peer, std::uint64_t peer_offset,
                   unsigned flags) {
  ibv_send_wr request = {};
  request.opcode = IBV_WR_RDMA_READ;
  request.wr.rdma.remote_addr = peer.address + peer_offset;
  request.wr.rdma.rkey = peer.rkey;
  return PostSend(request, id, sges, flags);
}

int Endpoint::CompareSwap(std::uint64_t id, std::vector<ibv_sge> sges,
                          const Identity& peer, std::uint64_t peer_offset,
                          std::uint64_t compare, std::uint64_t swap) {
  ibv_send_wr request = {};
  request.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  request.wr.atomic.remote_addr = peer.address + peer_offset;
  request.wr.atomic.rkey = peer.rkey;
  request.wr.atomic.compare_add = compare;
  request.wr.atomic.swap = swap;
  return PostSend(request, id, sges, IBV_SEND_SIGNALED);
}

int Endpoint::FetchAdd(std::uint64_t id, std::vector<ibv_sge> sges,
                       const Identity& peer, std::uint64_t peer_offset,
                       std::uint64_t add) {
  ibv_send_wr request = {};
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.atomic.remote_addr = peer.address + peer_offset;
  request.wr.atomic.rkey = peer.rkey;
  request.wr.atomic.compare_add = add;
  return PostSend(request, id, sges, IBV_SEND_SIGNALED);
}

std::optional<ibv_wc> Endpoint::Poll(std::chrono::milliseconds most) {
  const Deadline deadline = Deadline::After(most);
  ibv_wc completion;
  do {
    const int got = ibv_poll_cq(cq, 1, &completion);
    Require(got >= 0, "poll_cq");
    if (got == 1) {
      return completion;
    }
  } while (!deadline.expired());
  return std::nullopt;
}

std::optional<ibv_event_type> Endpoint::NextEvent(
    std::chrono::milliseconds most) {
  pollfd readable = {context->async_fd, POLLIN, 0};
  ibv_async_event event;
  if (poll(&readable, 1, static_cast<int>(most.count())) != 1 ||
      library_->get_async_event(context, &event) != 0) {
    return std::nullopt;
  }
  library_->ack_async_event(&event);
  return event.event_type;
}

}  // namespace ringpipe::verbs::soft
