// librdmacm over a network that a test scripts.
#ifndef RINGPIPE_VERBS_FAKE_RDMACM_H_
#define RINGPIPE_VERBS_FAKE_RDMACM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "verbs/rdmacm_library.h"

namespace ringpipe::verbs {

// The functions of an RdmacmLibrary have no room for state: they find the
// network in a variable, so that one exists at a time. It goes through address
// and route by itself unless told otherwise; the rest is the test's.
class FakeRdmacm {
 public:
  // Ids are of `context`.
  explicit FakeRdmacm(ibv_context* context);
  ~FakeRdmacm();
  FakeRdmacm(const FakeRdmacm&) = delete;
  FakeRdmacm& operator=(const FakeRdmacm&) = delete;

  std::shared_ptr<const RdmacmLibrary> library() const { return library_; }

  // Raises an event; `data` is its private data.
  void Raise(rdma_cm_event_type type, rdma_cm_id* id, int status = 0,
             const void* data = nullptr, std::size_t bytes = 0);
  // A CONNECT_REQUEST, with an id of its own, which it returns.
  rdma_cm_id* Request(const void* data, std::size_t bytes);

  // What rdma_connect and rdma_accept do beyond returning 0.
  std::function<void(rdma_cm_id*, const rdma_conn_param&)> on_connect;
  std::function<void(rdma_cm_id*, const rdma_conn_param&)> on_accept;
  // The next calls fail with these, one each; 0: succeeds.
  int channel_errno = 0;
  int bind_errno = 0;
  std::deque<int> resolve_events;  // ADDR_ERROR with this status; 0: resolved
  std::deque<int> connect_errnos;

  // For tests to look at.
  std::vector<rdma_cm_id*> rejected;
  int live_ids = 0;
  int live_channels = 0;
  int unacknowledged = 0;
  int destroyed_too_early = 0;  // while an event was not acknowledged
  std::string source;           // of the last rdma_resolve_addr

  // For the functions.
  struct Event {
    rdma_cm_event verbs = {};
    std::vector<std::uint8_t> data;
  };
  rdma_cm_id* NewId(rdma_event_channel* channel);
  ibv_context* context;
  rdma_event_channel channel = {-1};
  std::deque<std::unique_ptr<Event>> events;

 private:
  std::shared_ptr<const RdmacmLibrary> library_;
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_FAKE_RDMACM_H_
