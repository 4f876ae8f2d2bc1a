#define _GNU_SOURCE
#include "tests/failing_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

// Each call: what it returns, its name, its errno, what it returns then, its
// parameters, and what is handed on.
#define CALLS(CALL)                                                            \
  CALL(int, accept, EMFILE, -1, (int a, struct sockaddr* b, socklen_t* c),     \
       (a, b, c))                                                              \
  CALL(int, accept4, EMFILE, -1,                                               \
       (int a, struct sockaddr* b, socklen_t* c, int d), (a, b, c, d))         \
  CALL(int, bind, EACCES, -1, (int a, const struct sockaddr* b, socklen_t c),  \
       (a, b, c))                                                              \
  CALL(int, connect, ENOMEM, -1,                                               \
       (int a, const struct sockaddr* b, socklen_t c), (a, b, c))              \
  CALL(int, epoll_create1, EMFILE, -1, (int a), (a))                           \
  CALL(int, getsockopt, ENOBUFS, -1,                                           \
       (int a, int b, int c, void* d, socklen_t* e), (a, b, c, d, e))          \
  CALL(int, epoll_pwait2, EPERM, -1,                                           \
       (int a, struct epoll_event* b, int c, const struct timespec* d,         \
        const sigset_t* e),                                                    \
       (a, b, c, d, e))                                                        \
  CALL(int, eventfd, EMFILE, -1, (unsigned a, int b), (a, b))                  \
  CALL(int, fallocate, ENOSPC, -1, (int a, int b, off_t c, off_t d),           \
       (a, b, c, d))                                                           \
  CALL(int, ftruncate, ENOSPC, -1, (int a, off_t b), (a, b))                   \
  CALL(int, getentropy, ENOSYS, -1, (void* a, size_t b), (a, b))               \
  CALL(ssize_t, getrandom, ENOSYS, -1, (void* a, size_t b, unsigned c),        \
       (a, b, c))                                                              \
  CALL(int, getifaddrs, ENOBUFS, -1, (struct ifaddrs * *a), (a))               \
  CALL(int, getsockname, ENOBUFS, -1,                                          \
       (int a, struct sockaddr* b, socklen_t* c), (a, b, c))                   \
  CALL(int, listen, EADDRINUSE, -1, (int a, int b), (a, b))                    \
  CALL(int, madvise, EAGAIN, -1, (void* a, size_t b, int c), (a, b, c))        \
  CALL(int, memfd_create, EMFILE, -1, (const char* a, unsigned b), (a, b))     \
  CALL(void*, mmap, ENOMEM, MAP_FAILED,                                        \
       (void* a, size_t b, int c, int d, int e, off_t f), (a, b, c, d, e, f))  \
  CALL(int, mprotect, ENOMEM, -1, (void* a, size_t b, int c), (a, b, c))       \
  CALL(DIR*, opendir, EMFILE, NULL, (const char* a), (a))                      \
  CALL(FILE*, fopen, EMFILE, NULL, (const char* a, const char* b), (a, b))     \
  CALL(FILE*, fopen64, EMFILE, NULL, (const char* a, const char* b), (a, b))   \
  CALL(int, pipe2, EMFILE, -1, (int a[2], int b), (a, b))                      \
  CALL(int, poll, ENOMEM, -1, (struct pollfd * a, nfds_t b, int c), (a, b, c)) \
  CALL(int, ppoll, ENOMEM, -1,                                                 \
       (struct pollfd * a, nfds_t b, const struct timespec* c,                 \
        const sigset_t* d),                                                    \
       (a, b, c, d))                                                           \
  CALL(ssize_t, process_vm_readv, EPERM, -1,                                   \
       (pid_t a, const struct iovec* b, unsigned long c,                       \
        const struct iovec* d, unsigned long e, unsigned long f),              \
       (a, b, c, d, e, f))                                                     \
  CALL(ssize_t, process_vm_writev, EPERM, -1,                                  \
       (pid_t a, const struct iovec* b, unsigned long c,                       \
        const struct iovec* d, unsigned long e, unsigned long f),              \
       (a, b, c, d, e, f))                                                     \
  CALL(int, pthread_create, EAGAIN, ErrorOf(EAGAIN),                           \
       (pthread_t * a, const pthread_attr_t* b, void* (*c)(void*), void* d),   \
       (a, b, c, d))                                                           \
  CALL(ssize_t, recv, ENOMEM, -1, (int a, void* b, size_t c, int d),           \
       (a, b, c, d))                                                           \
  CALL(ssize_t, recvmsg, ENOMEM, -1, (int a, struct msghdr* b, int c),         \
       (a, b, c))                                                              \
  CALL(int, sched_getaffinity, EINVAL, -1, (pid_t a, size_t b, cpu_set_t * c), \
       (a, b, c))                                                              \
  CALL(ssize_t, send, ENOBUFS, -1, (int a, const void* b, size_t c, int d),    \
       (a, b, c, d))                                                           \
  CALL(ssize_t, sendmsg, ENOBUFS, -1, (int a, const struct msghdr* b, int c),  \
       (a, b, c))                                                              \
  CALL(ssize_t, sendto, ENOBUFS, -1,                                           \
       (int a, const void* b, size_t c, int d, const struct sockaddr* e,       \
        socklen_t f),                                                          \
       (a, b, c, d, e, f))                                                     \
  CALL(int, setsockopt, ENOMEM, -1,                                            \
       (int a, int b, int c, const void* d, socklen_t e), (a, b, c, d, e))     \
  CALL(int, socket, EMFILE, -1, (int a, int b, int c), (a, b, c))              \
  CALL(int, socketpair, EMFILE, -1, (int a, int b, int c, int d[2]),           \
       (a, b, c, d))                                                           \
  CALL(int, stat, ENOMEM, -1, (const char* a, struct stat* b), (a, b))         \
  CALL(int, timerfd_create, EMFILE, -1, (clockid_t a, int b), (a, b))

