#ifndef RINGPIPE_BASE_IO_LOOP_H_
#define RINGPIPE_BASE_IO_LOOP_H_

#include <boost/asio/io_context.hpp>
#include <utility>  // before Asio: Boost 1.74 needs it there

#include "base/file_descriptor.h"

namespace ringpipe {

// An io_context for one thread that runs it, which notices when another part of
// the program has closed its descriptors (closefrom): Asio itself would wait,
// or spin, for ever.
class IoLoop {
 public:
  // Throws std::system_error, or Boost's, where descriptors have run out.
  IoLoop();
  // Nobody runs it any more. Does not close files that have got its numbers.
  ~IoLoop();
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;

  boost::asio::io_context& context();

  // Whether its descriptors are there. Where they are not, whatever touches the
  // context's descriptors (post, stop) must be left alone.
  bool is_intact() const { return watched_.IsOpen(); }

  // io_context::run, which also returns once the loop is no longer intact,
  // after kGlance at most. Throws what handlers throw.
  void Run();

 private:
  struct Context;

  Context* context_;
  // Nothing goes by it: its number says whether the others are closed.
  FileDescriptor watched_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_IO_LOOP_H_
