// The verbs functions that ringpipe calls, as a table of pointers: filled from
// the system's libibverbs.so.1 at run time, or by the software device.
#ifndef RINGPIPE_VERBS_LIBRARY_H_
#define RINGPIPE_VERBS_LIBRARY_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

// Macros of verbs.h in the way of members of the same name.
#undef ibv_query_port
#undef ibv_reg_mr

namespace ringpipe::verbs {

// What a fork() of this process does to memory that a library has registered.
enum class ForkSupport {
  // No harm: the kernel copies pinned pages at fork (5.12 and later), or the
  // library pins none.
  kUnneeded,
  // No harm: ibv_fork_init was called. Registered pages are then missing in a
  // child process, also what else is on them.
  kEnabled,
  // After a fork the first of the two processes to write to a registered page
  // gets a copy of it. Where that is this one, the device goes on using the
  // other: data are silently lost. So do not fork, or end the child by exec at
  // once.
  kDisabled,
};

// How a queue pair has lost its peer.
struct PeerLoss {
  enum class Kind {
    kUnknown,
    kSilent,  // nothing has come from its host for too long
    kEnded,   // its end of the connection has ended
  };

  Kind kind = Kind::kUnknown;
  std::string text;  // why, in words; "": nothing is known
};

// Each member has the signature and the contract of ibv_NAME. The first, which
// has no argument to say whose devices are meant, may carry that with it. What
// verbs.h has inline (ibv_post_send, ibv_post_recv, ibv_poll_cq,
// ibv_req_notify_cq) goes through ibv_context and is called directly. Immutable
// once filled; thread-safe as verbs is.
struct Library {
  std::function<ibv_device**(int* count)> get_device_list;
  void (*free_device_list)(ibv_device** list);
  const char* (*get_device_name)(ibv_device* device);
  ibv_context* (*open_device)(ibv_device* device);
  int (*close_device)(ibv_context* context);
  int (*query_device)(ibv_context* context, ibv_device_attr* attr);
  // Writes the first 48 bytes of an ibv_port_attr, which is what the exported
  // function does for programs older than the inline one: zero the rest.
  int (*query_port)(ibv_context* context, std::uint8_t port,
                    _compat_ibv_port_attr* attr);
  int (*query_gid)(ibv_context* context, std::uint8_t port, int index,
                   ibv_gid* gid);
  ibv_pd* (*alloc_pd)(ibv_context* context);
  int (*dealloc_pd)(ibv_pd* pd);
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, std::size_t length, int access);
  int (*dereg_mr)(ibv_mr* mr);
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** cq, void** context);
  void (*ack_cq_events)(ibv_cq* cq, unsigned int count);
  ibv_cq* (*create_cq)(ibv_context* context, int cqe, void* cq_context,
                       ibv_comp_channel* channel, int comp_vector);
  int (*destroy_cq)(ibv_cq* cq);
  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attr);
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attr, int mask);
  int (*query_qp)(ibv_qp* qp, ibv_qp_attr* attr, int mask,
                  ibv_qp_init_attr* init_attr);
  int (*destroy_qp)(ibv_qp* qp);
  int (*get_async_event)(ibv_context* context, ibv_async_event* event);
  void (*ack_async_event)(ibv_async_event* event);

  // Memory that is quick to use with the device: readable and writable,
  // page-aligned, zeroed. The software device's is shared with peers on the
  // host. nullptr in the system's table: Device::Allocate then maps huge pages
  // itself.
  void* (*allocate)(ibv_context* context, std::size_t bytes);
  void (*free)(ibv_context* context, void* address, std::size_t bytes);

  // How the queue pair has lost its peer. The software device knows; nullptr in
  // the system's table.
  PeerLoss (*describe_loss)(ibv_qp* qp) = nullptr;

  // Older libraries lack the members below: nullptr there.
  ibv_mr* (*reg_mr_iova2)(ibv_pd* pd, void* address, std::size_t length,
                          std::uint64_t iova, unsigned int access) = nullptr;
  int (*fork_init)() = nullptr;
  ibv_fork_status (*is_fork_initialized)() = nullptr;

  ForkSupport fork_support = ForkSupport::kUnneeded;
};

// The system's libibverbs.so.1. kUnavailable, with the loader's message, where
// it cannot be loaded or lacks a function. Once loaded it stays, as the drivers
// that it loads in turn cannot be unloaded. Also calls EnableForkSupport.
Result<std::shared_ptr<const Library>> LoadSystemLibrary();

// A library by path, as LoadSystemLibrary does, but without touching the
// process's fork support; for tests.
Result<std::shared_ptr<const Library>> LoadLibrary(const char* path);

// Makes fork() harmless to registered memory, by ibv_fork_init, where it is not
// already so and the library can. To be called before anything is registered;
// a second call changes nothing. `kernel_release` is uname's ("5.10.0-8"), for
// libraries that cannot say whether they are needed. The library reads
// RDMAV_FORK_SAFE itself: where that is set, nothing is left to do here.
ForkSupport EnableForkSupport(const Library& library,
                              const std::string& kernel_release);

// "unneeded: the kernel copies pinned pages", for people.
const char* DescribeForkSupport(ForkSupport support);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_LIBRARY_H_
