#include "verbs/library.h"

#include <dlfcn.h>
#include <sys/utsname.h>

#include <cstdio>
#include <mutex>
#include <string>

#include "verbs/symbol_table.h"

namespace ringpipe::verbs {
namespace {

void FindAll(SymbolTable& symbols, Library& library) {
  ibv_device** (*get_device_list)(int*) = nullptr;
  symbols.Find("ibv_get_device_list", &get_device_list);
  library.get_device_list = get_device_list;
  symbols.Find("ibv_free_device_list", &library.free_device_list);
  symbols.Find("ibv_get_device_name", &library.get_device_name);
  symbols.Find("ibv_open_device", &library.open_device);
  symbols.Find("ibv_close_device", &library.close_device);
  symbols.Find("ibv_query_device", &library.query_device);
  symbols.Find("ibv_query_port", &library.query_port);
  symbols.Find("ibv_query_gid", &library.query_gid);
  symbols.Find("ibv_alloc_pd", &library.alloc_pd);
  symbols.Find("ibv_dealloc_pd", &library.dealloc_pd);
  symbols.Find("ibv_reg_mr", &library.reg_mr);
  symbols.Find("ibv_dereg_mr", &library.dereg_mr);
  symbols.Find("ibv_create_comp_channel", &library.create_comp_channel);
  symbols.Find("ibv_destroy_comp_channel", &library.destroy_comp_channel);
  symbols.Find("ibv_get_cq_event", &library.get_cq_event);
  symbols.Find("ibv_ack_cq_events", &library.ack_cq_events);
  symbols.Find("ibv_create_cq", &library.create_cq);
  symbols.Find("ibv_destroy_cq", &library.destroy_cq);
  symbols.Find("ibv_create_qp", &library.create_qp);
  symbols.Find("ibv_modify_qp", &library.modify_qp);
  symbols.Find("ibv_query_qp", &library.query_qp);
  symbols.Find("ibv_destroy_qp", &library.destroy_qp);
  symbols.Find("ibv_get_async_event", &library.get_async_event);
  symbols.Find("ibv_ack_async_event", &library.ack_async_event);
  symbols.FindOptional("ibv_reg_mr_iova2", &library.reg_mr_iova2);
  symbols.FindOptional("ibv_fork_init", &library.fork_init);
  symbols.FindOptional("ibv_is_fork_initialized", &library.is_fork_initialized);
}

// Whether a kernel copies pinned pages at fork, so that parent and device stay
// together: Linux 5.12 and later.
bool CopiesPinnedPagesAtFork(const std::string& kernel_release) {
  int major = 0;
  int minor = 0;
  return std::sscanf(kernel_release.c_str(), "%d.%d", &major, &minor) == 2 &&
         (major > 5 || (major == 5 && minor >= 12));
}

std::string KernelRelease() {
  utsname name = {};
  return uname(&name) == 0 ? name.release : "";
}

Result<std::shared_ptr<Library>> Load(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    // The loader's message starts with the name of the file that it misses.
    const char* message = dlerror();
    return Status(StatusCode::kUnavailable,
                  message != nullptr
                      ? message
                      : std::string(path) + ": cannot be loaded");
  }
  auto library = std::make_shared<Library>();
  SymbolTable symbols(handle);
  FindAll(symbols, *library);
  if (!symbols.missing().empty()) {
    dlclose(handle);
    return Status(StatusCode::kUnavailable,
                  std::string(path) + ": has no function " + symbols.missing() +
                      "; rdma-core's libibverbs1 is needed");
  }
  return library;
}

}  // namespace

Result<std::shared_ptr<const Library>> LoadSystemLibrary() {
  RINGPIPE_ASSIGN_OR_RETURN(const std::shared_ptr<Library> library,
                            Load("libibverbs.so.1"));
  // Fork support is a state of the process, in the one libibverbs that it has,
  // which sets it up without a lock of its own.
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  library->fork_support = EnableForkSupport(*library, KernelRelease());
  return std::shared_ptr<const Library>(library);
}

Result<std::shared_ptr<const Library>> LoadLibrary(const char* path) {
  RINGPIPE_ASSIGN_OR_RETURN(const std::shared_ptr<Library> library, Load(path));
  return std::shared_ptr<const Library>(library);
}

ForkSupport EnableForkSupport(const Library& library,
                              const std::string& kernel_release) {
  const ibv_fork_status before = library.is_fork_initialized != nullptr
                                     ? library.is_fork_initialized()
                                     : IBV_FORK_DISABLED;
  // The kernel is asked as well: a library cannot reach it where a container
  // has no RDMA netlink.
  if (before == IBV_FORK_UNNEEDED || CopiesPinnedPagesAtFork(kernel_release)) {
    return ForkSupport::kUnneeded;
  }
  if (before == IBV_FORK_ENABLED) {
    return ForkSupport::kEnabled;
  }
  // It refuses where memory is registered already, by somebody else.
  return library.fork_init != nullptr && library.fork_init() == 0
             ? ForkSupport::kEnabled
             : ForkSupport::kDisabled;
}

const char* DescribeForkSupport(ForkSupport support) {
  switch (support) {
    case ForkSupport::kUnneeded:
      return "unneeded: pinned pages are copied at fork";
    case ForkSupport::kEnabled:
      return "enabled: a child process does not have registered pages";
    case ForkSupport::kDisabled:
      return "disabled: do not fork, or set RDMAV_FORK_SAFE=1";
  }
  return "unknown";
}

}  // namespace ringpipe::verbs