// Those that fail in some cases only, or have arguments that may be left out,
// which are handed on all the same.
enum {
  kEpollCtlError = ENOSPC,
  kFcntlError = EMFILE,
  kOpenError = EMFILE,
  kReadError = EIO,
  kSyscallError = EMFILE,
  kWriteError = ENOSPC,
};

const struct FailingCall kFailingCalls[] = {
#define ENTRY(result, name, error, failure, parameters, arguments) \
  {#name, error},
    CALLS(ENTRY)
#undef ENTRY
        {"epoll_ctl", kEpollCtlError},
    {"fcntl", kFcntlError},
    {"open", kOpenError},
    {"read", kReadError},
    {"syscall", kSyscallError},
    {"write", kWriteError},
    {NULL, 0},
};

static _Atomic(const char*) failing = NULL;
static atomic_int number = 0;
static atomic_int made = 0;
static atomic_bool forbidden = false;

void FailCall(const char* name, int which) {
  made = 0;
  number = which;
  forbidden = false;
  failing = name;
}

void ForbidCall(const char* name) {
  made = 0;
  forbidden = true;
  failing = name;
}

int StopFailing(void) {
  failing = NULL;
  return made;
}

int CallFails(const char* name) {
  const char* const wanted = failing;
  return wanted != NULL && strcmp(wanted, name) == 0 &&
         (made++ == number || forbidden);
}

static int ErrorOf(int error) { return forbidden ? EPERM : error; }

// libc's function, or a sanitizer's in front of it.
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define DEFINE(result, name, error, failure, parameters, arguments) \
  result name parameters {                                          \
    static _Atomic(__typeof__(&name)) found; /* NULL at first */    \
    __typeof__(&name) next = found;                                 \
    if (next == NULL) {                                             \
      found = next = NEXT(name);                                    \
    }                                                               \
    if (CallFails(#name)) {                                         \
      errno = ErrorOf(error);                                       \
      return failure;                                               \
    }                                                               \
    return next arguments;                                          \
  }
CALLS(DEFINE)

// Only to add can fail; and Asio does not look at what became of its own event
// and timer, which are added so.
int epoll_ctl(int epoll, int operation, int descriptor,
              struct epoll_event* event) {
  if (operation == EPOLL_CTL_ADD &&
      (event->events & ~(unsigned)EPOLLET) != (EPOLLIN | EPOLLERR) &&
      CallFails("epoll_ctl")) {
    errno = kEpollCtlError;
    return -1;
  }
  return NEXT(epoll_ctl)(epoll, operation, descriptor, event);
}

// Of an eventfd, a timer and their like reading and writing cannot fail.
static int IsFile(int descriptor) {
  struct stat info;
  return NEXT(fstat)(descriptor, &info) == 0 && (info.st_mode & S_IFMT) != 0;
}

ssize_t read(int descriptor, void* bytes, size_t count) {
  if (IsFile(descriptor) && CallFails("read")) {
    errno = kReadError;
    return -1;
  }
  return NEXT(read)(descriptor, bytes, count);
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  if (IsFile(descriptor) && CallFails("write")) {
    errno = kWriteError;
    return -1;
  }
  return NEXT(write)(descriptor, bytes, count);
}

int fcntl(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  // Who forbids it forbids no more than seals.
  if ((!forbidden || command == F_ADD_SEALS) && CallFails("fcntl")) {
    errno = ErrorOf(kFcntlError);
    return -1;
  }
  return NEXT(fcntl)(descriptor, command, argument);
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const unsigned mode = va_arg(arguments, unsigned);
  va_end(arguments);
  if (CallFails("open")) {
    errno = kOpenError;
    return -1;
  }
  return NEXT(open)(path, flags, mode);
}

long syscall(long call, ...) {
  va_list arguments;
  va_start(arguments, call);
  long all[6];
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    all[i] = va_arg(arguments, long);
  }
  va_end(arguments);
  if (CallFails("syscall")) {
    errno = kSyscallError;
    return -1;
  }
  return NEXT(syscall)(call, all[0], all[1], all[2], all[3], all[4], all[5]);
}
