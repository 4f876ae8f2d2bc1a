// The functions of librdmacm that ringpipe calls, as a table of pointers that
// is filled at run time: only iWARP needs them.
#ifndef RINGPIPE_VERBS_RDMACM_LIBRARY_H_
#define RINGPIPE_VERBS_RDMACM_LIBRARY_H_

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace ringpipe::verbs {

// Each member has the signature and the contract of rdma_NAME. Immutable once
// filled; thread-safe as librdmacm is.
struct RdmacmLibrary {
  rdma_event_channel* (*create_event_channel)();
  void (*destroy_event_channel)(rdma_event_channel* channel);
  int (*create_id)(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space port_space);
  int (*destroy_id)(rdma_cm_id* id);
  int (*bind_addr)(rdma_cm_id* id, sockaddr* address);
  int (*resolve_addr)(rdma_cm_id* id, sockaddr* source, sockaddr* destination,
                      int timeout_ms);
  int (*resolve_route)(rdma_cm_id* id, int timeout_ms);
  int (*listen)(rdma_cm_id* id, int backlog);
  int (*connect)(rdma_cm_id* id, rdma_conn_param* param);
  int (*accept)(rdma_cm_id* id, rdma_conn_param* param);
  int (*reject)(rdma_cm_id* id, const void* private_data,
                std::uint8_t private_data_len);
  int (*get_cm_event)(rdma_event_channel* channel, rdma_cm_event** event);
  int (*ack_cm_event)(rdma_cm_event* event);
  __be16 (*get_src_port)(rdma_cm_id* id);
};

// The system's librdmacm.so.1. kUnavailable, with the loader's message and what
// to install, where it cannot be loaded or lacks a function. Once loaded it
// stays, as the verbs drivers that it uses cannot be unloaded.
Result<std::shared_ptr<const RdmacmLibrary>> LoadRdmacmLibrary();

// A library by path, as LoadRdmacmLibrary does; for tests.
Result<std::shared_ptr<const RdmacmLibrary>> LoadRdmacmLibrary(
    const char* path);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_RDMACM_LIBRARY_H_
