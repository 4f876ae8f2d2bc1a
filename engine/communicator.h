// ringpipe's C++ interface: a communicator and its collectives.
// docs/semantics.md has all that a program may rely on.
//
// Calls. Every rank of a communicator makes the same calls in the same order,
// with the same count, type, operation and root. Ranks that disagree get
// kMismatch with both calls in words, before a byte is reduced.
//
// Buffers. Each of `send` and `receive`, and each piece of a list, is host
// memory or memory of the communicator's accelerator. They are aligned to their
// element type. They lie in place, where the call's comment says, or they do
// not overlap; any other overlap is kInvalidArgument. Until the call has
// returned (an asynchronous one: until a wait has returned its end) the caller
// must not write either buffer, nor read `receive`. After a failed call the
// content of `receive` is undefined. Both buffers may then be reused, unless
// the status is kMemoryHeld.
//
// CUDA streams. A call is NOT ordered after work in the caller's streams: it
// starts at once, in streams of its own. Before the call, also before an
// asynchronous one, synchronise (cudaStreamSynchronize, or wait for an event)
// with all work that writes `send`, and with all work that reads or writes
// `receive`. When the call (or the wait for it) has returned, the result is
// complete in device memory, and ringpipe no longer reads or writes either
// buffer. Work that the caller starts afterwards, in any stream, sees the
// result.
//
// Exceptions. None leaves a call: what fails is in the status that it returns.
//
// Thread-safety. A Communicator is thread-safe. Calls from several threads run
// one after another; threads that call concurrently must see to it themselves
// that the order is the same on all ranks. Two communicators do not affect each
// other, and may be used at the same time.
//
// fork. A child must not use its parent's communicator, nor memory from
// Allocate. It may exec, exit or live on. It has neither the shared memory nor
// the descriptors of the communicator; to destroy the communicator there does
// nothing.
//
// Exit without destroying. Allowed at any time, by exit() or a return from
// main(). On the other ranks, calls that this rank has not ended fail with
// kPeerLost; calls that it has ended still end in order.
#ifndef RINGPIPE_ENGINE_COMMUNICATOR_H_
#define RINGPIPE_ENGINE_COMMUNICATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/counters.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/status.h"
#include "bootstrap/store.h"
#include "engine/call.h"
#include "reduction/data_type.h"

struct ringpipe_communicator;  // the C interface's

namespace ringpipe {

class Accelerator;
class RegisteredMemory;
class TransportFactory;

// The version of the library at run time: "0.1.0".
const char* Version();

struct CommunicatorOptions {
  // The values of ringpipe's environment variables. FromProcess below reads
  // those of this process.
  Environment environment;

  // This process's place in its job. What is set here overrides `environment`.
  // If neither has a rank and a size, the variables of the launcher say them
  // (docs/reference.md lists the launchers).
  std::optional<int> rank;
  std::optional<int> size;
  std::string root;
  std::string job_id;

  // Where the ranks find each other, instead of a root that all must know. The
  // root then says only where rank 0 listens: HOST:PORT, where PORT may be 0
  // for one that the kernel chooses, or HOST "*" for any address that
  // RINGPIPE_SOCKET_IFNAME admits. Neither set here nor in `environment`:
  // "*:0". All ranks or none.
  std::optional<Store> store;

  // Where the lines of the log go. Unset: to stderr.
  LogCallback log;

  // Called while a call that blocks waits, on the thread that made the call:
  // after each `while_waiting_interval` of waiting, and at once after a signal
  // handler has run on that thread, where that can be seen. A call that ends
  // sooner does not call it. No lock of ringpipe's is held.
  //
  // False: wait on. True: a wait of Request's returns kInterrupted, and the
  // calls run on; Run, the calls by name and Exchange fail with kAborted, and
  // so does the communicator on all ranks; Create fails likewise; the
  // destructor waits for the other ranks no longer.
  //
  // It may start calls (Start, ...Async), ask Request::Done, and Abort. Calls
  // that block are refused there (kInvalidArgument); a communicator must not be
  // destroyed there. It must not throw.
  std::function<bool()> while_waiting;
  std::chrono::microseconds while_waiting_interval{20'000};

  // The accelerator whose memory may be used for buffers, besides host memory.
  // Unset: one CUDA device, namely that of the first device buffer in a call; a
  // buffer on another device is refused. Before that call nothing is created on
  // a device. That call takes longer, because it creates a context, streams and
  // pinned slots; if it cannot, it fails, and so does the communicator. Calls
  // on host memory create nothing on a device. One communicator at a time uses
  // it: another one is refused (kInvalidArgument).
  std::shared_ptr<Accelerator> accelerator;

  // For tests: other connections to some of the ranks. All ranks must use the
  // same.
  std::shared_ptr<TransportFactory> transport;

  // Options with the process's environment, and everything else unset.
  // kInvalidArgument if a variable is wrong.
  static Result<CommunicatorOptions> FromProcess();
};

// An asynchronous call. Copyable; copies stand for the same call. Thread-safe.
class Request {
 public:
  // Waits for the end of the call and returns its status. Returns kWaitOver if
  // the call has not ended after `timeout` (negative: waits without limit), and
  // kInterrupted if CommunicatorOptions::while_waiting has ended the wait. The
  // call then runs on, and can be waited for again; it has a deadline of its
  // own, which ends it.
  Status Wait(
      std::chrono::milliseconds timeout = std::chrono::milliseconds(-1));

