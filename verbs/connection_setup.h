// One ConnectionManager::ConnectAll: the handshakes, all at once.
#ifndef RINGPIPE_VERBS_CONNECTION_SETUP_H_
#define RINGPIPE_VERBS_CONNECTION_SETUP_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "verbs/connection_manager.h"

namespace ringpipe::verbs {

// Private data of a request and of its acceptance: plain data, as it is between
// ranks of one version. Adapters may pad them.
struct HandshakeData {
  std::uint64_t token;  // the listener's, from its address
  std::uint64_t word;   // address of the sender's ready word
  std::uint32_t rkey;
  std::uint32_t id;
  std::int32_t rank;  // the sender's
  std::uint32_t reserved;
};
static_assert(sizeof(HandshakeData) == 32, "no padding, which would be sent");

// Drives every connection from one event loop:
//
//   active                             passive
//   resolve address, resolve route
//   rdma_connect --------------------> CONNECT_REQUEST: is the token mine, the
//     (token, rank, id,                connection expected? else rdma_reject
//      ready word, rkey)
//   ESTABLISHED <--------------------- rdma_accept
//     (token, id, ready word, rkey)
//   RDMA WRITE, again until ---------> the ready word is 1
//   the ready word is 1 <------------- RDMA WRITE
//
// Why the writes: iWARP's passive end must not send before it has received
// something (RFC 5044, section 7.1.2). Adapters send an empty message of
// their own (RFC 6581). Linux's siw sends none; its active end takes data that
// overtake the end of the handshake for a broken reply, and its passive end may
// sleep on a first message until a second one comes (it looks at the socket
// last before it listens for data). By the writes both ends know that either
// may send, without a receive or a completion that the caller would have to
// know of.
class ConnectionSetup {
 public:
  // What the connections share; outlives the setup.
  struct Resources {
    const RdmacmLibrary& library;
    const Device& device;
    rdma_event_channel* channel;  // non-blocking
    int own_rank;
    ConnectionManagerAddress own;
    // Of one memory region. The first is 1; the others, one for each
    // connection, are 0.
    std::span<std::uint64_t> ready_words;
    std::uint32_t lkey;
    std::uint32_t rkey;
  };

  ConnectionSetup(const Resources& resources,
                  std::span<const ConnectionManager::Connection> connections);
  // Puts the queue pairs that are not connected into ERR.
  ~ConnectionSetup();
  ConnectionSetup(const ConnectionSetup&) = delete;
  ConnectionSetup& operator=(const ConnectionSetup&) = delete;

  // Until all are connected, one has failed for good, `deadline`, or `abort_fd`
  // (-1: none) is readable.
  Status Run(Deadline deadline, int abort_fd);

  // The caller's to destroy from now on: of the connections that stand, and of
  // handshakes that were under way.
  std::vector<rdma_cm_id*> TakeIds();

  int strangers() const { return strangers_; }

 private:
  enum class Stage {
    kIdle,     // active: until next_try; passive: no request yet
    kAddress,  // active
    kRoute,    // active
    kConnect,  // active
    kAccept,   // passive
    kWord,     // established; waits for the other end's write
    kReady,
  };

  struct Handshake {
    ConnectionManager::Connection connection;
    std::uint64_t* ready_word = nullptr;
    Stage stage = Stage::kIdle;
    rdma_cm_id* id = nullptr;
    // The other end's.
    std::uint64_t remote_word = 0;
    std::uint32_t remote_rkey = 0;
    int writes = 0;
    // Of the connection, or of the write to the ready word.
    Clock::time_point next_try;
    std::chrono::milliseconds pause{0};  // before the try after the next
    std::string last_failure;            // of a try that was repeated
  };

  // What is kept of an event, which is acknowledged at once.
  struct Event {
    rdma_cm_event_type type;
    rdma_cm_id* id;
    int error;                          // errno value, 0: none or not one
    std::optional<HandshakeData> data;  // the other end's
  };

  bool AllReady() const;
  Status StartDue(Deadline deadline);
  Status Start(Handshake& handshake, Deadline deadline);
  Status LookAtReadyWords();
  Status Wait(Deadline deadline, int abort_fd) const;
  Status HandleEvents(Deadline deadline);
  bool TakeEvent(Event* event);
  Status Handle(const Event& event, Deadline deadline);
  Status HandleFailure(Handshake& handshake, const Event& event);

  Status ResolveRoute(Handshake& handshake, Deadline deadline);
  Status Connect(Handshake& handshake);
  Status Established(Handshake& handshake, const Event& event);
  Status WriteReadyWord(Handshake& handshake);
  Status HandleRequest(const Event& event);
  Status Accept(Handshake& handshake);
  void Refuse(rdma_cm_id* id);

  HandshakeData OwnData(const Handshake& handshake, std::uint64_t token) const;

  // Later, from the start; returns `failure` where the queue pair is not fit.
  Status TryAgain(Handshake& handshake, Status failure);
  ibv_qp_state QueuePairState(const Handshake& handshake) const;
  Handshake* Find(const rdma_cm_id* id);
  Handshake* FindPassive(int peer, std::uint32_t id);

  // "siw0: the connection to rank 3 at 192.168.77.2:99 (from 192.168.77.1)".
  std::string Name(const Handshake& handshake) const;
  Status TimedOut() const;

  Resources resources_;
  std::vector<Handshake> handshakes_;
  int strangers_ = 0;
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_CONNECTION_SETUP_H_
