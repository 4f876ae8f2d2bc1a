#include "engine/ringpipe.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/while_waiting.h"
#include "engine/c_interface.h"
#include "engine/communicator.h"
#include "memory_pool/registered_memory.h"

// The C enumerations are the C++ ones by number.
static_assert(RINGPIPE_INTERRUPTED ==
              static_cast<int>(ringpipe::StatusCode::kInterrupted));
static_assert(RINGPIPE_BFLOAT16 ==
              static_cast<int>(ringpipe::DataType::kBfloat16));
static_assert(RINGPIPE_AVERAGE ==
              static_cast<int>(ringpipe::ReduceOp::kAverage));
static_assert(RINGPIPE_LOG_DEBUG ==
              static_cast<int>(ringpipe::LogLevel::kDebug));
// But those of the collectives, of which none is 0 in C.
static_assert(RINGPIPE_ALL_TO_ALL ==
              static_cast<int>(ringpipe::Collective::kAllToAll) + 1);

// For good: structures grow at their ends alone.
static_assert(sizeof(ringpipe_buffer) == 16);
static_assert(offsetof(ringpipe_options, while_waiting) == 48 &&
              offsetof(ringpipe_options, store) == 72 &&
              offsetof(ringpipe_options, join_timeout_ms) == 104 &&
              sizeof(ringpipe_options) == 112);
static_assert(offsetof(ringpipe_call, send_list) == 56 &&
              offsetof(ringpipe_call, counts) == 88 &&
              offsetof(ringpipe_call, receive_counts) == 104 &&
              offsetof(ringpipe_call, prescale) == 120 &&
              offsetof(ringpipe_call, ended) == 136 &&
              offsetof(ringpipe_call, stream) == 152 &&
              sizeof(ringpipe_call) == 168);
static_assert(offsetof(ringpipe_store, put) == 8 &&
              sizeof(ringpipe_store) == 32 &&
              RINGPIPE_STORE_BYTES == ringpipe::Store::kMostBytes);
static_assert(offsetof(ringpipe_stage_counters, stage) == 8 &&
              sizeof(ringpipe_stage_counters) == 56);
static_assert(offsetof(ringpipe_slot_counters, slots) == 8 &&
              sizeof(ringpipe_slot_counters) == 40);

namespace ringpipe::c_interface {
namespace {

// The one thing that a C function cannot return.
thread_local std::string error_message;
// Instead, where there was no memory for a message; else nullptr.
thread_local const char* fixed_message = nullptr;

}  // namespace

ringpipe_status ToC(const Status& status) {
  if (!status.ok()) {
    try {
      error_message = status.ToString();
      fixed_message = nullptr;
    } catch (const std::bad_alloc&) {
      fixed_message = StatusCodeName(status.code());
    }
  }
  return static_cast<ringpipe_status>(status.code());
}

ringpipe_status Say(ringpipe_status code, const char* message) {
  fixed_message = message;
  return code;
}

const char* LastMessage() {
  return fixed_message != nullptr ? fixed_message : error_message.c_str();
}

}  // namespace ringpipe::c_interface

ringpipe_communicator::~ringpipe_communicator() {
  if (process != getpid()) {
    static_cast<void>(memory.release());  // nothing of it is mapped here
  }
}

void ringpipe_communicator::Own(
    std::unique_ptr<ringpipe::Communicator> created) {
  memory = std::make_unique<std::shared_ptr<ringpipe::RegisteredMemory>>(
      created->memory());
  communicator = std::move(created);
}

