// Text for standard output or error, with errors that are noticed.
#ifndef RINGPIPE_BENCH_TEXT_OUTPUT_H_
#define RINGPIPE_BENCH_TEXT_OUTPUT_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace ringpipe {

// One thread.
class TextOutput {
 public:
  // `name` is for messages: "standard output". While `stop_fd` (or -1) is
  // readable nothing is written, so that a reader who does not read does not
  // keep a run from ending.
  TextOutput(int fd, std::string name, int stop_fd)
      : fd_(fd), name_(std::move(name)), stop_fd_(stop_fd) {}

  // All of `text`, at once. The reason where that fails: a full disk, a closed
  // descriptor; kAborted where `stop_fd` said stop. Once it has failed, it
  // fails for good. SIGPIPE is to be ignored.
  Status Write(std::string_view text);

  // Whether it failed because nobody reads any more, as in "| head": no error
  // to tell anybody about.
  bool reader_left() const { return reader_left_; }

 private:
  Status WritePart(std::string_view& text);

  const int fd_;
  const std::string name_;
  const int stop_fd_;
  Status status_;
  bool reader_left_ = false;
};

// Gives each of standard input, output and error that is closed a descriptor
// that fails to be read or written, so that no file that is opened later takes
// its place and gets the program's text.
void OccupyStandardDescriptors();

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_TEXT_OUTPUT_H_
