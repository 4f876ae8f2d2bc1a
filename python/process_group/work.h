#ifndef RINGPIPE_PYTHON_PROCESS_GROUP_WORK_H_
#define RINGPIPE_PYTHON_PROCESS_GROUP_WORK_H_

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "engine/ringpipe.h"
#include "python/process_group/communicator.h"
#include "python/process_group/completion_pool.h"
#include "python/process_group/tensors.h"

namespace ringpipe::process_group {

// One call in flight, as torch sees it. Three threads meet here:
//
//   ringpipe's    says that the call has ended (Ended), and does no more than
//                 give the work to the pool
//   the pool's    finishes the work, and completes its future, which runs what
//                 torch and Python have attached
//   the user's    waits for ringpipe's request, and finishes the work itself,
//                 if the pool has not begun to: no callback is waited for
//
// Its memory lives until the call has ended, whoever drops the work.
class Work final : public c10d::Work, private CompletionPool::Task {
 public:
  struct Description {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = "";  // in profiles and messages; lives for ever
    // For the profiler.
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    // What the future has; by default, the outputs.
    c10::optional<at::IValue> value;
  };

  // Starts the call. Throws what says why it cannot be.
  static c10::intrusive_ptr<Work> Start(
      const std::shared_ptr<Communicator>& communicator,
      const std::shared_ptr<CompletionPool>& pool, Description description,
      Operands& operands);
  ~Work() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  // Throws the call's error; std::runtime_error if it has not ended in that
  // time (0: no limit but its own), and runs on; and what a signal handler
  // raises.
  bool wait(std::chrono::milliseconds timeout) override;
  // Where Python asks for it in a backward pass, it has completed. Python does
  // so in DDP's hooks, whose callbacks may make calls (PowerSGD's). All ranks
  // have to make these in the same order, beside those of other buckets: so
  // they are made before the hook returns. The callbacks of a future that has
  // not completed would make them at any time.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  // Only for make_intrusive.
  Work(std::shared_ptr<Communicator> communicator,
       std::shared_ptr<CompletionPool> pool, Description description,
       Operands& operands);

 private:
  // ringpipe_call::ended.
  static void Ended(ringpipe_status status, void* work);
  void Complete() noexcept override;
  // The call has ended so: copies results to where they belong, lets memory go,
  // tells the profiler. Once, by whoever comes first; the others wait for that.
  void Finish(ringpipe_status status, const std::string& message);
  // The communicator, whose request can be waited for; nullptr once Finish has
  // begun.
  std::shared_ptr<Communicator> Alive() const;
  bool IsHeld() const { return status_ == RINGPIPE_MEMORY_HELD; }

  const char* const title_;
  const std::shared_ptr<CompletionPool> pool_;
  const bool is_nested_;
  const std::vector<at::Tensor> outputs_;
  const at::IValue value_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  ringpipe_request* request_ = nullptr;
  // Ended's, for the pool.
  ringpipe_status status_ = RINGPIPE_OK;
  std::string message_;

  std::once_flag finished_once_;
  std::atomic<bool> is_finished_{false};
  // Written by Finish.
  std::exception_ptr error_;
  std::shared_ptr<Communicator> communicator_;  // until then
  mutable std::mutex communicator_mutex_;
  std::vector<at::Tensor> memory_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

}  // namespace ringpipe::process_group

#endif  // RINGPIPE_PYTHON_PROCESS_GROUP_WORK_H_
