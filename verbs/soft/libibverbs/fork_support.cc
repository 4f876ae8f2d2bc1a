// The exported functions about fork(). Hardware that writes to physical pages
// needs registered memory kept out of children, as a page that is copied on
// write leaves the parent with the wrong copy. Here peers write through the
// owner's page tables (process_vm_writev) or into shared mappings, so that the
// parent's memory stays the parent's: nothing is to be done. As on hardware a
// child may not use what its parent opened.
#include <infiniband/verbs.h>

#include <cstddef>

extern "C" {

int ibv_fork_init() { return 0; }

ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }

// For drivers; in no installed header.
int ibv_dontfork_range(void* base, std::size_t bytes);
int ibv_dofork_range(void* base, std::size_t bytes);

int ibv_dontfork_range(void*, std::size_t) { return 0; }

int ibv_dofork_range(void*, std::size_t) { return 0; }

}  // extern "C"
