#ifndef RINGPIPE_BASE_LIST_DIRECTORY_H_
#define RINGPIPE_BASE_LIST_DIRECTORY_H_

#include <string>
#include <vector>

namespace ringpipe {

// The names in a folder, without "." and "..", sorted; what can be read of it:
// none where it is not there. Throws std::bad_alloc, where
// std::filesystem::directory_iterator of libstdc++ ends the process.
std::vector<std::string> ListDirectory(const std::string& path);

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_LIST_DIRECTORY_H_
