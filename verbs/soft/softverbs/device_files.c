// For LD_PRELOAD: answers what programs ask the kernel about the device, in
// files of /dev and /sys, instead of verbs.
//
// UCX takes a device for usable only if /dev/infiniband/NAME is a character
// device that it may read and write (stat and access, see its ib_md.c and
// ib_device.c). The software device has no file, and one cannot be made
// without privileges. So questions about exactly that path are asked about
// /dev/null instead, which is such a device everywhere. Any other path goes
// through as it is.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char kDeviceFile[] = "/dev/infiniband/soft0";
static const char kStandIn[] = "/dev/null";

static const char* Redirect(const char* path) {
  return path != NULL && strcmp(path, kDeviceFile) == 0 ? kStandIn : path;
}

// The function of that name that this one is in front of: libc's, or another
// preloaded library's. Looked up at each call: rare ones, and no state.
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int stat(const char* path, struct stat* out) {
  return NEXT(stat)(Redirect(path), out);
}

int lstat(const char* path, struct stat* out) {
  return NEXT(lstat)(Redirect(path), out);
}

int stat64(const char* path, struct stat64* out) {
  return NEXT(stat64)(Redirect(path), out);
}

int lstat64(const char* path, struct stat64* out) {
  return NEXT(lstat64)(Redirect(path), out);
}

int access(const char* path, int mode) {
  return NEXT(access)(Redirect(path), mode);
}

int faccessat(int directory, const char* path, int mode, int flags) {
  return NEXT(faccessat)(directory, Redirect(path), mode, flags);
}

// What stat() was before glibc 2.33, in programs that were linked then.
// NOLINTNEXTLINE(clang-diagnostic-reserved-identifier): the C library's name.
int __xstat(int version, const char* path, struct stat* out);
int __xstat(int version, const char* path, struct stat* out) {
  return NEXT(__xstat)(version, Redirect(path), out);
}

// NOLINTNEXTLINE(clang-diagnostic-reserved-identifier): the C library's name.
int __xstat64(int version, const char* path, struct stat64* out);
int __xstat64(int version, const char* path, struct stat64* out) {
  return NEXT(__xstat64)(version, Redirect(path), out);
}

// The type of a GID, which UCX (uct_ib_device_query_gid_info) reads in sysfs
// and not through verbs: without it UCX takes an Ethernet device for RoCE v1,
// and drops each datagram because its header is one of RoCE v2. Returns a file
// with the answer, -1 with errno; -2: `path` asks something else.
static int OpenGidType(const char* path) {
  static const char kTypes[] =
      "/sys/class/infiniband/soft0/ports/1/gid_attrs/types/";
  if (path == NULL || strncmp(path, kTypes, sizeof kTypes - 1) != 0) {
    return -2;
  }
  const char* link_layer = getenv("RINGPIPE_SOFT_LINK_LAYER");
  const char* type = link_layer != NULL && strcmp(link_layer, "infiniband") == 0
                         ? "IB/RoCE v1\n"
                         : "RoCE v2\n";
  const int file = memfd_create("gid_type", MFD_CLOEXEC);
  if (file >= 0 &&
      (write(file, type, strlen(type)) < 0 || lseek(file, 0, SEEK_SET) != 0)) {
    close(file);
    return -1;
  }
  return file;
}

typedef int (*OpenFunction)(const char* path, int flags, ...);

// `arguments` has the mode, where a file may be made.
static int Open(OpenFunction next, const char* path, int flags,
                va_list arguments) {
  const int gid_type = OpenGidType(path);
  if (gid_type != -2) {
    return gid_type;
  }
  if ((flags & O_CREAT) == 0 && (flags & O_TMPFILE) != O_TMPFILE) {
    return next(Redirect(path), flags);
  }
  return next(Redirect(path), flags, va_arg(arguments, mode_t));
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int file = Open(NEXT(open), path, flags, arguments);
  va_end(arguments);
  return file;
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int file = Open(NEXT(open64), path, flags, arguments);
  va_end(arguments);
  return file;
}
