#include "engine/ringpipe.h"

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "engine/communicator.h"

// The C enumerations are the C++ ones by number.
static_assert(RINGPIPE_MEMORY_HELD ==
              static_cast<int>(ringpipe::StatusCode::kMemoryHeld));
static_assert(RINGPIPE_UINT8 == static_cast<int>(ringpipe::DataType::kUint8));
static_assert(RINGPIPE_AVERAGE ==
              static_cast<int>(ringpipe::ReduceOp::kAverage));
static_assert(RINGPIPE_LOG_DEBUG ==
              static_cast<int>(ringpipe::LogLevel::kDebug));

struct ringpipe_communicator {
  std::unique_ptr<ringpipe::Communicator> communicator;
};

struct ringpipe_request {
  std::optional<ringpipe::Request> request;
};

namespace {

using ringpipe::Communicator;
using ringpipe::DataType;
using ringpipe::ReduceOp;
using ringpipe::Result;
using ringpipe::Status;
using ringpipe::StatusCode;
using ringpipe::Timeout;

// The one thing that a C function cannot return.
thread_local std::string error_message;
// Instead, where there was no memory for a message; else nullptr.
thread_local const char* fixed_message = nullptr;

// The code holds also where there is no memory for the message.
ringpipe_status ToC(const Status& status) {
  if (!status.ok()) {
    try {
      error_message = status.ToString();
      fixed_message = nullptr;
    } catch (const std::bad_alloc&) {
      fixed_message = ringpipe::StatusCodeName(status.code());
    }
  }
  return static_cast<ringpipe_status>(status.code());
}

// Runs `f` so that nothing but a status leaves the C interface.
template <typename F>
ringpipe_status Guarded(F f) noexcept {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    fixed_message = "resource exhausted: out of memory";
    return RINGPIPE_RESOURCE_EXHAUSTED;
  } catch (...) {
    fixed_message = "internal error: an exception that ringpipe did not expect";
    return RINGPIPE_INTERNAL;
  }
}

ringpipe_status NullArgument(const char* what) {
  return ToC({StatusCode::kInvalidArgument, std::string(what) + " is NULL"});
}

Timeout ToTimeout(std::int64_t timeout_ms) {
  return timeout_ms == RINGPIPE_DEFAULT_TIMEOUT
             ? Timeout()
             : Timeout(std::chrono::milliseconds(timeout_ms));
}

// Runs the blocking call or starts the other, as `request` says.
template <typename Now, typename Later, typename... Arguments>
ringpipe_status Call(ringpipe_communicator* communicator,
                     ringpipe_request** request, Now now, Later later,
                     Arguments... arguments) {
  return Guarded([&] {
    if (communicator == nullptr) {
      return NullArgument("communicator");
    }
    if (request == nullptr) {
      return ToC(std::invoke(now, *communicator->communicator, arguments...));
    }
    // Before the call begins, which nobody could wait for without it.
    auto handle = std::make_unique<ringpipe_request>();
    Result<ringpipe::Request> started =
        std::invoke(later, *communicator->communicator, arguments...);
    if (!started.ok()) {
      return ToC(started.status());
    }
    handle->request = std::move(started).value();
    *request = handle.release();
    return RINGPIPE_OK;
  });
}

ringpipe_status Create(const ringpipe_options* options,
                       ringpipe_communicator** communicator) {
  if (communicator == nullptr) {
    return NullArgument("communicator");
  }
  *communicator = nullptr;
  Result<ringpipe::CommunicatorOptions> settings =
      ringpipe::CommunicatorOptions::FromProcess();
  if (!settings.ok()) {
    return ToC(settings.status());
  }
  if (options != nullptr) {
    if (options->explicit_rank != 0) {
      settings->rank = options->rank;
      settings->size = options->size;
    }
    settings->root = options->root != nullptr ? options->root : "";
    settings->job_id = options->job_id != nullptr ? options->job_id : "";
    if (options->log != nullptr) {
      settings->log = [log = options->log, context = options->log_context](
                          ringpipe::LogLevel level, std::string_view line) {
        log(static_cast<ringpipe_log_level>(level), std::string(line).c_str(),
            context);
      };
    }
  }
  auto handle = std::make_unique<ringpipe_communicator>();
  auto created = ringpipe::Communicator::Create(*settings);
  if (!created.ok()) {
    return ToC(created.status());
  }
  handle->communicator = std::move(created).value();
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
  return fixed_message != nullptr ? fixed_message : error_message.c_str();
}

