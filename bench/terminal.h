// What a program may write to a terminal.
#ifndef RINGPIPE_BENCH_TERMINAL_H_
#define RINGPIPE_BENCH_TERMINAL_H_

namespace ringpipe {

// Whether `fd` is a terminal that understands escape sequences: not with
// TERM=dumb, and not that of a rank under Open MPI's launcher, which gives it
// one wherever the output goes in the end.
bool TakesEscapes(int fd);
// The same for colours, which the user may not want: NO_COLOR is set
// (https://no-color.org).
bool TakesColours(int fd);

// Columns of the terminal `fd`: what the terminal says (TIOCGWINSZ) or the
// variable COLUMNS, the smaller where both are known; 80 where neither is.
int TerminalColumns(int fd);

// Returns the cursor to the beginning of its line and empties the line.
inline constexpr char kClearLine[] = "\r\033[K";

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_TERMINAL_H_
