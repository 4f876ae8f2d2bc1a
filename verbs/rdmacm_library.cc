#include "verbs/rdmacm_library.h"

#include <dlfcn.h>

#include <string>

#include "verbs/symbol_table.h"

namespace ringpipe::verbs {
namespace {

void FindAll(SymbolTable& symbols, RdmacmLibrary& library) {
  symbols.Find("rdma_create_event_channel", &library.create_event_channel);
  symbols.Find("rdma_destroy_event_channel", &library.destroy_event_channel);
  symbols.Find("rdma_create_id", &library.create_id);
  symbols.Find("rdma_destroy_id", &library.destroy_id);
  symbols.Find("rdma_bind_addr", &library.bind_addr);
  symbols.Find("rdma_resolve_addr", &library.resolve_addr);
  symbols.Find("rdma_resolve_route", &library.resolve_route);
  symbols.Find("rdma_listen", &library.listen);
  symbols.Find("rdma_connect", &library.connect);
  symbols.Find("rdma_accept", &library.accept);
  symbols.Find("rdma_reject", &library.reject);
  symbols.Find("rdma_get_cm_event", &library.get_cm_event);
  symbols.Find("rdma_ack_cm_event", &library.ack_cm_event);
  symbols.Find("rdma_get_src_port", &library.get_src_port);
}

Status Unavailable(const std::string& reason) {
  return {
      StatusCode::kUnavailable,
      reason +
          "; an iWARP device is connected by librdmacm: install the package "
          "librdmacm1 (librdmacm, rdma-core), or choose another device "
          "with RINGPIPE_DEVICE"};
}

}  // namespace

Result<std::shared_ptr<const RdmacmLibrary>> LoadRdmacmLibrary() {
  return LoadRdmacmLibrary("librdmacm.so.1");
}

Result<std::shared_ptr<const RdmacmLibrary>> LoadRdmacmLibrary(
    const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    // The loader's message starts with the name of the file that it misses.
    const char* message = dlerror();
    return Unavailable(message != nullptr
                           ? message
                           : std::string(path) + ": cannot be loaded");
  }
  auto library = std::make_shared<RdmacmLibrary>();
  SymbolTable symbols(handle);
  FindAll(symbols, *library);
  if (!symbols.missing().empty()) {
    dlclose(handle);
    return Unavailable(std::string(path) + ": has no function " +
                       symbols.missing());
  }
  return std::shared_ptr<const RdmacmLibrary>(std::move(library));
}

}  // namespace ringpipe::verbs
