#include "cuda/fake_driver/captures.h"

#include <algorithm>
#include <utility>

namespace fake_cuda {
namespace {

thread_local int thread_mode = kCaptureGlobal;

}  // namespace

int Captures::ExchangeMode(int mode) {
  return std::exchange(thread_mode, mode);
}

Result Captures::CheckUnsafe() {
  const std::lock_guard lock(mutex_);
  Result result = kSuccess;
  for (Capture& capture : captures_) {
    const bool own = capture.thread == std::this_thread::get_id();
    const bool forbids =
        own ? capture.mode != kCaptureRelaxed && thread_mode != kCaptureRelaxed
            : capture.mode == kCaptureGlobal && thread_mode == kCaptureGlobal;
    if (forbids) {
      capture.valid = false;
      result = kCaptureUnsupported;
    }
  }
  return result;
}

Result Captures::Begin(Stream* stream, int mode) {
  const std::lock_guard lock(mutex_);
  if (OfLocked(stream) != nullptr) {
    return kCaptureUnmatched;
  }
  captures_.push_back({mode, std::this_thread::get_id(), stream, true, {}});
  return kSuccess;
}

Result Captures::End(Stream* stream, bool* was_valid) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(
      captures_.begin(), captures_.end(),
      [&](const Capture& capture) { return capture.origin == stream; });
  if (found == captures_.end()) {
    return kCaptureUnmatched;
  }
  if (found->mode != kCaptureRelaxed &&
      found->thread != std::this_thread::get_id()) {
    return kCaptureWrongThread;
  }
  *was_valid = found->valid;
  const bool all_joined =
      std::all_of(found->joined.begin(), found->joined.end(),
                  [](const auto& one) { return one.second; });
  const Result result = !found->valid ? kCaptureInvalidated
                        : !all_joined ? kCaptureUnjoined
                                      : kSuccess;
  captures_.erase(found);
  return result;
}

Captures::Capture* Captures::OfLocked(const Stream* stream) {
  for (Capture& capture : captures_) {
    if (capture.origin == stream ||
        capture.joined.count(const_cast<Stream*>(stream)) > 0) {
      return &capture;
    }
  }
  return nullptr;
}

Captures::Capture* Captures::Of(const Stream* stream) {
  const std::lock_guard lock(mutex_);
  return OfLocked(stream);
}

Result Captures::CheckOperation(Stream* stream, bool* captured) {
  const std::lock_guard lock(mutex_);
  Capture* const capture = OfLocked(stream);
  *captured = capture != nullptr;
  if (capture == nullptr) {
    return kSuccess;
  }
  if (const auto found = capture->joined.find(stream);
      found != capture->joined.end()) {
    found->second = false;
  }
  return capture->valid ? kSuccess : kCaptureInvalidated;
}

void Captures::Invalidate(Capture* capture) {
  const std::lock_guard lock(mutex_);
  capture->valid = false;
}

Result Captures::Wait(Stream* stream, Stream* from, Capture* capture) {
  const std::lock_guard lock(mutex_);
  if (!capture->valid) {
    return kCaptureInvalidated;
  }
  if (Capture* const own = OfLocked(stream); own != nullptr && own != capture) {
    own->valid = capture->valid = false;
    return kCaptureMerge;
  }
  if (stream != capture->origin) {
    capture->joined[stream] = false;
  }
  if (const auto found = capture->joined.find(from);
      stream == capture->origin && found != capture->joined.end()) {
    found->second = true;
  }
  return kSuccess;
}

bool Captures::Alive(const Capture* capture) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(captures_.begin(), captures_.end(),
                     [&](const Capture& one) { return &one == capture; });
}

}  // namespace fake_cuda
