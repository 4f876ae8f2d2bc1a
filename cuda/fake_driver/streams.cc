#include "cuda/fake_driver/streams.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace fake_cuda {

Stream* Streams::Create(Context* context, bool blocking, int priority) {
  const std::lock_guard lock(mutex_);
  return CreateLocked(context, blocking, priority);
}

Stream* Streams::CreateLocked(Context* context, bool blocking, int priority) {
  const int queues =
      devices_[static_cast<std::size_t>(context->device)]->queues();
  auto* const stream =
      new Stream{context, blocking, priority, next_queue_++ % queues, nullptr};
  streams_.insert(stream);
  return stream;
}

// "In case the device is still doing work in the stream when cuStreamDestroy()
// is called, the function will return immediately and the resources will be
// released automatically once the device has completed all work" (cuda.h).
bool Streams::Destroy(Stream* stream) {
  const std::lock_guard lock(mutex_);
  if (streams_.erase(stream) == 0) {
    return false;
  }
  delete stream;
  return true;
}

Stream* Streams::Find(Stream* handle, Context* context) {
  constexpr std::uintptr_t kLegacy = 1;
  constexpr std::uintptr_t kPerThread = 2;
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  const std::lock_guard lock(mutex_);
  if (number <= kLegacy) {
    if (context->legacy == nullptr) {
      context->legacy = new Stream{context, true, 0, 0, nullptr, true};
      streams_.insert(context->legacy);
    }
    return context->legacy;
  }
  if (number == kPerThread) {
    Stream*& own = context->of_threads[std::this_thread::get_id()];
    if (own == nullptr) {
      own = CreateLocked(context, true, 0);
      own->is_default = true;
    }
    return own;
  }
  return streams_.count(handle) == 0 ? nullptr : handle;
}

CompletionPointer Streams::PutLocked(Stream& stream, Queues::Work work,
                                     std::vector<CompletionPointer> after) {
  if (stream.last != nullptr) {
    after.push_back(stream.last);
  }
  Stream* const legacy = stream.context->legacy;
  if (&stream == legacy) {
    for (const Stream* const other : streams_) {
      if (other->context == stream.context && other->blocking &&
          other->last != nullptr) {
        after.push_back(other->last);
      }
    }
  } else if (stream.blocking && legacy != nullptr && legacy->last != nullptr) {
    after.push_back(legacy->last);
  }
  stream.last =
      QueuesOf(stream).Put(stream.queue, std::move(work), std::move(after));
  return stream.last;
}

// The legacy stream would wait for streams that capture, which is "an implicit
// dependency on uncaptured work" (CUDA_ERROR_STREAM_CAPTURE_IMPLICIT).
Captures::Capture* Streams::CaptureBesideLocked(const Stream& stream) {
  if (&stream != stream.context->legacy) {
    return nullptr;
  }
  for (const Stream* const other : streams_) {
    Captures::Capture* const capture = captures_.Of(other);
    if (other->context == stream.context && other->blocking &&
        capture != nullptr) {
      return capture;
    }
  }
  return nullptr;
}

Captures::Capture* Streams::CaptureBeside(const Stream* stream) {
  const std::lock_guard lock(mutex_);
  return CaptureBesideLocked(*stream);
}

Result Streams::CheckLegacy(const Stream& stream) {
  Captures::Capture* const capture = CaptureBesideLocked(stream);
  if (capture == nullptr) {
    return kSuccess;
  }
  captures_.Invalidate(capture);
  return kCaptureImplicit;
}

Result Streams::Put(Stream* stream, Queues::Work work,
                    CompletionPointer* completion) {
  bool captured = false;
  const Result result = captures_.CheckOperation(stream, &captured);
  if (result != kSuccess || captured) {
    return result;
  }
  const std::lock_guard lock(mutex_);
  if (const Result legacy = CheckLegacy(*stream); legacy != kSuccess) {
    return legacy;
  }
  CompletionPointer put = PutLocked(*stream, std::move(work), {});
  if (completion != nullptr) {
    *completion = std::move(put);
  }
  return kSuccess;
}

