#include "verbs/library.h"

#include <dlfcn.h>

#include <string>

namespace ringpipe::verbs {
namespace {

// Looks functions up in one shared object and remembers the first it lacks.
class SymbolTable {
 public:
  explicit SymbolTable(void* handle) : handle_(handle) {}

  // dlsym gives a symbol's default version, which is what a program that is
  // linked today would get.
  template <typename Function>
  void Find(const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (*function == nullptr && missing_.empty()) {
      missing_ = name;
    }
  }

  const std::string& missing() const { return missing_; }

 private:
  void* handle_;
  std::string missing_;
};

void FindAll(SymbolTable& symbols, Library& library) {
  symbols.Find("ibv_get_device_list", &library.get_device_list);
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
}

}  // namespace

Result<std::shared_ptr<const Library>> LoadSystemLibrary() {
  return LoadLibrary("libibverbs.so.1");
}

Result<std::shared_ptr<const Library>> LoadLibrary(const char* path) {
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
  return std::shared_ptr<const Library>(std::move(library));
}

}  // namespace ringpipe::verbs
