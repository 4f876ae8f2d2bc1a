// ringpipe's C++ interface: a communicator and its collectives.
//
// A collective is called by every rank of a communicator, in the same order,
// with the same count, type, operation and root. Ranks that disagree get
// kMismatch with both values, before a byte is reduced.
//
// Buffers. `send` and `receive` are host memory, or both memory of the
// communicator's accelerator, aligned to their element. They are the same
// (in place) or do not overlap; a partial overlap is kInvalidArgument. The
// caller must not write either, nor read `receive`, until the call (or the wait
// for it) returns. After a failed call, or an expired one, `receive` holds
// anything; both are safe to reuse once the call has returned, unless its
// status is kMemoryHeld.
//
// CUDA streams. A call is NOT ordered after work in the caller's streams: it
// reads and writes its buffers at once, in streams of its own. Synchronise
// first (cudaStreamSynchronize, or wait for an event) with all work that writes
// `send`, or that reads or writes `receive`: before the call is made, also
// before an asynchronous one. Once the call (or the wait for it) has returned,
// the result is complete in device memory, and none of ringpipe's work on
// either buffer is left: work that the caller then starts, in any stream, sees
// it.
//
// Thread-safety. A Communicator is thread-safe; calls from several threads run
// one after another, so all ranks must order them alike by other means. Two
// communicators do not meet, and may be used at the same time.
//
// fork. A child must not use a communicator of its parent; it may exec or
// _exit. One that lives on keeps the parent's sockets open, which delays the
// detection of the parent's death.
//
// Exit without destroying. Allowed at any point: the other ranks take it for
// the loss of this rank where they still wait for it.
#ifndef RINGPIPE_ENGINE_COMMUNICATOR_H_
#define RINGPIPE_ENGINE_COMMUNICATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/status.h"
#include "reduction/data_type.h"

namespace ringpipe {

class Accelerator;
class TransportFactory;

// "0.1.0": that of the library at run time.
const char* Version();

struct CommunicatorOptions {
  // ringpipe's variables. CommunicatorOptions::FromProcess reads the process's.
  Environment environment;

  // This process's place in its job; where rank is not set, the launcher's
  // variables say (bootstrap/launcher.h lists them).
  std::optional<int> rank;
  std::optional<int> size;
  std::string root;
  std::string job_id;

  // Where log lines go; unset: to stderr.
  LogCallback log;

  // Memory that buffers may be in besides the host's. Unset: that of one CUDA
  // device, the one whose memory the first device buffer of a call is; memory
  // of another is refused. Nothing is made on a device before that call, which
  // therefore takes longer (a context, streams, pinned slots). Where that
  // cannot be done the call fails, and with it the communicator; calls on host
  // memory never do any of it.
  std::shared_ptr<Accelerator> accelerator;

  // For tests: another way to some of the other ranks, the same on all.
  std::shared_ptr<TransportFactory> transport;

  // The environment's values and nothing else.
  static Result<CommunicatorOptions> FromProcess();
};

// How long one call may take, from when it is made: waiting for earlier calls
// counts too. Negative: without limit. Not given: RINGPIPE_TIMEOUT_MS.
using Timeout = std::optional<std::chrono::milliseconds>;

// A call in flight. Copyable; copies are the same call. Thread-safe.
class Request {
 public:
  // Waits for the end of the call and returns its status. kTimeout after
  // `timeout` (negative: never): the call then runs on and can be waited for
  // again; it is its own deadline that ends it.
  Status Wait(
      std::chrono::milliseconds timeout = std::chrono::milliseconds(-1));

  // Whether the call has ended.
  bool Done() const;

  struct State;

 private:
  friend class Communicator;
  explicit Request(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class Communicator {
 public:
  // Joins the other ranks; returns when all have. If one rank fails, all get an
  // error.
  static Result<std::unique_ptr<Communicator>> Create(
      const CommunicatorOptions& options);

  // Ends pending calls with kAborted, waits for the other ranks to arrive here
  // too (as long as a call: RINGPIPE_TIMEOUT_MS; not after a failure), and
  // releases everything.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;

  // Memory registered once, which the pipeline sends from without copying, and
  // which peers on this host read and write where it lies. It lives until Free,
  // or until the communicator is destroyed. Page-aligned, zeroed.
  Result<void*> Allocate(std::size_t bytes);
  Status Free(void* memory);

  // The caller's own memory, registered until Deregister: the pipeline sends
  // from it and receives into it without copying, and nothing is registered in
  // a call; between ranks of one host, which use no device, nothing changes.
  // Pins its pages on a real device. kInvalidArgument for no memory and
  // where a part is registered already; kResourceExhausted past the limit of
  // locked memory, with advice. Deregister it before you free it, and not while
  // a call uses it.
  Status Register(void* memory, std::size_t bytes);
  Status Deregister(void* memory);

  // Each call below returns when it has ended on this rank, at the latest after
  // `timeout`. A deadline that expires fails the communicator, as does a lost
  // peer: from then on every call returns the first reason.

  // receive[i] = OP over ranks of send[i], for i in [0, count).
  Status AllReduce(const void* send, void* receive, std::size_t count,
                   DataType type, ReduceOp op, Timeout timeout = {});

  // receive[i] = OP over ranks of send[rank * count + i], i in [0, count);
  // `send` holds size * count elements. In place: receive == send + rank *
  // count.
  Status ReduceScatter(const void* send, void* receive, std::size_t count,
                       DataType type, ReduceOp op, Timeout timeout = {});

  // receive[r * count + i] = rank r's send[i]; `receive` holds size * count
  // elements. In place: send == receive + rank * count.
  Status AllGather(const void* send, void* receive, std::size_t count,
                   DataType type, Timeout timeout = {});

  // receive[i] = the root's send[i]. `send` is read at the root alone (others
  // may pass nullptr); in place there: send == receive.
  Status Broadcast(const void* send, void* receive, std::size_t count,
                   DataType type, int root, Timeout timeout = {});

  // Returns after every rank has called it.
  Status Barrier(Timeout timeout = {});

  // The same calls without waiting: they run one after another, in the order in
  // which they were made, on a thread of the communicator.
  Result<Request> AllReduceAsync(const void* send, void* receive,
                                 std::size_t count, DataType type, ReduceOp op,
                                 Timeout timeout = {});
  Result<Request> ReduceScatterAsync(const void* send, void* receive,
                                     std::size_t count, DataType type,
                                     ReduceOp op, Timeout timeout = {});
  Result<Request> AllGatherAsync(const void* send, void* receive,
                                 std::size_t count, DataType type,
                                 Timeout timeout = {});
  Result<Request> BroadcastAsync(const void* send, void* receive,
                                 std::size_t count, DataType type, int root,
                                 Timeout timeout = {});
  Result<Request> BarrierAsync(Timeout timeout = {});

  // Fails the communicator on every rank; pending calls end with kAborted.
  void Abort(const std::string& reason);

  // Every rank's blob by rank, over the bootstrap connections (for small
  // control data; at most 1 MiB each). All ranks call it in the same order.
  Result<std::vector<std::string>> Exchange(const std::string& blob);

  // Ok, or the reason for which the communicator has failed.
  Status failure() const;

  // The devices in use, each with the reason why: "soft0 (software device): no
  // RDMA device ...".
  std::string device() const;
  std::vector<StageCounters> stage_counters() const;
  SlotCounters slot_counters() const;

 private:
  class State;
  explicit Communicator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_COMMUNICATOR_H_
