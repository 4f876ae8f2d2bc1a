// A name server that does not answer holds nobody up.
#include "bootstrap/resolver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
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
constexpr char kUnknownName[] = "is.unknown";
constexpr char kNameWithoutDescriptors[] = "needs.descriptors";

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
  if (host != nullptr && std::strcmp(host, kUnknownName) == 0) {
    return EAI_NONAME;
  }
  if (host != nullptr && std::strcmp(host, kNameWithoutDescriptors) == 0) {
    errno = EMFILE;
    return EAI_SYSTEM;
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

TEST(ResolverTest, AShortageEndsTheJoinAtOnceAsWhatItIs) {
  Bootstrap::Options options =
      MakeOptions(std::string(kNameWithoutDescriptors) + ":29600", 1, 2);
  options.secret = "s";
  options.deadline = Deadline::Infinite();
  ExpectSays(Bootstrap::Join(options).status(), StatusCode::kResourceExhausted,
             {"cannot resolve needs.descriptors", "EMFILE", "ulimit -n"});
  options.launch.rank = 0;
  // So that rank 0 has to know what its own name means.
  options.interfaces =
      NameFilter::Parse("=none77", NameFilter::Ports::kNone).value();
  ExpectSays(
      Bootstrap::Join(options).status(), StatusCode::kResourceExhausted,
      {"cannot resolve its own address needs.descriptors:29600", "EMFILE"});
}

TEST(ResolverTest, ANameThatNobodyKnowsIsNamedByRankZeroToo) {
  std::vector<Bootstrap::Options> all;
  for (const int rank : {0, 1}) {
    all.push_back(MakeOptions(std::string(kUnknownName) + ":29601", rank, 2));
    all.back().secret = "s";
    all.back().deadline = Deadline::After(kTimeToConnect);
  }
  const std::vector<Joined> ranks = JoinAll(all);
  ExpectSays(ranks[0].status(), StatusCode::kTimeout,
             {"rank(s) 1 of 2 did not join",
              "rank 0's host does not know the name is.unknown"});
  ExpectSays(ranks[1].status(), StatusCode::kTimeout,
             {"cannot resolve is.unknown"});
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
