#include "bootstrap/inquiry.h"

#include <chrono>

namespace ringpipe {
namespace {

// A process that runs at all needs a fraction of a millisecond.
constexpr auto kReplyPatience = std::chrono::milliseconds(250);

}  // namespace

Inquiry::Inquiry(boost::asio::io_context* io, int size, Tell tell)
    : size_(size), tell_(std::move(tell)), patience_(*io) {}

bool Inquiry::Begin(int asker) {
  const bool goes_on = !askers_.empty();
  askers_.insert(asker);
  if (goes_on) {
    return false;
  }
  replies_.assign(size_, "");
  missing_ = size_;
  patience_.expires_after(kReplyPatience);
  patience_.async_wait([this](const boost::system::error_code& error) {
    // The next question may have been asked by now.
    if (!error && !askers_.empty() &&
        std::chrono::steady_clock::now() >= patience_.expiry()) {
      End();
    }
  });
  return true;
}

void Inquiry::TakeReply(int rank, const std::string& text) {
  if (askers_.empty() || !replies_[rank].empty()) {
    return;  // late
  }
  replies_[rank] = text;
  if (--missing_ == 0) {
    End();
  }
}

void Inquiry::End() {
  patience_.cancel();
  for (const int asker : std::exchange(askers_, {})) {
    tell_(asker, replies_);
  }
}

}  // namespace ringpipe
