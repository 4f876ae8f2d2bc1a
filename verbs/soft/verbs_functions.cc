#include "verbs/soft/verbs_functions.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "verbs/soft/context.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint16_t kDefaultPkey =
    0xffff;  // full member, default partition
constexpr std::uint32_t kPageSizes = ~std::uint32_t{4095};

// As the first bytes of an address: locally administered, as no vendor has it.
constexpr std::uint32_t kVendorId = 0x027270;

// Different on hosts of different names; locally administered, as no vendor
// assigned it.
std::uint64_t HostGuid() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  const std::uint64_t hash = std::hash<std::string>()(name);
  return (hash & 0x00ffffffffffffffULL) | 0x0200000000000000ULL;
}

void FillDeviceAttributes(ibv_device_attr* attr) {
  *attr = {};
  strncpy(attr->fw_ver, "1.0", sizeof attr->fw_ver - 1);
  attr->node_guid = attr->sys_image_guid = htobe64(HostGuid());
  attr->max_mr_size = ~std::uint64_t{0};
  attr->page_size_cap = kPageSizes;
  attr->vendor_id = kVendorId;
  attr->vendor_part_id = 1;
  attr->hw_ver = 1;
  attr->max_qp = kMaxQueuePairs;
  attr->max_qp_wr = kMaxQueueDepth;
  attr->device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT |
                           IBV_DEVICE_CURR_QP_STATE_MOD |
                           IBV_DEVICE_RC_RNR_NAK_GEN;
  attr->max_sge = kMaxSge;
  attr->max_sge_rd = kMaxSge;
  attr->max_cq = kMaxCompletionQueues;
  attr->max_cqe = kMaxCqe;
  attr->max_mr = kMaxRegions - 1;
  attr->max_pd = kMaxRegions;
  attr->max_ah = kMaxRegions;
  attr->max_srq = kMaxSharedReceiveQueues;
  attr->max_srq_wr = kMaxQueueDepth;
  attr->max_srq_sge = kMaxSge;
  attr->max_qp_rd_atom = kMaxRdAtomic;
  attr->max_qp_init_rd_atom = kMaxRdAtomic;
  attr->max_res_rd_atom = kMaxRdAtomic * static_cast<int>(kMaxQueuePairs);
  attr->atomic_cap = IBV_ATOMIC_HCA;
  attr->phys_port_cnt = 1;
  attr->max_pkeys = 1;
}

ibv_gid_entry MakeGidEntry(std::uint32_t port, std::uint32_t index,
                           const Port::Entry& gid, std::uint32_t gid_type) {
  ibv_gid_entry entry = {};
  entry.gid = gid.gid;
  entry.gid_index = index;
  entry.port_num = port;
  entry.gid_type = gid_type;
  entry.ndev_ifindex = gid.interface;
  return entry;
}

std::uint32_t GidType(Context& context) {
  return context.options().link_layer == LinkLayer::kEthernet
             ? IBV_GID_TYPE_ROCE_V2
             : IBV_GID_TYPE_IB;
}

}  // namespace

// --- Devices -----------------------------------------------------------------

SoftDevice::SoftDevice() : ibv_device{} {
  node_type = IBV_NODE_CA;
  transport_type = IBV_TRANSPORT_IB;
  strcpy(name, "soft0");
  strcpy(dev_name, "soft0");
}

ibv_device** MakeDeviceList(SoftDevice* device, int* count) {
  auto** list = new ibv_device*[2];
  list[0] = device;
  list[1] = nullptr;
  if (count != nullptr) {
    *count = 1;
  }
  return list;
}

void FreeDeviceList(ibv_device** list) { delete[] list; }

const char* GetDeviceName(ibv_device* device) { return device->name; }

__be64 GetDeviceGuid(ibv_device*) { return htobe64(HostGuid()); }

ibv_context* OpenDevice(ibv_device* device) {
  errno = 0;
  const auto& soft = *static_cast<SoftDevice*>(device);
  std::unique_ptr<Context> context =
      Context::Open(device, soft.options, soft.logger);
  return context != nullptr ? &context.release()->verbs() : nullptr;
}

int CloseDevice(ibv_context* context) {
  delete &Context::From(context);
  return 0;
}

// --- Queries -----------------------------------------------------------------

int QueryDevice(ibv_context*, ibv_device_attr* attr) {
  FillDeviceAttributes(attr);
  return 0;
}

int QueryDeviceEx(ibv_context*, const ibv_query_device_ex_input* input,
                  ibv_device_attr_ex* attr, std::size_t attr_bytes) {
  if ((input != nullptr && input->comp_mask != 0) ||
      attr_bytes < sizeof attr->orig_attr) {
    return EINVAL;
  }
  ibv_device_attr_ex whole = {};
  FillDeviceAttributes(&whole.orig_attr);
  whole.phys_port_cnt_ex = 1;
  // The caller's structure may be an older, shorter one.
  memset(static_cast<void*>(attr), 0, attr_bytes);
  memcpy(static_cast<void*>(attr), &whole, std::min(attr_bytes, sizeof whole));
  return 0;
}

