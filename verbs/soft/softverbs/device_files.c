// For LD_PRELOAD: answers what programs ask about the device's file.
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
#include <string.h>
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
int __xstat(int version, const char* path, struct stat* out);
int __xstat(int version, const char* path, struct stat* out) {
  return NEXT(__xstat)(version, Redirect(path), out);
}

int __xstat64(int version, const char* path, struct stat64* out);
int __xstat64(int version, const char* path, struct stat64* out) {
  return NEXT(__xstat64)(version, Redirect(path), out);
}

// The mode is there if a file may be made.
#define OPEN(name)                                           \
  int name(const char* path, int flags, ...) {               \
    mode_t mode = 0;                                         \
    if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) { \
      va_list arguments;                                     \
      va_start(arguments, flags);                            \
      mode = va_arg(arguments, mode_t);                      \
      va_end(arguments);                                     \
    }                                                        \
    return NEXT(name)(Redirect(path), flags, mode);          \
  }

OPEN(open)
OPEN(open64)
