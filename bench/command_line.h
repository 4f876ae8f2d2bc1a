// Reads a command line by CLI11, with errors that say what to do.
#ifndef RINGPIPE_BENCH_COMMAND_LINE_H_
#define RINGPIPE_BENCH_COMMAND_LINE_H_

#include <string>

#include "base/status.h"

namespace CLI {
class App;
}

namespace ringpipe {

// Sets what `app` has options for. Returns the help where it was asked for,
// else nothing. kInvalidArgument names the word that is wrong, as it was typed,
// and the option that may have been meant.
Result<std::string> ParseCommandLine(CLI::App& app, int argc,
                                     const char* const* argv);

// A path that the user gave, seen from where the user is; "-" stays "-".
std::string PathFrom(const std::string& directory, const std::string& path);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_COMMAND_LINE_H_