const char* ringpipe_status_name(ringpipe_status status) {
  return ringpipe::StatusCodeName(static_cast<StatusCode>(status));
}

ringpipe_status ringpipe_create(const ringpipe_options* options,
                                ringpipe_communicator** communicator) {
  return Guarded([&] { return Create(options, communicator); });
}

void ringpipe_destroy(ringpipe_communicator* communicator) {
  delete communicator;
}

int ringpipe_rank(const ringpipe_communicator* communicator) {
  return communicator->communicator->rank();
}

int ringpipe_size(const ringpipe_communicator* communicator) {
  return communicator->communicator->size();
}

ringpipe_status ringpipe_allocate(ringpipe_communicator* communicator,
                                  size_t bytes, void** memory) {
  return Guarded([&] {
    if (communicator == nullptr || memory == nullptr) {
      return NullArgument(memory == nullptr ? "memory" : "communicator");
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
    return communicator == nullptr
               ? NullArgument("communicator")
               : ToC(communicator->communicator->Free(memory));
  });
}

ringpipe_status ringpipe_register(ringpipe_communicator* communicator,
                                  void* memory, size_t bytes) {
  return Guarded([&] {
    return communicator == nullptr
               ? NullArgument("communicator")
               : ToC(communicator->communicator->Register(memory, bytes));
  });
}

ringpipe_status ringpipe_deregister(ringpipe_communicator* communicator,
                                    void* memory) {
  return Guarded([&] {
    return communicator == nullptr
               ? NullArgument("communicator")
               : ToC(communicator->communicator->Deregister(memory));
  });
}

ringpipe_status ringpipe_all_reduce(ringpipe_communicator* communicator,
                                    const void* send, void* receive,
                                    size_t count, ringpipe_data_type type,
                                    ringpipe_reduce_op op, int64_t timeout_ms,
                                    ringpipe_request** request) {
  return Call(communicator, request, &Communicator::AllReduce,
              &Communicator::AllReduceAsync, send, receive, count,
              static_cast<DataType>(type), static_cast<ReduceOp>(op),
              ToTimeout(timeout_ms));
}

ringpipe_status ringpipe_reduce_scatter(ringpipe_communicator* communicator,
                                        const void* send, void* receive,
                                        size_t count, ringpipe_data_type type,
                                        ringpipe_reduce_op op,
                                        int64_t timeout_ms,
                                        ringpipe_request** request) {
  return Call(communicator, request, &Communicator::ReduceScatter,
              &Communicator::ReduceScatterAsync, send, receive, count,
              static_cast<DataType>(type), static_cast<ReduceOp>(op),
              ToTimeout(timeout_ms));
}

ringpipe_status ringpipe_all_gather(ringpipe_communicator* communicator,
                                    const void* send, void* receive,
                                    size_t count, ringpipe_data_type type,
                                    int64_t timeout_ms,
                                    ringpipe_request** request) {
  return Call(communicator, request, &Communicator::AllGather,
              &Communicator::AllGatherAsync, send, receive, count,
              static_cast<DataType>(type), ToTimeout(timeout_ms));
}

ringpipe_status ringpipe_broadcast(ringpipe_communicator* communicator,
                                   const void* send, void* receive,
                                   size_t count, ringpipe_data_type type,
                                   int root, int64_t timeout_ms,
                                   ringpipe_request** request) {
  return Call(communicator, request, &Communicator::Broadcast,
              &Communicator::BroadcastAsync, send, receive, count,
              static_cast<DataType>(type), root, ToTimeout(timeout_ms));
}

ringpipe_status ringpipe_barrier(ringpipe_communicator* communicator,
                                 int64_t timeout_ms,
                                 ringpipe_request** request) {
  return Call(communicator, request, &Communicator::Barrier,
              &Communicator::BarrierAsync, ToTimeout(timeout_ms));
}

ringpipe_status ringpipe_wait(ringpipe_request* request, int64_t timeout_ms) {
  return Guarded([&] {
    return request == nullptr
               ? NullArgument("request")
               : ToC(request->request->Wait(std::chrono::milliseconds(
                     timeout_ms == RINGPIPE_DEFAULT_TIMEOUT ? -1
                                                            : timeout_ms)));
  });
}

void ringpipe_request_free(ringpipe_request* request) { delete request; }

void ringpipe_abort(ringpipe_communicator* communicator, const char* reason) {
  if (communicator != nullptr) {
    communicator->communicator->Abort(reason != nullptr ? reason : "");
  }
}

}  // extern "C"