namespace {

using ringpipe::Buffer;
using ringpipe::Call;
using ringpipe::Collective;
using ringpipe::DataType;
using ringpipe::ReduceOp;
using ringpipe::Request;
using ringpipe::Result;
using ringpipe::Status;
using ringpipe::StatusCode;
using ringpipe::UsersFunction;
using ringpipe::c_interface::Guarded;
using ringpipe::c_interface::Invalid;
using ringpipe::c_interface::IsOpen;
using ringpipe::c_interface::NullArgument;
using ringpipe::c_interface::Read;
using ringpipe::c_interface::ToC;
using ringpipe::c_interface::ToOptions;
using ringpipe::c_interface::WhyNotOpen;

Status CheckTimeout(std::int64_t timeout_ms) {
  return timeout_ms >= RINGPIPE_NO_TIMEOUT || timeout_ms == RINGPIPE_AT_ONCE
             ? Status::Ok()
             : Invalid("timeout_ms is " + std::to_string(timeout_ms) +
                       "; give milliseconds, RINGPIPE_DEFAULT_TIMEOUT (0), "
                       "RINGPIPE_NO_TIMEOUT (-1) or RINGPIPE_AT_ONCE");
}

// A call, and the lists to which it points.
struct CallWithLists {
  CallWithLists() = default;
  CallWithLists(CallWithLists&&) = default;  // which moves no element
  CallWithLists(const CallWithLists&) = delete;
  CallWithLists& operator=(const CallWithLists&) = delete;

