#ifndef RINGPIPE_BOOTSTRAP_RESOLVER_H_
#define RINGPIPE_BOOTSTRAP_RESOLVER_H_

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>  // before Asio: Boost 1.74 needs it there
#include <vector>

#include "base/status.h"
#include "bootstrap/endpoint.h"

namespace ringpipe {

// Asks the system for the addresses of a host. A name server that does not
// answer holds getaddrinfo for 10 s and more, which nothing interrupts; so it
// has a thread of its own, for which nobody waits (Asio's would be waited for).
// The io_context's one thread, but for the destructor: when that runs no more.
class Resolver {
 public:
  using Done = std::function<void(Result<std::vector<Endpoint>>)>;

  explicit Resolver(boost::asio::io_context* io);
  ~Resolver() { Cancel(); }
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Calls `done` later, unless Cancel or another Resolve comes before:
  // kUnavailable, with the system's words, where there is no address, and
  // kResourceExhausted where there is no thread, descriptor or memory to ask
  // with. For a literal address the system is not asked.
  void Resolve(const std::string& host, uint16_t port, Done done);
  void Cancel();

 private:
  struct Question;

  boost::asio::io_context* const io_;
  std::shared_ptr<Question> question_;  // the latest
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_RESOLVER_H_