Result Streams::Synchronize(Stream* stream) {
  if (Captures::Capture* const capture = captures_.Of(stream)) {
    captures_.Invalidate(capture);
    return kCaptureUnsupported;
  }
  CompletionPointer completion;
  const Result result = Put(
      stream, [](const Queues::Dawdle&) {}, &completion);
  if (result == kSuccess) {
    QueuesOf(*stream).Await(completion);
  }
  return result;
}

Result Streams::Query(Stream* stream) {
  if (Captures::Capture* const capture = captures_.Of(stream)) {
    captures_.Invalidate(capture);
    return kCaptureUnsupported;
  }
  const std::lock_guard lock(mutex_);
  return stream->last == nullptr || stream->last->done.load() ? kSuccess
                                                              : kNotReady;
}

Event* Streams::CreateEvent(Context* context) {
  const std::lock_guard lock(mutex_);
  auto* const event = new Event{context, nullptr};
  events_.insert(event);
  return event;
}

// Like a stream's, at once.
bool Streams::DestroyEvent(Event* event) {
  const std::lock_guard lock(mutex_);
  if (events_.erase(event) == 0) {
    return false;
  }
  delete event;
  return true;
}

bool Streams::IsEvent(Event* event) {
  const std::lock_guard lock(mutex_);
  return events_.count(event) > 0;
}

Result Streams::Record(Event* event, Stream* stream) {
  bool captured = false;
  const Result result = captures_.CheckOperation(stream, &captured);
  if (result != kSuccess) {
    return result;
  }
  const std::lock_guard lock(mutex_);
  if (const Result legacy = CheckLegacy(*stream); legacy != kSuccess) {
    return legacy;
  }
  event->stream = stream;
  event->capture = captured ? captures_.Of(stream) : nullptr;
  event->completion =
      captured ? nullptr : PutLocked(*stream, [](const Queues::Dawdle&) {}, {});
  return kSuccess;
}

Result Streams::WaitFor(Stream* stream, Event* event) {
  Captures::Capture* const own = captures_.Of(stream);
  std::unique_lock lock(mutex_);
  if (event->capture != nullptr && captures_.Alive(event->capture)) {
    return captures_.Wait(stream, event->stream, event->capture);
  }
  if (own != nullptr) {
    captures_.Invalidate(own);
    return kCaptureIsolation;
  }
  if (event->completion != nullptr) {
    PutLocked(*stream, [](const Queues::Dawdle&) {}, {event->completion});
  }
  return kSuccess;
}

Result Streams::CheckEvent(Event* event) {
  if (event->capture != nullptr && captures_.Alive(event->capture)) {
    captures_.Invalidate(event->capture);
    return kCapturedEvent;
  }
  return kSuccess;
}

Result Streams::QueryEvent(Event* event) {
  const std::lock_guard lock(mutex_);
  if (const Result result = CheckEvent(event); result != kSuccess) {
    return result;
  }
  return event->completion == nullptr || event->completion->done.load()
             ? kSuccess
             : kNotReady;
}

Result Streams::SynchronizeEvent(Event* event) {
  CompletionPointer completion;
  {
    const std::lock_guard lock(mutex_);
    if (const Result result = CheckEvent(event); result != kSuccess) {
      return result;
    }
    completion = event->completion;
  }
  if (completion != nullptr) {
    devices_[static_cast<std::size_t>(event->context->device)]->Await(
        completion);
  }
  return kSuccess;
}

void Streams::DestroyAllOf(const Context* context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](Stream* stream) {
    const bool of_it = stream->context == context;
    if (of_it) {
      delete stream;
    }
    return of_it;
  });
  std::erase_if(events_, [&](Event* event) {
    const bool of_it = event->context == context;
    if (of_it) {
      delete event;
    }
    return of_it;
  });
}

int Streams::live_streams() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(
      std::count_if(streams_.begin(), streams_.end(),
                    [](const Stream* one) { return !one->is_default; }));
}

int Streams::live_events() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(events_.size());
}

}  // namespace fake_cuda
