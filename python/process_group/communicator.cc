#include "python/process_group/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>

#include "python/process_group/interpreter.h"

namespace ringpipe::process_group {
namespace {

using std::chrono::milliseconds;

// torch's store as one of ringpipe's. ringpipe calls the functions on the
// thread that creates the communicator.
class StoreOfTorch {
 public:
  explicit StoreOfTorch(c10::intrusive_ptr<c10d::Store> store)
      : store_(std::move(store)) {}

  ringpipe_store functions() {
    ringpipe_store store = {};
    store.struct_size = sizeof store;
    store.put = &Put;
    store.get = &Get;
    store.context = this;
    return store;
  }
  // What the store has thrown; the creation then fails.
  std::exception_ptr error() const { return error_; }

 private:
  static constexpr int kFailed = -1;

  template <typename Function>
  int Guarded(Function function) {
    try {
      return function();
    } catch (...) {
      error_ = std::current_exception();
      return kFailed;
    }
  }

  static int Put(void* context, const char* key, const void* value,
                 std::size_t bytes) {
    auto* const self = static_cast<StoreOfTorch*>(context);
    return self->Guarded([&] {
      const auto* const begin = static_cast<const std::uint8_t*>(value);
      self->store_->set(key, {begin, begin + bytes});
      return 0;
    });
  }

  // Asks again and again: a wait of torch's that expires cannot be told from
  // one that fails.
  static int Get(void* context, const char* key, std::int64_t timeout_ms,
                 void* value, std::size_t capacity, std::size_t* bytes) {
    constexpr milliseconds kBetween(5);
    auto* const self = static_cast<StoreOfTorch*>(context);
    const auto deadline =
        std::chrono::steady_clock::now() + milliseconds(timeout_ms);
    return self->Guarded([&] {
      while (!self->store_->check({key})) {
        if (std::chrono::steady_clock::now() + kBetween > deadline) {
          return RINGPIPE_STORE_NOT_YET;
        }
        std::this_thread::sleep_for(kBetween);
      }
      const std::vector<std::uint8_t> found = self->store_->get(key);
      TORCH_CHECK(found.size() <= capacity, "the store has ", found.size(),
                  " bytes for ", key, ", which ringpipe cannot have put there");
      std::memcpy(value, found.data(), found.size());
      *bytes = found.size();
      return 0;
    });
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  std::exception_ptr error_;
};

}  // namespace

std::shared_ptr<Communicator> Communicator::Create(const Options& options) {
  StoreOfTorch adapter(options.store);
  const ringpipe_store store = adapter.functions();
  ringpipe_options settings = {};
  settings.struct_size = sizeof settings;
  settings.explicit_rank = 1;
  settings.rank = options.rank;
  settings.size = options.size;
  settings.job_id = "torch";  // the store is of this group alone
  settings.while_waiting = &RunSignalHandlers;
  settings.store = &store;
  settings.timeout_ms = options.timeout.count();
  settings.join_timeout_ms = options.timeout.count();
  ringpipe_communicator* created = nullptr;
  const MayRaise may_raise;
  if (ringpipe_create(&settings, &created) != RINGPIPE_OK) {
    const std::string message = ringpipe_error_message();
    may_raise.Throw();
    if (adapter.error() != nullptr) {
      std::rethrow_exception(adapter.error());
    }
    throw std::runtime_error("ringpipe: " + message);
  }
  // Whatever cannot be made of it.
  std::unique_ptr<ringpipe_communicator, decltype(&ringpipe_destroy)> owned(
      created, &ringpipe_destroy);
  std::shared_ptr<Communicator> communicator(
      new Communicator(owned.get(), options));
  static_cast<void>(owned.release());
  may_raise.Throw();
  return communicator;
}

Communicator::Communicator(ringpipe_communicator* communicator,
                           const Options& options)
    : communicator_(communicator),
      rank_(options.rank),
      size_(options.size),
      global_ranks_(options.global_ranks),
      process_(getpid()) {}

Communicator::~Communicator() {
  if (!IsChild()) {
    const WithoutGil without_gil;
    ringpipe_destroy(communicator_);
  }
}

bool Communicator::IsChild() const { return getpid() != process_; }

std::vector<std::int64_t> Communicator::LostRanks() const {
  std::vector<std::int32_t> lost(static_cast<std::size_t>(size_));
  std::size_t count = 0;
  if (ringpipe_lost_ranks(communicator_, lost.data(), lost.size(), &count) !=
      RINGPIPE_OK) {
    throw std::runtime_error(std::string("ringpipe: ") +
                             ringpipe_error_message());
  }
  lost.resize(std::min(count, lost.size()));
  std::vector<std::int64_t> global(lost.begin(), lost.end());
  if (!global_ranks_.empty()) {
    for (std::int64_t& rank : global) {
      rank = global_ranks_.at(static_cast<std::size_t>(rank));
    }
  }
  return global;
}

std::string Communicator::Describe(const char* title,
                                   const std::string& message) const {
  std::string text = std::string(title) + ": " + message;
  if (global_ranks_.empty()) {
    return text;
  }
  text += " (ranks are those of the group, which has";
  for (std::size_t rank = 0; rank < global_ranks_.size(); ++rank) {
    text +=
        (rank == 0 ? " ranks " : ", ") + std::to_string(global_ranks_[rank]);
  }
  return text + " of the job)";
}

}  // namespace ringpipe::process_group
