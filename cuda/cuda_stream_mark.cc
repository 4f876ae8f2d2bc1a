#include "cuda/cuda_stream_mark.h"

#include <string>

#include "cuda/cuda_error.h"

namespace ringpipe {
namespace {

Status Captured() {
  return {
      StatusCode::kInvalidArgument,
      "a graph is being captured from the call's stream (cuStreamBeginCapture"
      "), and a call cannot be part of a graph; make it before or after"};
}

// What a caller can do about it is another advice than for our own streams.
Status OfStream(const CudaDriver& driver, int device, CudaDriver::Error error) {
  switch (error) {
    case CudaDriver::kSuccess:
      return Status::Ok();
    // What the legacy default stream says while another one, with which it is
    // ordered, is captured.
    case CudaDriver::kStreamCaptureImplicit:
      return Captured();
    case CudaDriver::kInvalidValue:
    case CudaDriver::kInvalidHandle:
      return {StatusCode::kInvalidArgument,
              "the call's stream is none of the primary context of cuda:" +
                  std::to_string(device) +
                  ", the device of this communicator; give one that was made "
                  "there and lives"};
    default:
      return CudaStatus(driver, "marking the call's stream", error);
  }
}

}  // namespace

CudaStreamMark::~CudaStreamMark() {
  if (event_ != nullptr) {
    const ScopedContext current(context_);
    static_cast<void>(driver_.event_destroy(event_));
  }
}

Status CudaStreamMark::Record(int device, CudaDriver::Stream stream) {
  RINGPIPE_RETURN_IF_ERROR(context_.Create(device));
  const ScopedContext current(context_);
  RINGPIPE_RETURN_IF_ERROR(
      CudaStatus(driver_, "making the context of the call's stream current",
                 current.error()));
  int capturing = 0;
  RINGPIPE_RETURN_IF_ERROR(OfStream(
      driver_, device, driver_.stream_is_capturing(stream, &capturing)));
  if (capturing != 0) {
    return Captured();
  }
  RINGPIPE_RETURN_IF_ERROR(CudaStatus(
      driver_, "making an event for the call's stream",
      driver_.event_create(&event_, CudaDriver::kEventDisableTiming)));
  return OfStream(driver_, device, driver_.event_record(event_, stream));
}

Result<bool> CudaStreamMark::Passed() {
  const ScopedContext current(context_);
  CudaDriver::Error error = current.error();
  if (error == CudaDriver::kSuccess) {
    error = driver_.event_query(event_);
  }
  if (error == CudaDriver::kSuccess || error == CudaDriver::kNotReady) {
    return error == CudaDriver::kSuccess;
  }
  // Whatever the driver says: on this rank the call has been made.
  return Status(StatusCode::kDeviceError,
                CudaStatus(driver_,
                           "what the call's stream was given before the call "
                           "has failed",
                           error)
                    .message());
}

}  // namespace ringpipe