  Call call;
  // ringpipe_call's.
  void (*ended)(ringpipe_status status, void* context) = nullptr;
  void* ended_context = nullptr;
  std::vector<Buffer> send;
  std::vector<Buffer> receive;
  std::vector<std::size_t> counts;
  std::vector<std::size_t> receive_counts;
};

Buffer ToCxx(const ringpipe_buffer& piece) { return {piece.data, piece.count}; }
std::size_t ToCxx(std::uint64_t count) { return count; }

// A member of ringpipe_call of that name, as C++ has it. Nothing is allocated
// where there is none.
template <typename To, typename From>
Status CopyList(const From* list, std::uint64_t length, const char* name,
                std::vector<To>& to) {
  constexpr std::uint64_t kMost = 1 << 24;
  if (length == 0) {
    return Status::Ok();
  }
  if (list == nullptr || length > kMost) {
    const std::string member = std::string("ringpipe_call::") + name;
    return Invalid(member + "_length is " + std::to_string(length) +
                   (list == nullptr
                        ? ", and " + member + " is NULL"
                        : "; there may be " + std::to_string(kMost)));
  }
  to.reserve(length);
  for (std::uint64_t i = 0; i < length; ++i) {
    to.push_back(ToCxx(list[i]));
  }
  return Status::Ok();
}

Result<CallWithLists> ToCall(const ringpipe_call* from) {
  RINGPIPE_ASSIGN_OR_RETURN(const ringpipe_call call,
                            Read(from, "ringpipe_call"));
  RINGPIPE_RETURN_IF_ERROR(CheckTimeout(call.timeout_ms));
  if (call.collective < RINGPIPE_ALL_REDUCE ||
      call.collective > RINGPIPE_ALL_TO_ALL) {
    return Invalid("ringpipe_call::collective is " +
                   std::to_string(call.collective) +
                   "; see ringpipe_collective");
  }
  if (call.reserved != 0) {
    return Invalid(
        "ringpipe_call::reserved is not 0; initialise the "
        "structure with zeros");
  }
  if (call.has_stream > 1 || call.reserved_2 != 0) {
    return Invalid("ringpipe_call::has_stream is " +
                   std::to_string(call.has_stream) + ", and reserved_2 " +
                   std::to_string(call.reserved_2) +
                   "; give 0 or 1, and 0: initialise the structure with zeros");
  }
  CallWithLists with;
  RINGPIPE_RETURN_IF_ERROR(
      CopyList(call.send_list, call.send_list_length, "send_list", with.send));
  RINGPIPE_RETURN_IF_ERROR(CopyList(call.receive_list, call.receive_list_length,
                                    "receive_list", with.receive));
  RINGPIPE_RETURN_IF_ERROR(
      CopyList(call.counts, call.counts_length, "counts", with.counts));
  RINGPIPE_RETURN_IF_ERROR(CopyList(call.receive_counts,
                                    call.receive_counts_length,
                                    "receive_counts", with.receive_counts));
  Call& made = with.call;
  made.collective = static_cast<Collective>(call.collective - 1);
  made.send = call.send;
  made.receive = call.receive;
  made.count = call.count;
  made.type = static_cast<DataType>(call.data_type);
  made.op = static_cast<ReduceOp>(call.reduce_op);
  made.root = call.root;
  if (call.timeout_ms != RINGPIPE_DEFAULT_TIMEOUT) {
    made.timeout = std::chrono::milliseconds(
        call.timeout_ms == RINGPIPE_AT_ONCE ? 0 : call.timeout_ms);
  }
  made.send_list = with.send;
  made.receive_list = with.receive;
  made.counts = with.counts;
  made.receive_counts = with.receive_counts;
  made.prescale = call.prescale == 0 ? 1 : call.prescale;
  made.postscale = call.postscale == 0 ? 1 : call.postscale;
  if (call.has_stream != 0) {
    made.stream = call.stream;
  }
  with.ended = call.ended;
  with.ended_context = call.ended_context;
  return with;
}

// make(call), unless there is no such call: a status, which without memory
// fails the communicator.
template <typename Make>
Status WithCall(ringpipe_communicator* communicator, const ringpipe_call* from,
                Make make) {
  if (!IsOpen(communicator)) {
    return WhyNotOpen(communicator);
  }
  if (from == nullptr) {
    return Invalid("call is NULL");
  }
  try {
    const Result<CallWithLists> with = ToCall(from);
    return with.ok() ? make(*with) : with.status();
  } catch (const std::bad_alloc&) {
    return communicator->OutOfMemory();
  }
}

ringpipe_status Run(ringpipe_communicator* communicator,
                    const ringpipe_call* from) {
  return ToC(WithCall(communicator, from, [&](const CallWithLists& with) {
    return with.ended == nullptr
               ? communicator->communicator->Run(with.call)
               : Invalid("ringpipe_call::ended is for ringpipe_start alone");
  }));
}

// Needs no memory of its own.
ringpipe::Communicator::Ended EndedOf(const CallWithLists& with) {
  if (with.ended == nullptr) {
    return {};
  }
  return [ended = with.ended, context = with.ended_context](
             const Status& status) { ended(ToC(status), context); };
}

ringpipe_status Start(ringpipe_communicator* communicator,
                      const ringpipe_call* from, ringpipe_request** request) {
  if (request == nullptr) {
    return NullArgument("request");
  }
  *request = nullptr;
  return ToC(
      WithCall(communicator, from, [&](const CallWithLists& with) -> Status {
        // Before the call begins, which nobody could wait for without it.
        auto handle = std::make_unique<ringpipe_request>();
        RINGPIPE_ASSIGN_OR_RETURN(
            handle->request,
            communicator->communicator->Start(with.call, EndedOf(with)));
        *request = handle.release();
        return Status::Ok();
      }));
}

// What calls by name have in common.
ringpipe_call CallOf(ringpipe_collective collective, const void* send,
                     void* receive, std::size_t count, ringpipe_data_type type,
                     std::int64_t timeout_ms) {
  ringpipe_call call = {};
  call.struct_size = sizeof call;
  call.collective = static_cast<std::uint32_t>(collective);
  call.send = send;
  call.receive = receive;
  call.count = count;
  call.data_type = static_cast<std::uint32_t>(type);
  call.timeout_ms = timeout_ms;
  return call;
}

// Makes it as `request` says.
ringpipe_status Make(ringpipe_communicator* communicator,
                     const ringpipe_call& call, ringpipe_request** request) {
  return Guarded([&] {
    return request == nullptr ? Run(communicator, &call)
                              : Start(communicator, &call, request);
  });
}

// As Request's waits have it.
Result<std::chrono::milliseconds> ToWait(std::int64_t timeout_ms) {
  RINGPIPE_RETURN_IF_ERROR(CheckTimeout(timeout_ms));
  return std::chrono::milliseconds(timeout_ms == RINGPIPE_AT_ONCE ? 0
                                   : timeout_ms == RINGPIPE_DEFAULT_TIMEOUT
                                       ? -1
                                       : timeout_ms);
}

Status Wait(ringpipe_request* request, std::int64_t timeout_ms) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto timeout, ToWait(timeout_ms));
  return request->request->Wait(timeout);
}

