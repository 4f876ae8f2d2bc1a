#include "verbs/async_event.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

namespace ringpipe::verbs {
namespace {

// Events taken by one call: a storm of them must not hold its caller up. What
// is left keeps the descriptor readable.
constexpr int kMostEventsACall = 64;

// What an event is about, and where its number is found.
enum class Subject { kQueuePair, kCompletionQueue, kPort, kDevice, kOther };

struct Meaning {
  const char* name;
  Subject subject;
  bool fatal;         // of a port: where it is this port
  const char* words;  // what it means and what to do
};

Meaning MeaningOf(ibv_event_type type) {
  using S = Subject;
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return {"IBV_EVENT_CQ_ERR", S::kCompletionQueue, true,
              "it overran, or its memory is gone: report this, with the log"};
    case IBV_EVENT_QP_FATAL:
      return {"IBV_EVENT_QP_FATAL", S::kQueuePair, true,
              "the device could not write the completion of an error: see "
              "dmesg, update the firmware"};
    case IBV_EVENT_QP_REQ_ERR:
      return {"IBV_EVENT_QP_REQ_ERR", S::kQueuePair, true,
              "the peer sent an invalid request: do all ranks run the same "
              "version?"};
    case IBV_EVENT_QP_ACCESS_ERR:
      return {"IBV_EVENT_QP_ACCESS_ERR", S::kQueuePair, true,
              "the peer wrote where it may not: do all ranks run the same "
              "version?"};
    case IBV_EVENT_COMM_EST:
      return {"IBV_EVENT_COMM_EST", S::kQueuePair, false,
              "the peer's first packet is here"};
    case IBV_EVENT_SQ_DRAINED:
      return {"IBV_EVENT_SQ_DRAINED", S::kQueuePair, false, "sending stopped"};
    case IBV_EVENT_PATH_MIG:
      return {"IBV_EVENT_PATH_MIG", S::kQueuePair, false,
              "it goes by its alternate path now"};
    case IBV_EVENT_PATH_MIG_ERR:
      return {"IBV_EVENT_PATH_MIG_ERR", S::kQueuePair, false,
              "it could not change to its alternate path"};
    case IBV_EVENT_DEVICE_FATAL:
      return {"IBV_EVENT_DEVICE_FATAL", S::kDevice, true,
              "the device was removed or reset, or it failed: see dmesg, then "
              "start the job again"};
    case IBV_EVENT_PORT_ACTIVE:
      return {"IBV_EVENT_PORT_ACTIVE", S::kPort, false, "the link is up"};
    case IBV_EVENT_PORT_ERR:
      return {"IBV_EVENT_PORT_ERR", S::kPort, true,
              "the link went down: see its cable, its switch port and, on "
              "Ethernet, 'ip link'"};
    case IBV_EVENT_LID_CHANGE:
      return {"IBV_EVENT_LID_CHANGE", S::kPort, false,
              "the subnet manager renumbered a port"};
    case IBV_EVENT_PKEY_CHANGE:
      return {"IBV_EVENT_PKEY_CHANGE", S::kPort, false,
              "the partitions that it belongs to changed"};
    case IBV_EVENT_SM_CHANGE:
      return {"IBV_EVENT_SM_CHANGE", S::kPort, false,
              "another subnet manager took over"};
    case IBV_EVENT_SRQ_ERR:
      return {"IBV_EVENT_SRQ_ERR", S::kOther, true,
              "a shared receive queue failed"};
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return {"IBV_EVENT_SRQ_LIMIT_REACHED", S::kOther, false,
              "a shared receive queue runs low"};
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return {"IBV_EVENT_QP_LAST_WQE_REACHED", S::kQueuePair, false,
              "it takes no more from its shared receive queue"};
    case IBV_EVENT_CLIENT_REREGISTER:
      return {"IBV_EVENT_CLIENT_REREGISTER", S::kPort, false,
              "the subnet manager restarted"};
    case IBV_EVENT_GID_CHANGE:
      return {"IBV_EVENT_GID_CHANGE", S::kPort, false,
              "an address was added or removed"};
    case IBV_EVENT_WQ_FATAL:
      return {"IBV_EVENT_WQ_FATAL", S::kOther, true,
              "a work queue failed: see dmesg"};
  }
  return {"unknown event", S::kOther, false, "newer than this program"};
}

std::string GidText(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
  return text;
}

Status Changed(const DeviceInfo& info, const ibv_async_event& event,
               const std::string& what) {
  return {StatusCode::kDeviceError,
          info.name + " port " + std::to_string(info.port) + ": " +
              MeaningOf(event.event_type).name + ": " + what};
}

// After a LID change: whether this port has still the LID that the peers were
// told.
Status CheckLid(const Library& library, ibv_context* context,
                const DeviceInfo& info, const ibv_async_event& event) {
  ibv_port_attr port = {};
  const int error =
      library.query_port(context, static_cast<std::uint8_t>(info.port),
                         reinterpret_cast<_compat_ibv_port_attr*>(&port));
  if (error != 0) {
    return ErrnoStatus(StatusCode::kDeviceError,
                       info.name + ": ibv_query_port after a LID change",
                       error);
  }
  if (port.lid == info.lid) {
    return Status::Ok();
  }
  return Changed(info, event,
                 "the LID was " + std::to_string(info.lid) + " and is now " +
                     std::to_string(port.lid) +
                     ", so that the peers no longer reach this port: start the "
                     "job again; if it recurs, let the subnet manager keep its "
                     "LIDs (opensm's guid2lid file)");
}

// After a change of the table of GIDs: whether the entry that the queue pairs
// use is what it was.
Status CheckGid(const Library& library, ibv_context* context,
                const DeviceInfo& info, const ibv_async_event& event) {
  ibv_gid now = {};
  const int error = library.query_gid(
      context, static_cast<std::uint8_t>(info.port), info.gid_index, &now);
  if (error == 0 && std::memcmp(now.raw, info.gid.raw, sizeof(now.raw)) == 0) {
    return Status::Ok();
  }
  const bool gone =
      error != 0 || std::all_of(std::begin(now.raw), std::end(now.raw),
                                [](std::uint8_t byte) { return byte == 0; });
  return Changed(
      info, event,
      "the GID at index " + std::to_string(info.gid_index) + " was " +
          GidText(info.gid) + " and is now " + (gone ? "gone" : GidText(now)) +
          ", so that the peers no longer reach this port: " +
          (info.ethernet
               ? "put the IP address of its network interface back ('ip addr'; "
                 "was it a DHCP lease, or NetworkManager?) and "
               : "") +
          "start the job again");
}

// Ok, or why communication cannot go on after `event`.
Status Judge(const Library& library, ibv_context* context,
             const DeviceInfo& info, const ibv_async_event& event) {
  if (info.software && MeaningOf(event.event_type).subject == Subject::kPort) {
    return Status::Ok();  // its connections outlast a link that comes back
  }
  if (IsFatal(event, info.port)) {
    return {StatusCode::kDeviceError,
            info.name + ": " + DescribeAsyncEvent(event)};
  }
  if (event.event_type == IBV_EVENT_LID_CHANGE &&
      event.element.port_num == info.port) {
    return CheckLid(library, context, info, event);
  }
  // On iWARP info.gid is an IP address, and not in the table.
  if (event.event_type == IBV_EVENT_GID_CHANGE &&
      info.transport != Transport::kIwarp &&
      event.element.port_num == info.port) {
    return CheckGid(library, context, info, event);
  }
  return Status::Ok();
}

// Why there are no more events: for now, or for good.
Status CheckEnd(const DeviceInfo& info, int error) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) {
    return Status::Ok();
  }
  return ErrnoStatus(StatusCode::kDeviceError,
                     info.name +
                         ": ibv_get_async_event (was the device removed? see "
                         "dmesg)",
                     error != 0 ? error : EIO);
}

}  // namespace

