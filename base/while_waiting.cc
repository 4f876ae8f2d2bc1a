#include "base/while_waiting.h"

namespace ringpipe {
namespace {

thread_local BlockingCall* current_call = nullptr;
thread_local const char* running_function = nullptr;

}  // namespace

BlockingCall::BlockingCall(const WhileWaiting& hook)
    : hook_(hook), outer_(hook.function ? current_call : nullptr) {
  if (hook_.function) {
    current_call = this;
  }
}

BlockingCall::~BlockingCall() {
  if (hook_.function) {
    current_call = outer_;
  }
}

BlockingCall* BlockingCall::Current() { return current_call; }

Clock::time_point BlockingCall::due() {
  if (due_ == Clock::time_point()) {
    due_ = Clock::now() + hook_.interval;
  }
  return due_;
}

void BlockingCall::Hurry() {
  if (!ended_) {
    due_ = Clock::now();
  }
}

bool BlockingCall::Ends() {
  if (ended_ || Clock::now() < due()) {
    return ended_;
  }
  {
    const UsersFunction running("while_waiting");
    ended_ = hook_.function();
  }
  due_ = ended_ ? Clock::time_point::max() : Clock::now() + hook_.interval;
  return ended_;
}

int BlockingCall::PollTimeoutMs(int timeout_ms) {
  if (current_call == nullptr ||
      current_call->due() == Clock::time_point::max()) {
    return timeout_ms;
  }
  const Deadline due = Deadline::At(current_call->due());
  constexpr int kLong = 1'000'000;
  return due.PollTimeoutMs(timeout_ms < 0 ? kLong : timeout_ms);
}

bool BlockingCall::EndsAfterPoll(bool interrupted) {
  if (current_call == nullptr) {
    return false;
  }
  if (interrupted) {
    current_call->Hurry();
  }
  return current_call->Ends();
}

Status EndedByCaller(int rank, const std::string& what) {
  return {StatusCode::kAborted, "rank " + std::to_string(rank) +
                                    "'s function while_waiting has ended " +
                                    what};
}

UsersFunction::UsersFunction(const char* name) : outer_(running_function) {
  running_function = name;
}

UsersFunction::~UsersFunction() { running_function = outer_; }

Status UsersFunction::MayBlock(const char* call) {
  if (running_function == nullptr) {
    return Status::Ok();
  }
  return {StatusCode::kInvalidArgument,
          std::string(call) + " was called in the function " +
              running_function +
              ": calls that block are refused there, as they could wait for "
              "the call that waits for the function"};
}

}  // namespace ringpipe