// Those that are not NULL.
std::vector<Request> Among(ringpipe_request* const* requests,
                           std::size_t count) {
  std::vector<Request> all;
  for (std::size_t i = 0; i < count; ++i) {
    if (requests[i] != nullptr) {
      all.push_back(*requests[i]->request);
    }
  }
  return all;
}

Status WaitAll(ringpipe_request* const* requests, std::size_t count,
               std::int64_t timeout_ms) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto timeout, ToWait(timeout_ms));
  return Request::WaitAll(Among(requests, count), timeout);
}

Status WaitAny(ringpipe_request* const* requests, std::size_t count,
               std::int64_t timeout_ms, std::size_t* index) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto timeout, ToWait(timeout_ms));
  RINGPIPE_ASSIGN_OR_RETURN(std::size_t left,
                            Request::WaitAny(Among(requests, count), timeout));
  std::size_t which = 0;
  while (requests[which] == nullptr || left-- > 0) {
    ++which;
  }
  *index = which;
  return requests[which]->request->Wait();
}

ringpipe_status Create(const ringpipe_options* options,
                       ringpipe_communicator** communicator) {
  if (communicator == nullptr) {
    return NullArgument("communicator");
  }
  *communicator = nullptr;
  const auto settings = ToOptions(options);
  if (!settings.ok()) {
    return ToC(settings.status());
  }
  auto handle = std::make_unique<ringpipe_communicator>();
  auto created = ringpipe::Communicator::Create(*settings);
  if (!created.ok()) {
    return ToC(created.status());
  }
  handle->Own(std::move(created).value());
  *communicator = handle.release();
  return RINGPIPE_OK;
}

}  // namespace