bool IsFatal(const ibv_async_event& event, int port) {
  const Meaning meaning = MeaningOf(event.event_type);
  return meaning.fatal &&
         (meaning.subject != Subject::kPort || event.element.port_num == port);
}

std::string DescribeAsyncEvent(const ibv_async_event& event) {
  const Meaning meaning = MeaningOf(event.event_type);
  std::string text = meaning.name;
  switch (meaning.subject) {
    case Subject::kQueuePair:
      text += " on queue pair " + std::to_string(event.element.qp->qp_num);
      break;
    case Subject::kCompletionQueue:
      text += " on a completion queue of " +
              std::to_string(event.element.cq->cqe) + " entries";
      break;
    case Subject::kPort:
      text += " on port " + std::to_string(event.element.port_num);
      break;
    case Subject::kDevice:
      break;
    case Subject::kOther:
      text += " number " + std::to_string(event.event_type);
      break;
  }
  return text + " (" + meaning.words + ")";
}

Status TakeAsyncEvents(const Library& library, ibv_context* context,
                       const DeviceInfo& info,
                       std::vector<std::string>* notices,
                       std::uint32_t* qp_number) {
  if (context->async_fd < 0) {
    return Status::Ok();
  }
  ibv_async_event event = {};
  for (int taken = 0; taken < kMostEventsACall; ++taken) {
    errno = 0;
    if (library.get_async_event(context, &event) != 0) {
      return CheckEnd(info, errno);
    }
    // What is destroyed waits for it, whatever happens here.
    const std::unique_ptr<ibv_async_event, decltype(library.ack_async_event)>
        taken_event(&event, library.ack_async_event);
    // Before the acknowledgement, after which a queue may be gone.
    const Status status = Judge(library, context, info, event);
    if (status.ok() && notices != nullptr) {
      notices->push_back(info.name + ": " + DescribeAsyncEvent(event));
    }
    if (!status.ok() && qp_number != nullptr) {
      const bool of_one =
          MeaningOf(event.event_type).subject == Subject::kQueuePair;
      *qp_number = of_one ? event.element.qp->qp_num : 0;
    }
    RINGPIPE_RETURN_IF_ERROR(status);
  }
  return Status::Ok();
}

}  // namespace ringpipe::verbs
