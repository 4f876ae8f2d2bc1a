// "The same user" between processes of one host is the same effective user id
// in the same user namespace: such processes may trace each other anyway. The
// kernel vouches for the id (SO_PEERCRED). The namespace a process shows by a
// descriptor of it, since who is outside cannot open one: the
// id alone may be that of a process which was confined to a namespace of its
// own, or, where ids are not mapped, anybody's.
#ifndef RINGPIPE_AUTH_USER_NAMESPACE_H_
#define RINGPIPE_AUTH_USER_NAMESPACE_H_

namespace ringpipe {

// A descriptor of this process's user namespace, to show to another process; -1
// with errno where /proc is not mounted.
int OpenUserNamespace();

// Whether `fd`, which another process has shown, is of this process's user
// namespace.
bool IsOwnUserNamespace(int fd);

}  // namespace ringpipe

#endif  // RINGPIPE_AUTH_USER_NAMESPACE_H_
