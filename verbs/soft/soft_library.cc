#include "verbs/soft/soft_library.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include <array>
#include <mutex>
#include <utility>

#include "verbs/soft/context.h"

namespace ringpipe::verbs::soft {
namespace {

// --- Devices -----------------------------------------------------------------

// Padded: libmlx5 and libefa look behind an ibv_device for an operations table.
struct Device : ibv_device {
  void* padding[16] = {};
  std::uint64_t adversary_seed = 0;
  int users = 0;  // libraries; 0: free
};

// The functions of a Library have no argument that says which library was
// meant, so its options must hang on the one thing that it hands out: its
// device. Each set of options has a device, and a get_device_list of its own.
constexpr std::size_t kMaxDevices = 32;

struct Devices {
  std::mutex mutex;
  std::array<Device, kMaxDevices> all;
};

Devices& ProcessDevices() {
  static Devices* const devices = new Devices;  // outlives other statics
  return *devices;
}

template <std::size_t kDevice>
ibv_device** GetDeviceList(int* count) {
  auto** list = new ibv_device*[2];
  list[0] = &ProcessDevices().all[kDevice];
  list[1] = nullptr;
  if (count != nullptr) {
    *count = 1;
  }
  return list;
}

using ListFunction = ibv_device** (*)(int*);

template <std::size_t... kIndexes>
constexpr std::array<ListFunction, kMaxDevices> ListFunctions(
    std::index_sequence<kIndexes...>) {
  return {GetDeviceList<kIndexes>...};
}

constexpr auto kListFunctions =
    ListFunctions(std::make_index_sequence<kMaxDevices>());

void FreeDeviceList(ibv_device** list) { delete[] list; }

const char* GetDeviceName(ibv_device* device) { return device->name; }

ibv_context* OpenDevice(ibv_device* device) {
  errno = 0;
  std::unique_ptr<Context> context =
      Context::Open(device, static_cast<Device*>(device)->adversary_seed);
  return context != nullptr ? &context.release()->verbs() : nullptr;
}

int CloseDevice(ibv_context* context) {
  delete &Context::From(context);
  return 0;
}

// --- Queries -----------------------------------------------------------------

int QueryDevice(ibv_context*, ibv_device_attr* attr) {
  *attr = {};
  strncpy(attr->fw_ver, "1.0", sizeof attr->fw_ver - 1);
  attr->max_mr_size = ~std::uint64_t{0};
  attr->page_size_cap = ~std::uint64_t{4095};
  attr->max_qp = kMaxQueuePairs;
  attr->max_qp_wr = kMaxQueueDepth;
  attr->max_sge = kMaxSge;
  attr->max_cq = kMaxCompletionQueues;
  attr->max_cqe = kMaxCqe;
  attr->max_mr = kMaxRegions - 1;
  attr->max_pd = kMaxRegions;
  attr->phys_port_cnt = 1;
  attr->max_pkeys = 1;
  attr->atomic_cap = IBV_ATOMIC_NONE;
  attr->local_ca_ack_delay = 0;
  return 0;
}

int QueryPort(ibv_context*, std::uint8_t port, _compat_ibv_port_attr* out) {
  if (port != 1) {
    return EINVAL;
  }
  ibv_port_attr attr = {};
  attr.state = IBV_PORT_ACTIVE;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = IBV_MTU_4096;
  attr.gid_tbl_len = 1;
  attr.pkey_tbl_len = 1;
  attr.max_msg_sz = 1u << 30;
  attr.max_vl_num = 1;
  attr.active_width = 2;   // 4x
  attr.active_speed = 32;  // EDR
  attr.phys_state = 5;     // link up
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  // Old callers have the shorter struct, which ends before port_cap_flags2.
  memcpy(static_cast<void*>(out), &attr,
         offsetof(ibv_port_attr, port_cap_flags2));
  return 0;
}

int QueryGid(ibv_context*, std::uint8_t port, int index, ibv_gid* gid) {
  if (port != 1 || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *gid = Context::Gid();
  return 0;
}

// --- Objects -----------------------------------------------------------------

ibv_pd* AllocPd(ibv_context* context) {
  return Context::From(context).AllocPd();
}

int DeallocPd(ibv_pd* pd) { return Context::From(pd->context).DeallocPd(pd); }

ibv_mr* RegMr(ibv_pd* pd, void* address, std::size_t length, int access) {
  return Context::From(pd->context).RegMr(pd, address, length, access);
}

int DeregMr(ibv_mr* mr) { return Context::From(mr->context).DeregMr(mr); }

ibv_comp_channel* CreateCompChannel(ibv_context* context) {
  return Context::From(context).CreateCompChannel();
}

int DestroyCompChannel(ibv_comp_channel* channel) {
  return Context::From(channel->context).DestroyCompChannel(channel);
}

int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  return static_cast<CompletionChannel*>(channel)->GetEvent(cq, cq_context);
}

void AckCqEvents(ibv_cq* cq, unsigned int count) {
  CompletionQueue::From(cq).Acknowledge(count);
}

ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context,
                 ibv_comp_channel* channel, int vector) {
  return Context::From(context).CreateCq(cqe, cq_context, channel, vector);
}

int DestroyCq(ibv_cq* cq) { return Context::From(cq->context).DestroyCq(cq); }

ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return Context::From(pd->context).CreateQp(pd, attr);
}