  // Whether the call has ended.
  bool Done() const;

  // Waits for the end of all of them. Returns the first error among them, in
  // their order; kWaitOver and kInterrupted as Wait does, if one has not ended
  // by then. If they are of several communicators, the first one's
  // `while_waiting` is called.
  static Status WaitAll(
      std::span<const Request> requests,
      std::chrono::milliseconds timeout = std::chrono::milliseconds(-1));
  // Waits for one of them to end, and returns which: the first in their order
  // that has. Its status is Wait's. kWaitOver and kInterrupted as WaitAll does,
  // if none has ended by then; kInvalidArgument if there is none.
  static Result<std::size_t> WaitAny(
      std::span<const Request> requests,
      std::chrono::milliseconds timeout = std::chrono::milliseconds(-1));

  struct State;

 private:
  friend class Communicator;
  struct Waits;
  class Watch;
  explicit Request(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class Communicator {
 public:
  // Joins the other ranks. Returns when all have joined and are connected. If
  // one rank fails, all get an error.
  static Result<std::unique_ptr<Communicator>> Create(
      const CommunicatorOptions& options);

  // Ends pending calls with kAborted. Then waits until the other ranks destroy
  // their communicators too: for 2 s, after which a warning in the log names
  // those that have not, and not at all if the communicator has failed, or if
  // another rank has left. Then releases everything. Calls that this rank has
  // ended still end in order on the other ranks; their later calls fail with
  // kPeerLost.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;

  // New memory for buffers, page-aligned and zeroed. Peers on this host read
  // and write it where it lies. It is registered with the devices, which send
  // from it and receive into it without a copy. It lives until Free, or until
  // the communicator is destroyed. kInvalidArgument for 0 bytes;
  // kResourceExhausted if there is not enough memory.
  Result<void*> Allocate(std::size_t bytes);
  Status Free(void* memory);

  // Registers the caller's own memory with the devices, until Deregister: they
  // send from it and receive into it without a copy. A real device pins its
  // pages. Between ranks of one host, which use no device, nothing changes.
  // kInvalidArgument for nullptr, for 0 bytes, and if a part is registered
  // already; kResourceExhausted, with advice, if the limit of locked memory
  // does not allow it. Deregister memory before you free it, and not while a
  // call uses it.
  Status Register(void* memory, std::size_t bytes);
  Status Deregister(void* memory);

  // Makes a call. Run returns when it has ended on this rank. If that is not
  // before its timeout, or if a peer is lost, the call fails and so does the
  // communicator: from then on every call returns the first reason.
  Status Run(const Call& call);
  // The same, at once: the call runs on a thread of the communicator, after
  // those that were made before.
  //
  // `ended`, if given, is called once if Start succeeds: when the call has
  // ended, however it has, on a thread of the communicator, with no lock held.
  // Waits for the call may have returned before; the destructor waits for it.
  // It may start calls, ask Request::Done, and Abort. Calls that block are
  // refused there (kInvalidArgument); a communicator must not be destroyed
  // there. It must not throw. Later asynchronous calls wait until it returns.
  using Ended = std::function<void(const Status&)>;
  Result<Request> Start(const Call& call, Ended ended = {});

  // The calls by name. Where a buffer holds the parts of all ranks, it has size
  // * count elements, rank r's part from r * count on. A buffer that the rank
  // has not, as it is not the root, is not read or written and may be nullptr.

  // receive[i] = OP over ranks of send[i], for i in [0, count).
  Status AllReduce(const void* send, void* receive, std::size_t count,
                   DataType type, ReduceOp op, Timeout timeout = {}) {
    return Run(
        {Collective::kAllReduce, send, receive, count, type, op, 0, timeout});
  }

  // receive[i] = OP over ranks of send[rank * count + i]: `send` has all parts.
  // In place: receive == send + rank * count.
  Status ReduceScatter(const void* send, void* receive, std::size_t count,
                       DataType type, ReduceOp op, Timeout timeout = {}) {
    return Run({Collective::kReduceScatter, send, receive, count, type, op, 0,
                timeout});
  }

  // receive[r * count + i] = rank r's send[i]: `receive` has all parts. In
  // place: send == receive + rank * count.
  Status AllGather(const void* send, void* receive, std::size_t count,
                   DataType type, Timeout timeout = {}) {
    return Run({Collective::kAllGather, send, receive, count, type,
                ReduceOp::kSum, 0, timeout});
  }

  // receive[i] = the root's send[i]. Only the root has `send`.
  Status Broadcast(const void* send, void* receive, std::size_t count,
                   DataType type, int root, Timeout timeout = {}) {
    return Run({Collective::kBroadcast, send, receive, count, type,
                ReduceOp::kSum, root, timeout});
  }

  // Returns after every rank has called it.
  Status Barrier(Timeout timeout = {}) {
    return Run({.collective = Collective::kBarrier, .timeout = timeout});
  }

  // receive[i] = OP over ranks of send[i], on the root, which alone has
  // `receive`.
  Status Reduce(const void* send, void* receive, std::size_t count,
                DataType type, ReduceOp op, int root, Timeout timeout = {}) {
    return Run(
        {Collective::kReduce, send, receive, count, type, op, root, timeout});
  }

  // receive[r * count + i] = rank r's send[i], on the root, which alone has
  // `receive`, with all parts. In place there: send == receive + rank * count.
  Status Gather(const void* send, void* receive, std::size_t count,
                DataType type, int root, Timeout timeout = {}) {
    return Run({Collective::kGather, send, receive, count, type, ReduceOp::kSum,
                root, timeout});
  }

  // receive[i] = the root's send[rank * count + i]; the root alone has `send`,
  // with all parts. In place there: receive == send + rank * count.
  Status Scatter(const void* send, void* receive, std::size_t count,
                 DataType type, int root, Timeout timeout = {}) {
    return Run({Collective::kScatter, send, receive, count, type,
                ReduceOp::kSum, root, timeout});
  }

  // receive[r * count + i] = rank r's send[rank * count + i]: both buffers have
  // all parts, and do not overlap.
  Status AllToAll(const void* send, void* receive, std::size_t count,
                  DataType type, Timeout timeout = {}) {
    return Run({Collective::kAllToAll, send, receive, count, type,
                ReduceOp::kSum, 0, timeout});
  }

  // Of those whose parts are one rank's each: where rank r's part has counts[r]
  // elements, and begins where that of rank r - 1 ends. All ranks give the same
  // counts, as many as there are ranks; 0 among them are allowed.
  Status ReduceScatterV(const void* send, void* receive, Counts counts,
                        DataType type, ReduceOp op, Timeout timeout = {}) {
    return Run({.collective = Collective::kReduceScatter,
                .send = send,
                .receive = receive,
                .type = type,
                .op = op,
                .timeout = timeout,
                .counts = counts});
  }
  Status AllGatherV(const void* send, void* receive, Counts counts,
                    DataType type, Timeout timeout = {}) {
    return Run({.collective = Collective::kAllGather,
                .send = send,
                .receive = receive,
                .type = type,
                .timeout = timeout,
                .counts = counts});
  }
  Status GatherV(const void* send, void* receive, Counts counts, DataType type,
                 int root, Timeout timeout = {}) {
    return Run({.collective = Collective::kGather,
                .send = send,
                .receive = receive,
                .type = type,
                .root = root,
                .timeout = timeout,
                .counts = counts});
  }
  Status ScatterV(const void* send, void* receive, Counts counts, DataType type,
                  int root, Timeout timeout = {}) {
    return Run({.collective = Collective::kScatter,
                .send = send,
                .receive = receive,
                .type = type,
                .root = root,
                .timeout = timeout,
                .counts = counts});
  }

  // Rank r's part has counts[r] elements in `send` and receive_counts[r] in
  // `receive`, one part after the other: what r has for this rank is as long as
  // this rank expects. The ranks compare that first, which takes a short call.
  Status AllToAllV(const void* send, Counts counts, void* receive,
                   Counts receive_counts, DataType type, Timeout timeout = {}) {
    return Run({.collective = Collective::kAllToAll,
                .send = send,
                .receive = receive,
                .type = type,
                .timeout = timeout,
                .counts = counts,
                .receive_counts = receive_counts});
  }

  // The same calls (but those with counts), by Start.
  Result<Request> AllReduceAsync(const void* send, void* receive,
                                 std::size_t count, DataType type, ReduceOp op,
                                 Timeout timeout = {}) {
    return Start(
        {Collective::kAllReduce, send, receive, count, type, op, 0, timeout});
  }
  Result<Request> ReduceScatterAsync(const void* send, void* receive,
                                     std::size_t count, DataType type,
                                     ReduceOp op, Timeout timeout = {}) {
    return Start({Collective::kReduceScatter, send, receive, count, type, op, 0,
                  timeout});
  }
  Result<Request> AllGatherAsync(const void* send, void* receive,
                                 std::size_t count, DataType type,
                                 Timeout timeout = {}) {
    return Start({Collective::kAllGather, send, receive, count, type,
                  ReduceOp::kSum, 0, timeout});
  }
  Result<Request> BroadcastAsync(const void* send, void* receive,
                                 std::size_t count, DataType type, int root,
                                 Timeout timeout = {}) {
    return Start({Collective::kBroadcast, send, receive, count, type,
                  ReduceOp::kSum, root, timeout});
  }
  Result<Request> BarrierAsync(Timeout timeout = {}) {
    return Start({.collective = Collective::kBarrier, .timeout = timeout});
  }
  Result<Request> ReduceAsync(const void* send, void* receive,
                              std::size_t count, DataType type, ReduceOp op,
                              int root, Timeout timeout = {}) {
    return Start(
        {Collective::kReduce, send, receive, count, type, op, root, timeout});
  }
  Result<Request> GatherAsync(const void* send, void* receive,
                              std::size_t count, DataType type, int root,
                              Timeout timeout = {}) {
    return Start({Collective::kGather, send, receive, count, type,
                  ReduceOp::kSum, root, timeout});
  }
  Result<Request> ScatterAsync(const void* send, void* receive,
                               std::size_t count, DataType type, int root,
                               Timeout timeout = {}) {
    return Start({Collective::kScatter, send, receive, count, type,
                  ReduceOp::kSum, root, timeout});
  }
  Result<Request> AllToAllAsync(const void* send, void* receive,
                                std::size_t count, DataType type,
                                Timeout timeout = {}) {
    return Start({Collective::kAllToAll, send, receive, count, type,
                  ReduceOp::kSum, 0, timeout});
  }

  // Sends `send` to rank `to` and fills `receive` with what rank `from` sends
  // in the same call; -1: to nobody, from nobody. Every rank makes the call,
  // with partners of its own, such that each send meets a receive; otherwise
  // the call ends by its deadline. Partners are ranks below 32,767. Both
  // buffers are needed in any case, and do not overlap. It goes the way of a
  // collective's transfers between these two ranks, and is there to measure and
  // to check that way.
  Status SendReceive(const void* send, int to, void* receive, int from,
                     std::size_t count, DataType type, Timeout timeout = {}) {
    return Run({Collective::kSendReceive, send, receive, count, type,
                ReduceOp::kSum, 0, timeout, Partners{to, from}});
  }

  // Fails the communicator on every rank; pending calls end with kAborted. This
  // works even if memory has run out, but the others may then be told that this
  // rank was lost, instead of `reason`.
  void Abort(std::string_view reason) noexcept;

  // Gives every rank the blobs of all ranks, by rank, over the bootstrap's
  // connections. For small control data: at most 1 MiB from each rank. All
  // ranks make these calls in the same order; those of several threads run one
  // after another.
  Result<std::vector<std::string>> Exchange(const std::string& blob);

  // Ok, or why the communicator has failed.
  Status failure() const;

  // The other ranks that are gone, as far as this rank knows, in ascending
  // order: the one that a failure by kPeerLost is about, and those that have
  // destroyed their communicators or exited. kResourceExhausted if there is no
  // memory for them.
  Result<std::vector<int>> lost_ranks() const;

  // How this rank reaches the others, and why so: "host memory: all ranks are
  // on this host", or the devices, each with the reason for its choice. From
  // this rank's first call with device memory on, also "; device memory: cuda:0
  // (by copies to pinned slots)"; loads no driver to say so. This and the next
  // are empty where there is no memory for them.
  std::string device() const;
  // What the pipeline's stages and slots have done so far.
  std::vector<StageCounters> stage_counters() const;
  SlotCounters slot_counters() const;

 private:
  friend struct ::ringpipe_communicator;
  class State;
  explicit Communicator(std::unique_ptr<State> state);
  // Fails the communicator on every rank with `reason`, unless it has failed
  // before. Returns the first reason.
  Status Fail(const Status& reason) noexcept;
  // Allocate's; what it has stays as long as somebody has it.
  std::shared_ptr<RegisteredMemory> memory() const;
  std::unique_ptr<State> state_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_COMMUNICATOR_H_
