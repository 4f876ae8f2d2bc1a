// For tests: a UD queue pair, straight on the software device.
#ifndef RINGPIPE_VERBS_SOFT_UD_ENDPOINT_H_
#define RINGPIPE_VERBS_SOFT_UD_ENDPOINT_H_

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "gtest/gtest.h"
#include "verbs/soft/options.h"
#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {

inline constexpr std::uint32_t kQkey = 0x11111111;
inline constexpr int kUdInit =
    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;

// A context with one UD queue pair, ready to send, and a buffer.
class UdEndpoint {
 public:
  static constexpr std::uint32_t kBufferBytes = 64 * 1024;

  explicit UdEndpoint(const Options& options = {}, std::uint32_t qkey = kQkey,
                      bool shares_receives = false, bool arm_first = false) {
    device_.options = options;
    context = OpenDevice(&device_);
    pd = AllocPd(context);
    channel = CreateCompChannel(context);
    cq = CreateCq(context, 256, nullptr, channel, 0);
    if (arm_first) {
      EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
    }
    buffer.resize(kBufferBytes);
    mr = RegMr(pd, buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE);
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_UD;
    if (shares_receives) {
      ibv_srq_init_attr attr = {};
      attr.attr.max_wr = 16;
      attr.attr.max_sge = 1;
      init.srq = srq_ = CreateSrq(pd, &attr);
      EXPECT_NE(srq_, nullptr);
    }
    init.cap = {.max_send_wr = 64,
                .max_recv_wr = 64,
                .max_send_sge = 4,
                .max_recv_sge = 4,
                .max_inline_data = 64};
    qp = CreateQp(pd, &init);
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = qkey;
    EXPECT_EQ(ModifyQp(qp, &attr, kUdInit), 0);
    attr.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(ModifyQp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ModifyQp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }

  ~UdEndpoint() {
    EXPECT_EQ(DestroyQp(qp), 0);
    if (srq_ != nullptr) {
      EXPECT_EQ(DestroySrq(srq_), 0);
    }
    EXPECT_EQ(DestroyCq(cq), 0);
    EXPECT_EQ(DestroyCompChannel(channel), 0);
    EXPECT_EQ(DeregMr(mr), 0);
    for (ibv_ah* ah : ahs_) {
      EXPECT_EQ(DestroyAh(ah), 0);
    }
    EXPECT_EQ(DeallocPd(pd), 0);
    EXPECT_EQ(CloseDevice(context), 0);
  }

  ibv_ah* PathTo(const UdEndpoint& peer) {
    ibv_ah_attr attr = {};
    attr.port_num = 1;
    attr.is_global = 1;
    EXPECT_EQ(QueryGid(peer.context, 1, 0, &attr.grh.dgid), 0);
    ahs_.push_back(CreateAh(pd, &attr));
    return ahs_.back();
  }

  ibv_ah* PathByLid(const UdEndpoint& peer) {
    ibv_port_attr port;
    EXPECT_EQ(QueryPortWhole(peer.context, 1, &port, sizeof port), 0);
    ibv_ah_attr attr = {};
    attr.port_num = 1;
    attr.dlid = port.lid;
    ahs_.push_back(CreateAh(pd, &attr));
    return ahs_.back();
  }

  int Send(ibv_ah* ah, std::uint32_t qpn, std::uint32_t offset,
           std::uint32_t bytes, std::uint32_t qkey = kQkey,
           std::optional<std::uint32_t> immediate = {}) {
    ibv_sge sge = {Address(offset), bytes, mr->lkey};
    ibv_send_wr request = {};
    request.wr_id = 7;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    request.imm_data = immediate.value_or(0);
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.ud.ah = ah;
    request.wr.ud.remote_qpn = qpn;
    request.wr.ud.remote_qkey = qkey;
    ibv_send_wr* bad;
    return ibv_post_send(qp, &request, &bad);
  }

  int Receive(std::uint64_t id, std::uint32_t offset, std::uint32_t bytes) {
    ibv_sge sge = {Address(offset), bytes, mr->lkey};
    ibv_recv_wr request = {};
    request.wr_id = id;
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* bad;
    if (srq_ != nullptr) {
      return ibv_post_srq_recv(srq_, &request, &bad);
    }
    return ibv_post_recv(qp, &request, &bad);
  }

  std::optional<ibv_wc> Poll(
      std::chrono::milliseconds most = std::chrono::seconds(10)) {
    const Deadline deadline = Deadline::After(most);
    ibv_wc completion;
    while (ibv_poll_cq(cq, 1, &completion) == 0) {
      if (deadline.expired()) {
        return std::nullopt;
      }
    }
    return completion;
  }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* qp = nullptr;
  std::vector<char> buffer;

 private:
  std::uint64_t Address(std::uint32_t offset) {
    return reinterpret_cast<std::uint64_t>(buffer.data()) + offset;
  }

  SoftDevice device_;
  ibv_srq* srq_ = nullptr;
  std::vector<ibv_ah*> ahs_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_UD_ENDPOINT_H_
