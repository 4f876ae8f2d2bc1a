#include "python/process_group/work.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <stdexcept>

#include "python/process_group/interpreter.h"

namespace ringpipe::process_group {
namespace {

// The variable of ringpipe's own advice does not count here.
constexpr char kHowToWaitLonger[] =
    "; if a rank is only slow, pass a larger timeout to init_process_group or "
    "new_group";

c10::TypePtr TypeOfValue(const at::IValue& value) {
  const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
  return value.isTensorList() ? tensors : c10::ListType::create(tensors);
}

}  // namespace

c10::intrusive_ptr<Work> Work::Start(
    const std::shared_ptr<Communicator>& communicator,
    const std::shared_ptr<CompletionPool>& pool, Description description,
    Operands& operands) {
  ringpipe_communicator* const native = communicator->get();
  const char* const title = description.title;
  ringpipe_call& call = operands.Finish();
  auto work = c10::make_intrusive<Work>(communicator, pool,
                                        std::move(description), operands);
  call.ended = &Ended;
  call.ended_context = work.get();
  pool->Expect();
  // The call's reference, which Complete gives back.
  c10::raw::intrusive_ptr::incref(work.get());
  if (ringpipe_start(native, &call, &work->request_) != RINGPIPE_OK) {
    const std::string message =
        communicator->Describe(title, ringpipe_error_message());
    pool->Forget();
    c10::raw::intrusive_ptr::decref(work.get());
    work->finish(std::make_exception_ptr(std::runtime_error(message)));
    throw std::runtime_error(message);
  }
  return work;
}

Work::Work(std::shared_ptr<Communicator> communicator,
           std::shared_ptr<CompletionPool> pool, Description description,
           Operands& operands)
    : c10d::Work(communicator->rank(), description.type, description.title,
                 description.inputs),
      title_(description.title),
      pool_(std::move(pool)),
      is_nested_(CompletionPool::IsInCallback()),
      outputs_(std::move(description.outputs)),
      value_(description.value.has_value() ? std::move(*description.value)
                                           : at::IValue(outputs_)),
      future_(c10::make_intrusive<c10::ivalue::Future>(TypeOfValue(value_))),
      communicator_(std::move(communicator)),
      memory_(operands.TakeMemory()),
      copies_(operands.TakeCopies()) {}

Work::~Work() { ringpipe_request_free(request_); }

// On ringpipe's thread.
void Work::Ended(ringpipe_status status, void* context) {
  auto* const work = static_cast<Work*>(context);
  work->status_ = status;
  if (status != RINGPIPE_OK) {
    try {
      work->message_ = ringpipe_error_message();
    } catch (const std::bad_alloc&) {
      work->message_.clear();
    }
  }
  work->pool_->Add(*work, work->is_nested_);
}

void Work::Complete() noexcept {
  // The call's reference. Where the memory may still be written, it is kept for
  // good.
  const auto self = c10::intrusive_ptr<Work>::reclaim(this);
  if (IsHeld()) {
    c10::raw::intrusive_ptr::incref(this);
  }
  Finish(status_, message_);
  try {
    if (error_ != nullptr) {
      future_->setError(error_);
    } else {
      future_->markCompleted(value_);
    }
  } catch (const std::exception& error) {
    TORCH_WARN(title_, ": what was to run at its end failed: ", error.what());
  }
}

void Work::Finish(ringpipe_status status, const std::string& message) {
  // Who finishes it may need that: the last reference to a tensor may be
  // Python's.
  const WithoutGil without_gil;
  std::call_once(finished_once_, [&] {
    std::shared_ptr<Communicator> communicator;
    {
      const std::lock_guard<std::mutex> lock(communicator_mutex_);
      communicator = std::move(communicator_);
    }
    try {
      if (status != RINGPIPE_OK) {
        throw std::runtime_error(
            communicator->Describe(title_, message) +
            (status == RINGPIPE_TIMEOUT ? kHowToWaitLonger : ""));
      }
      // Without autograd, and also into tensors of this mode.
      const c10::InferenceMode inference;
      for (const auto& [to, from] : copies_) {
        to.copy_(from);
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    if (status != RINGPIPE_MEMORY_HELD) {
      memory_.clear();
      copies_.clear();
    }
    finish(error_);
    is_finished_ = true;
  });
}

std::shared_ptr<Communicator> Work::Alive() const {
  const std::lock_guard<std::mutex> lock(communicator_mutex_);
  if (communicator_ != nullptr && communicator_->IsChild()) {
    throw std::runtime_error(
        std::string(title_) +
        ": the call is of the process that made it, and this is a child of it");
  }
  return communicator_;
}

bool Work::isCompleted() {
  if (const auto alive = Alive(); alive != nullptr) {
    int has_ended = 0;
    const ringpipe_status status = ringpipe_test(request_, &has_ended);
    if (has_ended == 0) {
      return false;
    }
    Finish(status, status == RINGPIPE_OK ? "" : ringpipe_error_message());
  }
  return is_finished_;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  const bool is_in_backward =
      torch::autograd::get_current_graph_task_nodes_in_graph() != nullptr;
  if (is_in_backward && HasGil()) {
    const WithoutGil without_gil;
    future_->wait();
  }
  return future_;
}

bool Work::isSuccess() const { return is_finished_ && error_ == nullptr; }

std::exception_ptr Work::exception() const {
  return is_finished_ ? error_ : nullptr;
}

bool Work::wait(std::chrono::milliseconds timeout) {
  if (const auto alive = Alive(); alive != nullptr) {
    const MayRaise may_raise;
    const ringpipe_status status =
        ringpipe_wait(request_, timeout == kNoTimeout ? RINGPIPE_NO_TIMEOUT
                                                      : timeout.count());
    const std::string message =
        status == RINGPIPE_OK ? "" : ringpipe_error_message();
    may_raise.Throw();
    // A wait may end, or be refused, before the call has ended.
    int has_ended = status == RINGPIPE_OK ? 1 : 0;
    if (has_ended == 0) {
      static_cast<void>(ringpipe_test(request_, &has_ended));
    }
    if (has_ended == 0) {
      throw std::runtime_error(alive->Describe(title_, message));
    }
    Finish(status, message);
  } else {
    Finish(RINGPIPE_OK, "");  // another thread does it, or has
  }
  if (error_ != nullptr) {
    std::rethrow_exception(error_);
  }
  return true;
}

}  // namespace ringpipe::process_group
