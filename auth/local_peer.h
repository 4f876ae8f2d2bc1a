// Which processes of this host are trusted without a secret: those of the same
// effective user id in the same user namespace. They may trace each other
// anyway. Root is a user like any other: one who trusted everybody would hand
// his memory to everybody.
#ifndef RINGPIPE_AUTH_LOCAL_PEER_H_
#define RINGPIPE_AUTH_LOCAL_PEER_H_

#include <sys/socket.h>

#include <string>

#include "base/status.h"

namespace ringpipe {

// Ok, or kPermissionDenied with the reason, such as "it belongs to another user
// (uid 1000)". `process` is as the kernel names it (SO_PEERCRED,
// SCM_CREDENTIALS); `proc` is where the kernel shows processes.
//
// The id alone is not enough: it may be that of a process which was confined to
// a user namespace of its own, or, where ids are not mapped, anybody's. Nor may
// a process be believed about its namespace: whatever it shows can be handed
// on.
Status CheckLocalProcess(const ucred& process,
                         const std::string& proc = "/proc");

// The same of who connected to a unix socket, or listens at its other end;
// `process` is set to who that is.
Status CheckLocalPeer(int socket, ucred* process);

}  // namespace ringpipe

#endif  // RINGPIPE_AUTH_LOCAL_PEER_H_
