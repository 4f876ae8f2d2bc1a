// A file that appears whole or not at all.
#ifndef RINGPIPE_BENCH_ATOMIC_FILE_H_
#define RINGPIPE_BENCH_ATOMIC_FILE_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace ringpipe {

// Whether WriteAtomically(path, ...) would be allowed: an error that names the
// path and the reason where its directory cannot be written, or where it is
// there and no regular file. Leaves nothing behind.
Status CheckWritable(const std::string& path);

// Writes `text` to a temporary file beside `path` and renames it. A symbolic
// link stays one; its target is replaced.
Status WriteAtomically(const std::string& path, std::string_view text);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_ATOMIC_FILE_H_
