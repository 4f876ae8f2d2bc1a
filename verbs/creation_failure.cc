#include "verbs/creation_failure.h"

#include <cerrno>

#include "verbs/memlock.h"

namespace ringpipe::verbs {
namespace {

// "at most 128 completion queues (max_cq) of 4096 entries (max_cqe)".
std::string Limits(LimitedObject object, const ibv_device_attr& attr) {
  const auto most = [](int number, const char* what) {
    return std::to_string(number) + what;
  };
  switch (object) {
    case LimitedObject::kProtectionDomain:
      return most(attr.max_pd, " protection domains (max_pd)");
    case LimitedObject::kMemoryRegion:
      return most(attr.max_mr, " memory regions (max_mr)");
    case LimitedObject::kCompletionQueue:
      return most(attr.max_cq, " completion queues (max_cq) of ") +
             most(attr.max_cqe, " entries (max_cqe)");
    case LimitedObject::kQueuePair:
      return most(attr.max_qp, " queue pairs (max_qp) of ") +
             most(attr.max_qp_wr, " work requests (max_qp_wr)");
  }
  return "";
}

bool MayBeLimit(LimitedObject object, int error) {
  switch (error) {
    case ENOMEM:
    case ENOSPC:
    case EAGAIN:
    case ENFILE:
    case EMFILE:
      return true;
    case EINVAL:  // what a queue was asked for had been checked before
      return object == LimitedObject::kQueuePair ||
             object == LimitedObject::kCompletionQueue;
    default:
      return false;
  }
}

// What makes fewer or smaller ones of it.
const char* WhatToLower(LimitedObject object) {
  switch (object) {
    case LimitedObject::kQueuePair:
    case LimitedObject::kCompletionQueue:
      return "run fewer ranks or communicators on this host, or lower "
             "RINGPIPE_SLOTS or RINGPIPE_DEPTH";
    case LimitedObject::kMemoryRegion:
      return "register fewer buffers, or run fewer ranks or communicators on "
             "this host";
    case LimitedObject::kProtectionDomain:
      return "run fewer ranks or communicators on this host";
  }
  return "";
}

}  // namespace

Status CreationFailed(const Device& device, LimitedObject object,
                      const std::string& call, int error) {
  Status failed = device.CallFailed(call, error);
  ibv_device_attr attr = {};
  if (!MayBeLimit(object, error) ||
      device.library().query_device(device.context(), &attr) != 0) {
    return failed;
  }
  std::string message = failed.message() +
                        "; for all processes together the device has at most " +
                        Limits(object, attr) + ": " + WhatToLower(object);
  if (device.info().pins_memory && error == ENOMEM) {
    message += "; if locked memory is short, " + MemlockAdvice();
  }
  return {StatusCode::kResourceExhausted, message};
}

}  // namespace ringpipe::verbs