int QueryPort(ibv_context* context, std::uint8_t port,
              _compat_ibv_port_attr* attr) {
  // Old callers have the shorter struct, which ends before port_cap_flags2.
  return QueryPortWhole(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                        offsetof(ibv_port_attr, port_cap_flags2));
}

int QueryPortWhole(ibv_context* context, std::uint8_t port, ibv_port_attr* attr,
                   std::size_t attr_bytes) {
  if (port != 1) {
    return EINVAL;
  }
  const ibv_port_attr whole = Context::From(context).port().attributes();
  memset(static_cast<void*>(attr), 0, attr_bytes);
  memcpy(static_cast<void*>(attr), &whole, std::min(attr_bytes, sizeof whole));
  return 0;
}

int QueryGid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  Port::Entry entry;
  if (port != 1 || !Context::From(context).port().QueryGid(index, &entry)) {
    errno = EINVAL;
    return -1;
  }
  *gid = entry.gid;
  return 0;
}

int QueryGidEx(ibv_context* context, std::uint32_t port, std::uint32_t index,
               ibv_gid_entry* entry, std::uint32_t flags,
               std::size_t entry_bytes) {
  Context& own = Context::From(context);
  Port::Entry gid;
  if (flags != 0 || port != 1 || index >= Port::kGidEntries ||
      !own.port().QueryGid(static_cast<int>(index), &gid)) {
    return EINVAL;
  }
  if (gid.interface == 0) {
    return ENODATA;
  }
  const ibv_gid_entry whole = MakeGidEntry(port, index, gid, GidType(own));
  memcpy(entry, &whole, std::min(entry_bytes, sizeof whole));
  return 0;
}

ssize_t QueryGidTable(ibv_context* context, ibv_gid_entry* entries,
                      std::size_t most, std::uint32_t flags,
                      std::size_t entry_bytes) {
  if (flags != 0 || entry_bytes != sizeof *entries) {
    return -EINVAL;
  }
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < Port::kGidEntries; ++i) {
    ibv_gid_entry entry;
    if (QueryGidEx(context, 1, i, &entry, 0, sizeof entry) != 0) {
      continue;
    }
    if (count == most) {
      return -EINVAL;  // as the kernel: some of them are of no use
    }
    entries[count++] = entry;
  }
  return static_cast<ssize_t>(count);
}

int QueryPkey(ibv_context*, std::uint8_t port, int index, __be16* pkey) {
  if (port != 1 || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = htobe16(kDefaultPkey);
  return 0;
}

// --- Memory ------------------------------------------------------------------

ibv_pd* AllocPd(ibv_context* context) {
  return Context::From(context).AllocPd();
}

int DeallocPd(ibv_pd* pd) { return Context::From(pd->context).DeallocPd(pd); }

ibv_mr* RegMr(ibv_pd* pd, void* address, std::size_t length, int access) {
  return Context::From(pd->context)
      .RegMr(pd, address, length, reinterpret_cast<std::uint64_t>(address),
             access);
}

ibv_mr* RegMrIova(ibv_pd* pd, void* address, std::size_t length,
                  std::uint64_t iova, int access) {
  return Context::From(pd->context).RegMr(pd, address, length, iova, access);
}

int DeregMr(ibv_mr* mr) { return Context::From(mr->context).DeregMr(mr); }

void* Allocate(ibv_context* context, std::size_t bytes) {
  return Context::From(context).segment().Allocate(bytes);
}

void Free(ibv_context* context, void* address, std::size_t bytes) {
  Context::From(context).segment().Free(address, bytes);
}

// --- Completions -------------------------------------------------------------

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

int ResizeCq(ibv_cq* cq, int cqe) {
  return CompletionQueue::From(cq).Resize(cqe);
}

int DestroyCq(ibv_cq* cq) { return Context::From(cq->context).DestroyCq(cq); }

// --- Queue pairs -------------------------------------------------------------

ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return Context::From(pd->context).CreateSrq(pd, attr);
}

int ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return Context::From(srq->context).ModifySrq(srq, *attr, mask);
}

int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr) {
  return Context::From(srq->context).QuerySrq(srq, attr);
}

int DestroySrq(ibv_srq* srq) {
  return Context::From(srq->context).DestroySrq(srq);
}

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

PeerLoss DescribeLoss(ibv_qp* qp) { return QueuePair::From(qp).DescribeLoss(); }

int DestroyQp(ibv_qp* qp) { return Context::From(qp->context).DestroyQp(qp); }

ibv_ah* CreateAh(ibv_pd* pd, ibv_ah_attr* attr) {
  return Context::From(pd->context).CreateAh(pd, *attr);
}

int DestroyAh(ibv_ah* ah) { return Context::From(ah->context).DestroyAh(ah); }

// --- Asynchronous events -----------------------------------------------------

int GetAsyncEvent(ibv_context* context, ibv_async_event* event) {
  return Context::From(context).async_events().Get(event);
}

void AckAsyncEvent(ibv_async_event* event) {
  ibv_context* context = nullptr;
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      context = event->element.cq->context;
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      context = event->element.srq->context;
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
      context = event->element.qp->context;
      break;
    default:
      return;  // the port's: nothing waits for their acknowledgement
  }
  Context::From(context).async_events().Acknowledge(*event);
}

}  // namespace ringpipe::verbs::soft
