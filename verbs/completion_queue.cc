#include "verbs/completion_queue.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>

#include "verbs/creation_failure.h"

namespace ringpipe::verbs {
namespace {

Status CheckEntries(const Device& device, int entries) {
  if (entries >= 1 && entries <= device.info().max_cqe) {
    return Status::Ok();
  }
  return {StatusCode::kResourceExhausted,
          device.info().name + ": a completion queue of " +
              std::to_string(entries) +
              " entries, of which the device has 1 "
              "to " +
              std::to_string(device.info().max_cqe) +
              ": lower RINGPIPE_SLOTS or RINGPIPE_DEPTH"};
}

}  // namespace

Result<std::shared_ptr<CompletionQueue>> CompletionQueue::Create(
    std::shared_ptr<Device> device, int entries) {
  RINGPIPE_RETURN_IF_ERROR(CheckEntries(*device, entries));
  // From here on the destructor gives back.
  std::shared_ptr<CompletionQueue> queue(
      new CompletionQueue(std::move(device)));
  RINGPIPE_RETURN_IF_ERROR(queue->Open(entries));
  return queue;
}

Status CompletionQueue::Open(int entries) {
  const Library& library = device_->library();
  errno = 0;
  channel_ = library.create_comp_channel(device_->context());
  if (channel_ == nullptr) {
    return device_->CallFailed("ibv_create_comp_channel", errno);
  }
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return device_->CallFailed("O_NONBLOCK on the completion channel", errno);
  }
  errno = 0;
  cq_ = library.create_cq(device_->context(), entries, nullptr, channel_, 0);
  if (cq_ == nullptr) {
    return CreationFailed(
        *device_, LimitedObject::kCompletionQueue,
        "ibv_create_cq of " + std::to_string(entries) + " entries", errno);
  }
  return Status::Ok();
}

CompletionQueue::~CompletionQueue() {
  const Library& library = device_->library();
  // ibv_destroy_cq waits until every event that was taken is acknowledged:
  // ConsumeEvents leaves none open.
  if (cq_ != nullptr) {
    library.destroy_cq(cq_);
  }
  if (channel_ != nullptr) {
    library.destroy_comp_channel(channel_);
  }
}

Status CompletionQueue::Arm() {
  const int error = ibv_req_notify_cq(cq_, 0);
  return error == 0 ? Status::Ok()
                    : device_->CallFailed("ibv_req_notify_cq", error);
}

void CompletionQueue::ConsumeEvents() {
  const Library& library = device_->library();
  unsigned int taken = 0;
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  // Until EAGAIN. Each event needs an Arm of its own, so there are few. EINTR
  // ends the loop as well: what is left keeps fd() readable.
  while (library.get_cq_event(channel_, &cq, &cq_context) == 0) {
    ++taken;
  }
  if (taken > 0) {
    // All at once, as each acknowledgement takes a lock.
    library.ack_cq_events(cq_, taken);
  }
}

