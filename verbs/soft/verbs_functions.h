// The verbs on the software device: each function has the signature and the
// contract of ibv_NAME. The table of CreateSoftLibrary and the exports of the
// drop-in libibverbs both point here. What verbs.h reaches through ibv_context
// or verbs_context is set up by Context.
#ifndef RINGPIPE_VERBS_SOFT_VERBS_FUNCTIONS_H_
#define RINGPIPE_VERBS_SOFT_VERBS_FUNCTIONS_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "verbs/library.h"
#include "verbs/soft/options.h"

namespace ringpipe::verbs::soft {

// Padded: libmlx5 and libefa look behind an ibv_device for an operations table.
struct SoftDevice : ibv_device {
  SoftDevice();  // named "soft0"

  void* padding[16] = {};
  Options options;
  Logger logger;
};

// A list with that one device, for ibv_get_device_list.
ibv_device** MakeDeviceList(SoftDevice* device, int* count);
void FreeDeviceList(ibv_device** list);

const char* GetDeviceName(ibv_device* device);
__be64 GetDeviceGuid(ibv_device* device);
ibv_context* OpenDevice(ibv_device* device);
int CloseDevice(ibv_context* context);

int QueryDevice(ibv_context* context, ibv_device_attr* attr);
int QueryDeviceEx(ibv_context* context, const ibv_query_device_ex_input* input,
                  ibv_device_attr_ex* attr, std::size_t attr_bytes);
// The exported one, which writes the 48 bytes of _compat_ibv_port_attr.
int QueryPort(ibv_context* context, std::uint8_t port,
              _compat_ibv_port_attr* attr);
// The one behind verbs_context::query_port: `attr_bytes` of it.
int QueryPortWhole(ibv_context* context, std::uint8_t port, ibv_port_attr* attr,
                   std::size_t attr_bytes);
int QueryGid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid);
// 0 or an errno.
int QueryGidEx(ibv_context* context, std::uint32_t port, std::uint32_t index,
               ibv_gid_entry* entry, std::uint32_t flags,
               std::size_t entry_bytes);
ssize_t QueryGidTable(ibv_context* context, ibv_gid_entry* entries,
                      std::size_t most, std::uint32_t flags,
                      std::size_t entry_bytes);
int QueryPkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey);

ibv_pd* AllocPd(ibv_context* context);
int DeallocPd(ibv_pd* pd);
ibv_mr* RegMr(ibv_pd* pd, void* address, std::size_t length, int access);
ibv_mr* RegMrIova(ibv_pd* pd, void* address, std::size_t length,
                  std::uint64_t iova, int access);
int DeregMr(ibv_mr* mr);

ibv_comp_channel* CreateCompChannel(ibv_context* context);
int DestroyCompChannel(ibv_comp_channel* channel);
int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
void AckCqEvents(ibv_cq* cq, unsigned int count);
ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context,
                 ibv_comp_channel* channel, int vector);
ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr);
int ResizeCq(ibv_cq* cq, int cqe);
int DestroyCq(ibv_cq* cq);

ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr);
ibv_srq* CreateSrqEx(ibv_context* context, ibv_srq_init_attr_ex* attr);
int ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask);
int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr);
int DestroySrq(ibv_srq* srq);

ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr);
ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr);
// nullptr where `qp` was created without send_ops_flags.
ibv_qp_ex* QpToQpEx(ibv_qp* qp);
int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask);
int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int mask,
            ibv_qp_init_attr* init_attr);
// Library::describe_loss.
PeerLoss DescribeLoss(ibv_qp* qp);
int DestroyQp(ibv_qp* qp);

ibv_ah* CreateAh(ibv_pd* pd, ibv_ah_attr* attr);
int DestroyAh(ibv_ah* ah);

int GetAsyncEvent(ibv_context* context, ibv_async_event* event);
void AckAsyncEvent(ibv_async_event* event);

// Library::allocate and free.
void* Allocate(ibv_context* context, std::size_t bytes);
void Free(ibv_context* context, void* address, std::size_t bytes);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_VERBS_FUNCTIONS_H_
