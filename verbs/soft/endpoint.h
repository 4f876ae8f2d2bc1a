// For tests: one end of an RC or UC connection, straight on the software
// device.
#ifndef RINGPIPE_VERBS_SOFT_ENDPOINT_H_
#define RINGPIPE_VERBS_SOFT_ENDPOINT_H_

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/log.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe::verbs::soft {

inline constexpr int kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
    IBV_ACCESS_REMOTE_ATOMIC;

// What the other end must know. Plain data.
struct Identity {
  std::uint32_t qpn = 0;
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
};

// Of endpoints without a secret.
inline constexpr char kTestKey[] = "key of these tests";

struct EndpointOptions {
  std::uint64_t adversary_seed = 0;
  std::string host_id;    // endpoints with different ones talk over TCP
  std::string secret;     // with one, other hosts are talked to
  NameFilter interfaces;  // at whose addresses it listens for them
  std::chrono::milliseconds tcp_timeout{0};
  Clock::time_point connect_by = Clock::time_point::max();
  Logger logger = Logger();
  ibv_qp_type type = IBV_QPT_RC;  // or UC
  std::uint8_t max_rd_atomic = 1;
  std::uint32_t shared_receives = 0;  // max_wr of its SRQ; 0: it has none
  std::size_t buffer_bytes = 1 << 20;
  bool private_memory = false;  // else from the device's allocate
  int memory_access = kAllAccess;
  unsigned qp_access = kAllAccess;
  int cqe = 256;
  ibv_qp_cap cap = {.max_send_wr = 64,
                    .max_recv_wr = 64,
                    .max_send_sge = 4,
                    .max_recv_sge = 4,
                    .max_inline_data = 64};
  bool signal_all = false;
  std::uint8_t timeout = 14;  // 67 ms, times the retries
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 12;
};

// Those of the device that such an endpoint is on.
Options DeviceOptions(const EndpointOptions& options);

// A context with one of everything. Aborts the process (a test) where set-up
// fails.
class Endpoint {
 public:
  explicit Endpoint(const EndpointOptions& options = {});
  // Destroys in the right order; each step must succeed.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  Identity identity() const;
  void ToInit();
  void ToRtr(const Identity& peer);
  void ToRts();
  void Connect(const Identity& peer) {
    ToRtr(peer);
    ToRts();
  }
  void ToReset();
  void ToError();
  ibv_qp_state State();

  std::byte* data() { return buffer_; }
  ibv_sge Sge(std::size_t offset, std::uint32_t bytes) const;

  // Post one request; return what verbs returned. Receive posts to the shared
  // receive queue where there is one.
  int Receive(std::uint64_t id, std::vector<ibv_sge> sges);
  int Send(std::uint64_t id, std::vector<ibv_sge> sges,
           unsigned flags = IBV_SEND_SIGNALED,
           std::optional<std::uint32_t> immediate = {});
  int Write(std::uint64_t id, std::vector<ibv_sge> sges, const Identity& peer,
            std::uint64_t peer_offset, unsigned flags = IBV_SEND_SIGNALED,
            std::optional<std::uint32_t> immediate = {});
  int Read(std::uint64_t id, std::vector<ibv_sge> sges, const Identity& peer,
           std::uint64_t peer_offset, unsigned flags = IBV_SEND_SIGNALED);
  int CompareSwap(std::uint64_t id, std::vector<ibv_sge> sges,
                  const Identity& peer, std::uint64_t peer_offset,
                  std::uint64_t compare, std::uint64_t swap);
  int FetchAdd(std::uint64_t id, std::vector<ibv_sge> sges,
               const Identity& peer, std::uint64_t peer_offset,
               std::uint64_t add);

  // The next completion; nullopt if there is none within the time.
  std::optional<ibv_wc> Poll(
      std::chrono::milliseconds most = std::chrono::seconds(10));
  // Nothing is there now, after giving everybody a chance.
  bool Quiet() { return !Poll(std::chrono::milliseconds(20)); }
  // The next asynchronous event, acknowledged; nullopt: none within the time.
  std::optional<ibv_event_type> NextEvent(
      std::chrono::milliseconds most = std::chrono::seconds(10));

  const Library& library() const { return *library_; }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  // What Connect sets.
  std::uint32_t send_psn = 0;
  std::uint32_t receive_psn = 0;

 private:
  int PostSend(ibv_send_wr& request, std::uint64_t id,
               std::vector<ibv_sge>& sges, unsigned flags);

  EndpointOptions options_;
  std::shared_ptr<const Library> library_;
  std::byte* buffer_ = nullptr;
};

// Two connected endpoints in this process.
struct Pair {
  explicit Pair(const EndpointOptions& options = {}) : Pair(options, options) {}
  Pair(const EndpointOptions& first, const EndpointOptions& second)
      : a(first), b(second) {
    a.Connect(b.identity());
    b.Connect(a.identity());
  }
  Endpoint a;
  Endpoint b;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_ENDPOINT_H_