CompletionMeaning MeaningOfCompletion(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return {"IBV_WC_SUCCESS", "no error", ""};
    case IBV_WC_LOC_LEN_ERR:
      return {"IBV_WC_LOC_LEN_ERR",
              "a message is longer than the receive that it met, or than the "
              "port allows",
              "is RINGPIPE_SUBCHUNK_BYTES the same on all ranks?"};
    case IBV_WC_LOC_QP_OP_ERR:
      return {"IBV_WC_LOC_QP_OP_ERR",
              "the device cannot carry out this work request, or its port "
              "has gone down",
              "look at the port, and if it is up report this with the "
              "device's model and firmware"};
    case IBV_WC_LOC_EEC_OP_ERR:
      return {"IBV_WC_LOC_EEC_OP_ERR",
              "the work request does not suit this end-to-end context",
              "report this with the device's model and firmware"};
    case IBV_WC_LOC_PROT_ERR:
      return {"IBV_WC_LOC_PROT_ERR",
              "memory of a work request is not registered, or not for this",
              "was registered memory freed, or a buffer used after its "
              "deregistration?"};
    case IBV_WC_WR_FLUSH_ERR:
      return {"IBV_WC_WR_FLUSH_ERR",
              "the queue pair had failed before; an earlier completion says "
              "why",
              ""};
    case IBV_WC_MW_BIND_ERR:
      return {"IBV_WC_MW_BIND_ERR", "a memory window could not be bound",
              "report this with the device's model and firmware"};
    case IBV_WC_BAD_RESP_ERR:
      return {"IBV_WC_BAD_RESP_ERR", "the peer's response makes no sense",
              "update the firmware of both devices"};
    case IBV_WC_LOC_ACCESS_ERR:
      return {"IBV_WC_LOC_ACCESS_ERR",
              "the peer wrote with immediate where it may not",
              "do all ranks run the same version?"};
    case IBV_WC_REM_INV_REQ_ERR:
      return {"IBV_WC_REM_INV_REQ_ERR",
              "the peer's device refuses the request: too long for the "
              "receive, or an operation that is not enabled",
              "is RINGPIPE_SUBCHUNK_BYTES the same on all ranks?"};
    case IBV_WC_REM_ACCESS_ERR:
      return {"IBV_WC_REM_ACCESS_ERR",
              "the peer's memory is not registered for this access",
              "did the peer free or deregister its buffer?"};
    case IBV_WC_REM_OP_ERR:
      return {"IBV_WC_REM_OP_ERR", "the peer could not complete the request",
              "the peer's log says why"};
    case IBV_WC_RETRY_EXC_ERR:
      return {"IBV_WC_RETRY_EXC_ERR",
              "the peer does not answer: its process is gone or the network "
              "is broken",
              "does its process run, and can the two hosts ping each other?"};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {"IBV_WC_RNR_RETRY_EXC_ERR", "the peer has no receive posted",
              "is its process stopped or swapped out?"};
    case IBV_WC_LOC_RDD_VIOL_ERR:
      return {"IBV_WC_LOC_RDD_VIOL_ERR", "reliable datagram domains differ",
              "report this with the device's model and firmware"};
    case IBV_WC_REM_INV_RD_REQ_ERR:
      return {"IBV_WC_REM_INV_RD_REQ_ERR",
              "the peer refuses a reliable datagram",
              "report this with the device's model and firmware"};
    case IBV_WC_REM_ABORT_ERR:
      return {"IBV_WC_REM_ABORT_ERR", "the peer aborted the operation",
              "the peer's log says why"};
    case IBV_WC_INV_EECN_ERR:
      return {"IBV_WC_INV_EECN_ERR", "no such end-to-end context",
              "report this with the device's model and firmware"};
    case IBV_WC_INV_EEC_STATE_ERR:
      return {"IBV_WC_INV_EEC_STATE_ERR",
              "the end-to-end context is in the wrong state",
              "report this with the device's model and firmware"};
    case IBV_WC_FATAL_ERR:
      return {"IBV_WC_FATAL_ERR", "the device failed",
              "see dmesg; was it removed or reset?"};
    case IBV_WC_RESP_TIMEOUT_ERR:
      return {"IBV_WC_RESP_TIMEOUT_ERR", "the peer's response is late",
              "does its process run, and can the two hosts ping each other?"};
    case IBV_WC_GENERAL_ERR:
      return {"IBV_WC_GENERAL_ERR", "an error of the device's own",
              "see dmesg; the vendor error tells its maker more"};
    case IBV_WC_TM_ERR:
      return {"IBV_WC_TM_ERR", "tag matching failed",
              "report this with the device's model and firmware"};
    case IBV_WC_TM_RNDV_INCOMPLETE:
      return {"IBV_WC_TM_RNDV_INCOMPLETE",
              "a tag-matching rendezvous was left to software",
              "report this with the device's model and firmware"};
  }
  return {nullptr, "unknown", ""};
}

std::string NameCompletion(ibv_wc_status status, std::uint32_t vendor_err) {
  const char* const name = MeaningOfCompletion(status).name;
  std::string text =
      name != nullptr
          ? name
          : "completion status " + std::to_string(static_cast<int>(status));
  if (vendor_err != 0) {
    char number[16] = "";
    std::snprintf(number, sizeof(number), "0x%x", vendor_err);
    text += std::string(", vendor error ") + number;
  }
  return text;
}

std::string DescribeCompletion(ibv_wc_status status, std::uint32_t vendor_err) {
  const CompletionMeaning meaning = MeaningOfCompletion(status);
  std::string text = NameCompletion(status, vendor_err) + " (" + meaning.cause;
  if (*meaning.advice != '\0') {
    text += std::string(": ") + meaning.advice;
  }
  return text + ")";
}

}  // namespace ringpipe::verbs