extern "C" {

const char* ringpipe_version(void) { return ringpipe::Version(); }

int ringpipe_version_number(void) {
  return RINGPIPE_VERSION_MAJOR * 10000 + RINGPIPE_VERSION_MINOR * 100 +
         RINGPIPE_VERSION_PATCH;
}

const char* ringpipe_error_message(void) {
  return ringpipe::c_interface::LastMessage();
}

const char* ringpipe_status_name(ringpipe_status status) {
  return ringpipe::StatusCodeName(static_cast<StatusCode>(status));
}

ringpipe_status ringpipe_create(const ringpipe_options* options,
                                ringpipe_communicator** communicator) {
  return Guarded([&] { return Create(options, communicator); });
}

void ringpipe_destroy(ringpipe_communicator* communicator) {
  const ringpipe_status may =
      Guarded([] { return ToC(UsersFunction::MayBlock("ringpipe_destroy")); });
  if (may == RINGPIPE_OK) {
    delete communicator;
  }
}

ringpipe_status ringpipe_leave(ringpipe_communicator* communicator) {
  return Guarded([&] {
    if (!IsOpen(communicator)) {
      return ToC(WhyNotOpen(communicator));
    }
    const Status may = UsersFunction::MayBlock("ringpipe_leave");
    if (may.ok()) {
      communicator->communicator.reset();
    }
    return ToC(may);
  });
}

int ringpipe_rank(const ringpipe_communicator* communicator) {
  if (!IsOpen(communicator)) {
    static_cast<void>(Guarded([&] { return ToC(WhyNotOpen(communicator)); }));
    return -1;
  }
  return communicator->communicator->rank();
}

int ringpipe_size(const ringpipe_communicator* communicator) {
  if (!IsOpen(communicator)) {
    static_cast<void>(Guarded([&] { return ToC(WhyNotOpen(communicator)); }));
    return -1;
  }
  return communicator->communicator->size();
}

ringpipe_status ringpipe_allocate(ringpipe_communicator* communicator,
                                  size_t bytes, void** memory) {
  return Guarded([&] {
    if (memory == nullptr) {
      return NullArgument("memory");
    }
    if (!IsOpen(communicator)) {
      return ToC(WhyNotOpen(communicator));
    }
    *memory = nullptr;
    const Result<void*> allocated = communicator->communicator->Allocate(bytes);
    if (allocated.ok()) {
      *memory = allocated.value();
    }
    return ToC(allocated.status());
  });
}

ringpipe_status ringpipe_free(ringpipe_communicator* communicator,
                              void* memory) {
  return Guarded([&] {
    return communicator == nullptr ? NullArgument("communicator")
                                   : ToC((*communicator->memory)->Free(memory));
  });
}

ringpipe_status ringpipe_register(ringpipe_communicator* communicator,
                                  void* memory, size_t bytes) {
  return Guarded([&] {
    return ToC(IsOpen(communicator)
                   ? communicator->communicator->Register(memory, bytes)
                   : WhyNotOpen(communicator));
  });
}

ringpipe_status ringpipe_deregister(ringpipe_communicator* communicator,
                                    void* memory) {
  return Guarded([&] {
    return ToC(IsOpen(communicator)
                   ? communicator->communicator->Deregister(memory)
                   : WhyNotOpen(communicator));
  });
}

ringpipe_status ringpipe_run(ringpipe_communicator* communicator,
                             const ringpipe_call* call) {
  return Guarded([&] { return Run(communicator, call); });
}

ringpipe_status ringpipe_start(ringpipe_communicator* communicator,
                               const ringpipe_call* call,
                               ringpipe_request** request) {
  return Guarded([&] { return Start(communicator, call, request); });
}

ringpipe_status ringpipe_all_reduce(ringpipe_communicator* communicator,
                                    const void* send, void* receive,
                                    size_t count, ringpipe_data_type type,
                                    ringpipe_reduce_op op, int64_t timeout_ms,
                                    ringpipe_request** request) {
  ringpipe_call call =
      CallOf(RINGPIPE_ALL_REDUCE, send, receive, count, type, timeout_ms);
  call.reduce_op = static_cast<uint32_t>(op);
  return Make(communicator, call, request);
}

ringpipe_status ringpipe_reduce_scatter(ringpipe_communicator* communicator,
                                        const void* send, void* receive,
                                        size_t count, ringpipe_data_type type,
                                        ringpipe_reduce_op op,
                                        int64_t timeout_ms,
                                        ringpipe_request** request) {
  ringpipe_call call =
      CallOf(RINGPIPE_REDUCE_SCATTER, send, receive, count, type, timeout_ms);
  call.reduce_op = static_cast<uint32_t>(op);
  return Make(communicator, call, request);
}

ringpipe_status ringpipe_all_gather(ringpipe_communicator* communicator,
                                    const void* send, void* receive,
                                    size_t count, ringpipe_data_type type,
                                    int64_t timeout_ms,
                                    ringpipe_request** request) {
  ringpipe_call call =
      CallOf(RINGPIPE_ALL_GATHER, send, receive, count, type, timeout_ms);
  return Make(communicator, call, request);
}

ringpipe_status ringpipe_broadcast(ringpipe_communicator* communicator,
                                   const void* send, void* receive,
                                   size_t count, ringpipe_data_type type,
                                   int root, int64_t timeout_ms,
                                   ringpipe_request** request) {
  ringpipe_call call =
      CallOf(RINGPIPE_BROADCAST, send, receive, count, type, timeout_ms);
  call.root = root;
  return Make(communicator, call, request);
}

ringpipe_status ringpipe_barrier(ringpipe_communicator* communicator,
                                 int64_t timeout_ms,
                                 ringpipe_request** request) {
  return Make(communicator,
              CallOf(RINGPIPE_BARRIER, nullptr, nullptr, 0, {}, timeout_ms),
              request);
}

ringpipe_status ringpipe_reduce(ringpipe_communicator* communicator,
                                const void* send, void* receive, size_t count,
                                ringpipe_data_type type, ringpipe_reduce_op op,
                                int root, int64_t timeout_ms,
                                ringpipe_request** request) {
  ringpipe_call call =
      CallOf(RINGPIPE_REDUCE, send, receive, count, type, timeout_ms);
  call.reduce_op = static_cast<uint32_t>(op);
  call.root = root;
  return Make(communicator, call, request);
}

ringpipe_status ringpipe_gather(ringpipe_communicator* communicator,
                                const void* send, void* receive, size_t count,
                                ringpipe_data_type type, int root,
                                int64_t timeout_ms,
                                ringpipe_request** request) {
  ringpipe_call call =
      CallOf(RINGPIPE_GATHER, send, receive, count, type, timeout_ms);
  call.root = root;
  return Make(communicator, call, request);
}

ringpipe_status ringpipe_scatter(ringpipe_communicator* communicator,
                                 const void* send, void* receive, size_t count,
                                 ringpipe_data_type type, int root,
                                 int64_t timeout_ms,
                                 ringpipe_request** request) {
  ringpipe_call call =
      CallOf(RINGPIPE_SCATTER, send, receive, count, type, timeout_ms);
  call.root = root;
  return Make(communicator, call, request);
}

ringpipe_status ringpipe_all_to_all(ringpipe_communicator* communicator,
                                    const void* send, void* receive,
                                    size_t count, ringpipe_data_type type,
                                    int64_t timeout_ms,
                                    ringpipe_request** request) {
  ringpipe_call call =
      CallOf(RINGPIPE_ALL_TO_ALL, send, receive, count, type, timeout_ms);
  return Make(communicator, call, request);
}

ringpipe_status ringpipe_wait(ringpipe_request* request, int64_t timeout_ms) {
  return Guarded([&] {
    return request == nullptr ? NullArgument("request")
                              : ToC(Wait(request, timeout_ms));
  });
}

ringpipe_status ringpipe_test(ringpipe_request* request, int* ended) {
  return Guarded([&] {
    if (request == nullptr || ended == nullptr) {
      return NullArgument(request == nullptr ? "request" : "ended");
    }
    *ended = request->request->Done() ? 1 : 0;
    return *ended != 0 ? ToC(request->request->Wait()) : RINGPIPE_OK;
  });
}

ringpipe_status ringpipe_wait_all(ringpipe_request* const* requests,
                                  size_t count, int64_t timeout_ms) {
  return Guarded([&] {
    return requests == nullptr && count > 0
               ? NullArgument("requests")
               : ToC(WaitAll(requests, count, timeout_ms));
  });
}

ringpipe_status ringpipe_wait_any(ringpipe_request* const* requests,
                                  size_t count, int64_t timeout_ms,
                                  size_t* index) {
  return Guarded([&] {
    if (index == nullptr) {
      return NullArgument("index");
    }
    *index = count;
    return requests == nullptr && count > 0
               ? NullArgument("requests")
               : ToC(WaitAny(requests, count, timeout_ms, index));
  });
}

void ringpipe_request_free(ringpipe_request* request) { delete request; }

void ringpipe_abort(ringpipe_communicator* communicator, const char* reason) {
  if (IsOpen(communicator)) {
    communicator->communicator->Abort(reason != nullptr ? reason : "");
  }
}

}  // extern "C"