int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return QueuePair::From(qp).Modify(*attr, mask);
}

int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init_attr) {
  QueuePair::From(qp).Query(attr, init_attr);
  return 0;
}

int DestroyQp(ibv_qp* qp) { return Context::From(qp->context).DestroyQp(qp); }

int GetAsyncEvent(ibv_context* context, ibv_async_event* event) {
  return Context::From(context).async_events().Get(event);
}

void AckAsyncEvent(ibv_async_event*);

void* Allocate(ibv_context* context, std::size_t bytes) {
  return Context::From(context).segment().Allocate(bytes);
}

void Free(ibv_context* context, void* address, std::size_t bytes) {
  Context::From(context).segment().Free(address, bytes);
}

void AckAsyncEvent(ibv_async_event* event) {
  ibv_context* const context = event->event_type == IBV_EVENT_CQ_ERR
                                   ? event->element.cq->context
                                   : event->element.qp->context;
  Context::From(context).async_events().Acknowledge(*event);
}

constexpr Library kLibrary = {
    .get_device_list = nullptr,  // by device
    .free_device_list = FreeDeviceList,
    .get_device_name = GetDeviceName,
    .open_device = OpenDevice,
    .close_device = CloseDevice,
    .query_device = QueryDevice,
    .query_port = QueryPort,
    .query_gid = QueryGid,
    .alloc_pd = AllocPd,
    .dealloc_pd = DeallocPd,
    .reg_mr = RegMr,
    .dereg_mr = DeregMr,
    .create_comp_channel = CreateCompChannel,
    .destroy_comp_channel = DestroyCompChannel,
    .get_cq_event = GetCqEvent,
    .ack_cq_events = AckCqEvents,
    .create_cq = CreateCq,
    .destroy_cq = DestroyCq,
    .create_qp = CreateQp,
    .modify_qp = ModifyQp,
    .query_qp = QueryQp,
    .destroy_qp = DestroyQp,
    .get_async_event = GetAsyncEvent,
    .ack_async_event = AckAsyncEvent,
    .allocate = Allocate,
    .free = Free,
};

// The device for these options; kMaxDevices: none is left.
std::size_t TakeDevice(const Options& options) {
  Devices& devices = ProcessDevices();
  std::lock_guard lock(devices.mutex);
  std::size_t found = kMaxDevices;
  for (std::size_t i = kMaxDevices; i-- > 0;) {
    const Device& device = devices.all[i];
    if (device.users == 0 || device.adversary_seed == options.adversary_seed) {
      found = i;
      if (device.users > 0) {
        break;
      }
    }
  }
  if (found == kMaxDevices) {
    return found;
  }
  Device& device = devices.all[found];
  if (device.users++ > 0) {
    return found;  // others read it, without the mutex
  }
  device.adversary_seed = options.adversary_seed;
  device.node_type = IBV_NODE_CA;
  device.transport_type = IBV_TRANSPORT_IB;
  strcpy(device.name, "soft0");
  strcpy(device.dev_name, "soft0");
  return found;
}

}  // namespace

std::shared_ptr<const Library> CreateSoftLibrary(const Options& options) {
  const std::size_t device = TakeDevice(options);
  if (device == kMaxDevices) {
    return nullptr;
  }
  auto* library = new Library(kLibrary);
  library->get_device_list = kListFunctions[device];
  return std::shared_ptr<const Library>(library, [device](const Library* gone) {
    delete gone;
    Devices& devices = ProcessDevices();
    std::lock_guard lock(devices.mutex);
    --devices.all[device].users;
  });
}

}  // namespace ringpipe::verbs::soft
