// The exported verbs of the drop-in libibverbs, each a line: the contract is
// verbs.h's, the work is done behind verbs_functions.h. What concerns no object
// of a device is in the files beside this one; what is missing here comes from
// the generated stubs.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>

#include <cstddef>
#include <cstdint>

#include "base/environment.h"
#include "verbs/soft/libibverbs/user_key.h"
#include "verbs/soft/verbs_functions.h"

// Macros of verbs.h in the way of functions of the same name.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace soft = ringpipe::verbs::soft;

namespace {

// The process's one device, made at the first question for it; nullptr, with a
// line on stderr, where the environment has values that make no sense: a
// program that only knows errno could not say what is wrong.
soft::SoftDevice* ProcessDevice() {
  static soft::SoftDevice* const device = []() -> soft::SoftDevice* {
    auto environment = ringpipe::Environment::FromProcess();
    if (!environment.ok()) {
      fprintf(stderr, "libibverbs (software device): %s\n",
              environment.status().message().c_str());
      return nullptr;
    }
    auto* made = new soft::SoftDevice;  // outlives other statics
    made->options = soft::Options::From(*environment);
    made->logger = ringpipe::Logger(environment->log_level);
    if (made->options.key.empty()) {
      made->options.key = soft::UserKey(soft::UserHome());
    }
    return made;
  }();
  return device;
}

}  // namespace

extern "C" {

// Exported for programs that use them, but not in verbs.h under these names.
int ibv_query_gid_type(ibv_context* context, std::uint8_t port,
                       unsigned int index, unsigned int* type);

// --- Devices -----------------------------------------------------------------

ibv_device** ibv_get_device_list(int* num_devices) {
  soft::SoftDevice* const device = ProcessDevice();
  if (device == nullptr) {
    if (num_devices != nullptr) {
      *num_devices = 0;
    }
    errno = EINVAL;
    return nullptr;
  }
  return soft::MakeDeviceList(device, num_devices);
}

void ibv_free_device_list(ibv_device** list) { soft::FreeDeviceList(list); }

const char* ibv_get_device_name(ibv_device* device) {
  return soft::GetDeviceName(device);
}

// The index that the kernel gives; this device it does not know.
int ibv_get_device_index(ibv_device*) { return -1; }

__be64 ibv_get_device_guid(ibv_device* device) {
  return soft::GetDeviceGuid(device);
}

ibv_context* ibv_open_device(ibv_device* device) {
  return soft::OpenDevice(device);
}

int ibv_close_device(ibv_context* context) {
  return soft::CloseDevice(context);
}

// --- Queries -----------------------------------------------------------------

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  return soft::QueryDevice(context, attr);
}

int ibv_query_port(ibv_context* context, std::uint8_t port,
                   _compat_ibv_port_attr* attr) {
  return soft::QueryPort(context, port, attr);
}

int ibv_query_gid(ibv_context* context, std::uint8_t port, int index,
                  ibv_gid* gid) {
  return soft::QueryGid(context, port, index, gid);
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port,
                      std::uint32_t index, ibv_gid_entry* entry,
                      std::uint32_t flags, std::size_t entry_bytes) {
  return soft::QueryGidEx(context, port, index, entry, flags, entry_bytes);
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                             std::size_t most, std::uint32_t flags,
                             std::size_t entry_bytes) {
  return soft::QueryGidTable(context, entries, most, flags, entry_bytes);
}

// As sysfs has it: 0 for InfiniBand and RoCE v1 alike, 1 for RoCE v2.
int ibv_query_gid_type(ibv_context* context, std::uint8_t port,
                       unsigned int index, unsigned int* type) {
  ibv_gid_entry entry;
  const int error =
      soft::QueryGidEx(context, port, index, &entry, 0, sizeof entry);
  if (error != 0) {
    errno = error;
    return -1;
  }
  *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
  return 0;
}

int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index,
                   __be16* pkey) {
  return soft::QueryPkey(context, port, index, pkey);
}

int ibv_get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) {
  __be16 entry;
  for (int i = 0; soft::QueryPkey(context, port, i, &entry) == 0; ++i) {
    if (entry == pkey) {
      return i;
    }
  }
  return -1;
}

// --- Memory ------------------------------------------------------------------

ibv_pd* ibv_alloc_pd(ibv_context* context) { return soft::AllocPd(context); }

int ibv_dealloc_pd(ibv_pd* pd) { return soft::DeallocPd(pd); }

// The optional flags allow more than they ask for, and this device needs none.
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  return soft::RegMr(pd, address, length, access & ~IBV_ACCESS_OPTIONAL_RANGE);
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t length,
                        std::uint64_t iova, int access) {
  return soft::RegMrIova(pd, address, length, iova,
                         access & ~IBV_ACCESS_OPTIONAL_RANGE);
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length,
                         std::uint64_t iova, unsigned int access) {
  return ibv_reg_mr_iova(pd, address, length, iova, static_cast<int>(access));
}

int ibv_dereg_mr(ibv_mr* mr) { return soft::DeregMr(mr); }

// --- Completions -------------------------------------------------------------

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return soft::CreateCompChannel(context);
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return soft::DestroyCompChannel(channel);
}

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                      ibv_comp_channel* channel, int vector) {
  return soft::CreateCq(context, cqe, cq_context, channel, vector);
}

int ibv_resize_cq(ibv_cq* cq, int cqe) { return soft::ResizeCq(cq, cqe); }

int ibv_destroy_cq(ibv_cq* cq) { return soft::DestroyCq(cq); }

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq,
                     void** cq_context) {
  return soft::GetCqEvent(channel, cq, cq_context);
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned int count) {
  soft::AckCqEvents(cq, count);
}

// --- Queues ------------------------------------------------------------------

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return soft::CreateSrq(pd, attr);
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return soft::ModifySrq(srq, attr, mask);
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return soft::QuerySrq(srq, attr);
}

int ibv_destroy_srq(ibv_srq* srq) { return soft::DestroySrq(srq); }

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return soft::CreateQp(pd, attr);
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return soft::ModifyQp(qp, attr, mask);
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask,
                 ibv_qp_init_attr* init_attr) {
  return soft::QueryQp(qp, attr, mask, init_attr);
}

int ibv_destroy_qp(ibv_qp* qp) { return soft::DestroyQp(qp); }

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) { return soft::QpToQpEx(qp); }

// 0: no guarantee. The kernel may copy a message in any order.
int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) {
  return 0;
}

// Enhanced connection establishment, of vendors' extensions: there are none,
// which is what a device without it answers.
int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
  *ece = {};
  return errno = EOPNOTSUPP;
}

int ibv_set_ece(ibv_qp*, ibv_ece*) { return errno = EOPNOTSUPP; }

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return soft::CreateAh(pd, attr);
}

int ibv_destroy_ah(ibv_ah* ah) { return soft::DestroyAh(ah); }

// --- Asynchronous events -----------------------------------------------------

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return soft::GetAsyncEvent(context, event);
}

void ibv_ack_async_event(ibv_async_event* event) { soft::AckAsyncEvent(event); }

}  // extern "C"
