// Files in memory that processes share: sealed, so that whoever maps one cannot
// be hurt (SIGBUS) by another who makes it shorter. All thread-safe.
#ifndef RINGPIPE_BASE_SHARED_FILE_H_
#define RINGPIPE_BASE_SHARED_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "base/file_descriptor.h"

namespace ringpipe {

// A new one of `bytes`, all zero, which nobody can make shorter. None, with
// errno, where it cannot be had; `failed`, if it is given, is then the name of
// the system call. `name` is for /proc/PID/maps.
FileDescriptor CreateSharedFile(const char* name, std::uint64_t bytes,
                                const char** failed = nullptr);

// Whether to read the first `bytes` of a mapping of `file`, which a peer sent,
// can do no harm: it is in memory, that long, and sealed.
bool IsSharedFile(const FileDescriptor& file, std::uint64_t bytes);

// As ftruncate. Where a limit (ulimit -f) would have the kernel send SIGXFSZ it
// is an error, EFBIG.
bool SetFileBytes(const FileDescriptor& file, std::uint64_t bytes);

// The length; nullopt, with errno, where the kernel does not say.
std::optional<std::uint64_t> FileBytes(const FileDescriptor& file);

// False, with errno, where the process, or its control group, may not have that
// much more memory: the kernel would end a process where pages are touched.
bool IsMemoryLeft(std::uint64_t bytes);

// Gives [offset, offset + bytes) pages of its own, zero where it had none, so
// that no access to them can raise SIGBUS; the file grows where it is shorter,
// and shrinks never. False, with errno, where there is not that much memory, or
// as SetFileBytes; then the pages in the range are gone.
bool AllocatePages(const FileDescriptor& file, std::uint64_t offset,
                   std::uint64_t bytes);
// Gives the whole pages in the range back to the system: they read as zero.
void FreePages(const FileDescriptor& file, std::uint64_t offset,
               std::uint64_t bytes);

// The same of two descriptors only if they are of the same file.
using FileIdentity = std::pair<dev_t, ino_t>;
std::optional<FileIdentity> IdentityOf(const FileDescriptor& file);

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_SHARED_FILE_H_
