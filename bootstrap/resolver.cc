#include "bootstrap/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "base/signals_blocked.h"
#include "base/thread_shortage.h"

namespace ringpipe {
namespace {

using boost::asio::ip::tcp;

bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == EAGAIN ||
         error == ENOMEM || error == ENOBUFS;
}

// None where it is a name, for which the system has to be asked.
std::optional<Endpoint> Literal(const std::string& host, uint16_t port) {
  namespace ip = boost::asio::ip;
  boost::system::error_code is_name;
  ip::address address = ip::make_address(host, is_name);
  if (is_name) {
    return std::nullopt;
  }
  if (host.find('%') != std::string::npos && address.to_v6().scope_id() == 0) {
    return std::nullopt;  // of an interface that this host does not have
  }
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = ip::make_address_v4(ip::v4_mapped, address.to_v6());
  }
  return tcp::endpoint(address, port);
}

Result<std::vector<Endpoint>> Ask(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error == EAI_SYSTEM) {
    return ErrnoStatus(IsShortage(errno) ? StatusCode::kResourceExhausted
                                         : StatusCode::kUnavailable,
                       "getaddrinfo", errno);
  }
  if (error != 0) {
    return Status(error == EAI_MEMORY ? StatusCode::kResourceExhausted
                                      : StatusCode::kUnavailable,
                  gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(list,
                                                               &freeaddrinfo);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    endpoints.emplace_back(i->ai_addr, i->ai_addrlen);
  }
  if (endpoints.empty()) {
    return Status(StatusCode::kUnavailable, "it has no address");
  }
  return endpoints;
}

}  // namespace

// What the asking thread and the Resolver share; the thread may outlive it.
struct Resolver::Question {
  std::mutex mutex;
  boost::asio::io_context* io;  // nullptr: nobody wants to know any more
  Done done;                    // on the io thread

  void Answer(const std::shared_ptr<Question>& self,
              Result<std::vector<Endpoint>> endpoints) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (io == nullptr) {
      return;
    }
    boost::asio::post(*io, [self, endpoints = std::move(endpoints)]() mutable {
      if (Done tell = std::exchange(self->done, nullptr)) {
        tell(std::move(endpoints));
      }
    });
  }
};

Resolver::Resolver(boost::asio::io_context* io) : io_(io) {}

void Resolver::Resolve(const std::string& host, uint16_t port, Done done) {
  Cancel();
  question_ = std::make_shared<Question>();
  question_->io = io_;
  question_->done = std::move(done);
  if (const std::optional<Endpoint> literal = Literal(host, port)) {
    question_->Answer(question_, std::vector<Endpoint>{*literal});
    return;
  }
  const SignalsBlocked blocked;
  try {
    std::thread([question = question_, host, port] {
      try {
        question->Answer(question, Ask(host, port));
      } catch (const std::bad_alloc&) {
        // Nobody hears of it; the deadline of the join ends that.
      }
    }).detach();
  } catch (const std::system_error& error) {
    question_->Answer(question_, ThreadShortage("starting a thread for it",
                                                error.code().value()));
  }
}

void Resolver::Cancel() {
  if (question_ == nullptr) {
    return;
  }
  const std::lock_guard<std::mutex> lock(question_->mutex);
  question_->io = nullptr;
  question_->done = nullptr;
}

}  // namespace ringpipe
