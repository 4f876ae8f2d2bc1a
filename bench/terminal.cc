#include "bench/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace ringpipe {

bool TakesEscapes(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) == 1 && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr &&
         (term == nullptr || std::string_view(term) != "dumb");
}

bool TakesColours(int fd) {
  const char* refused = std::getenv("NO_COLOR");
  return TakesEscapes(fd) && (refused == nullptr || *refused == '\0');
}

int TerminalColumns(int fd) {
  constexpr int kUnknown = 10'000;
  int columns = kUnknown;
  winsize window = {};
  if (ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) {
    columns = window.ws_col;
  }
  const char* variable = std::getenv("COLUMNS");
  const int wanted = variable == nullptr ? 0 : std::atoi(variable);
  if (wanted > 0) {
    columns = std::min(columns, wanted);
  }
  return columns == kUnknown ? 80 : columns;
}

}  // namespace ringpipe
