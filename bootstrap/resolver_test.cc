// A name server that does not answer holds nobody up.
#include "bootstrap/resolver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstring>
#include <latch>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/liveness_bound.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/test_job.h"

namespace {

constexpr char kSilentName[] = "never.answers";

std::latch& EndOfTest() {
  static auto* const latch = new std::latch(1);
  return *latch;
}
std::latch& EndOfQuestion() {
  static auto* const latch = new std::latch(1);
  return *latch;
}

}  // namespace

// In this program it is called instead of libc's.
extern "C" int getaddrinfo(const char* host, const char* service,
                           const addrinfo* hints, addrinfo** list) {
  if (host != nullptr && std::strcmp(host, kSilentName) == 0) {
    EndOfTest().wait();
    EndOfQuestion().count_down();
    return EAI_AGAIN;
  }
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (host == nullptr || std::strcmp(host, "localhost") != 0) {
    return real(host, service, hints, list);
  }
  // As where two lines of /etc/hosts name it.
  const int error = real("127.0.0.1", service, hints, list);
  return error != 0 ? error
                    : real("127.0.0.1", service, hints, &(*list)->ai_next);
}

namespace ringpipe {
namespace {

TEST(ResolverTest, ASilentNameServerHoldsNoJoinBeyondItsDeadline) {
  Bootstrap::Options options =
      MakeOptions(std::string(kSilentName) + ":29600", 1, 2);
  options.secret = "s";
  options.deadline = Deadline::After(std::chrono::milliseconds(200));
  const auto start = Clock::now();
  ExpectSays(Bootstrap::Join(options).status(), StatusCode::kTimeout,
             {"no answer yet from the system for the name never.answers"});
  EXPECT_LT(Clock::now() - start, LivenessBound(std::chrono::seconds(1)));
  EndOfTest().count_down();
  EndOfQuestion().wait();
}

TEST(ResolverTest, AnAddressThatANameHasTwiceIsListenedToOnce) {
  const Endpoint any(boost::asio::ip::tcp::endpoint(
      boost::asio::ip::make_address("127.0.0.1"), 0));
  sockaddr_in free_one = {};
  {
    const FileDescriptor fd = OpenListening(any).value();
    std::memcpy(&free_one, OwnSide(fd.get()).data(), sizeof(free_one));
  }
  std::vector<Bootstrap::Options> all;
  for (const int rank : {0, 1}) {
    all.push_back(MakeOptions(
        "localhost:" + std::to_string(ntohs(free_one.sin_port)), rank, 2));
    all.back().secret = "s";
    all.back().deadline = Soon();
  }
  for (const Joined& joined : JoinAll(all)) {
    EXPECT_TRUE(joined.ok()) << joined.status().ToString();
  }
}

}  // namespace
}  // namespace ringpipe
