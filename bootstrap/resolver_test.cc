// A name server that does not answer holds nobody up.
#include "bootstrap/resolver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <chrono>
#include <cstring>
#include <latch>
#include <string>

#include "base/liveness_bound.h"
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
  return real(host, service, hints, list);
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

}  // namespace
}  // namespace ringpipe
