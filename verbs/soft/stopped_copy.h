// For tests: a process that stops in the middle of a copy into a peer's memory,
// for certain rather than by luck.
#ifndef RINGPIPE_VERBS_SOFT_STOPPED_COPY_H_
#define RINGPIPE_VERBS_SOFT_STOPPED_COPY_H_

namespace ringpipe::verbs::soft {

// From now on this process stops itself (as by SIGSTOP), once, in the middle of
// the next copy that the device makes to a peer from the page at `page`:
//
//   into memory that is mapped here   when the copy reaches that page: what is
//                                     before it has arrived, the rest has not
//   by process_vm_writev              before the call, but after the device has
//                                     looked the peer's region up
//
// Continued, the process goes on with that copy as if nothing had been. `page`
// is page-aligned; until then only the device may touch it.
void StopInNextCopyFrom(void* page);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_STOPPED_COPY_H_
