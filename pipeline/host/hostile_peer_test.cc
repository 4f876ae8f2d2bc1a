// A peer that writes anything at all wherever it can, a million times: this
// rank's end of the connection goes on or has an error. It never reads or
// writes memory that is not for that.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "pipeline/host/host_connection.h"
#include "pipeline/host/host_transport.h"
#include "pipeline/host/region_memory.h"

namespace ringpipe {
namespace {

constexpr int kRuns = 1'000'000;
constexpr int kStepsPerRun = 24;
constexpr std::uint32_t kBytes = 256;
constexpr std::uint32_t kSlots = 8;
constexpr std::byte kCanary{0x5A};

std::string Describe(const Digest& digest) {
  return "call " + std::to_string(digest.sequence);
}

// Memory in a region of which every second piece may be used.
class Pieces {
 public:
  explicit Pieces(const std::shared_ptr<Region>& region)
      : memory_(std::make_shared<RegionMemory>(region)),
        all_(memory_->Allocate(std::size_t{2} * kSlots * kBytes).value()) {
    std::fill_n(all_.data(), 2 * kSlots * kBytes, kCanary);
  }

  Memory at(std::uint32_t index) {
    return {all_.data() + (2 * (index % kSlots) + 1) * kBytes, kBytes, nullptr};
  }
  bool between_are_unchanged() {
    bool unchanged = true;
    for (std::uint32_t index = 0; index < kSlots; ++index) {
      const std::byte* const between = all_.data() + 2 * index * kBytes;
      unchanged &= std::all_of(between, between + kBytes, [](std::byte value) {
        return value == kCanary;
      });
    }
    return unchanged;
  }

 private:
  std::shared_ptr<RegionMemory> memory_;
  Allocation all_;
};

// Reads whatever arrives, as a reduction would.
class Reader final : public Connection::Events {
 public:
  Status Arrived(Instance instance, const std::byte* data,
                 std::uint32_t bytes) override {
    for (std::uint32_t i = 0; i < bytes; ++i) {
      sum_ += static_cast<unsigned>(data[i]);
    }
    arrived.push_back(instance);
    return Status::Ok();
  }
  Status Sent(Instance /*instance*/) override { return Status::Ok(); }

  std::vector<Instance> arrived;

 private:
  unsigned sum_ = 0;
};

// Rank 0 is the victim; rank 1 writes.
class Duel {
 public:
  explicit Duel(unsigned seed)
      : random_(seed),
        own_(HostTransport::CreateRegion(0, 2).value()),
        peers_(HostTransport::CreateRegion(1, 2).value()),
        own_pieces_(own_),
        peers_pieces_(peers_) {}

  // Whether the victim had an error.
  bool Run() {
    Reset();
    Waker waker(2);
    CallLines lines(header(), waker, check_, 2);
    HostConnection connection(0, 1, own_, lines);
    RegionPeer peer;
    peer.region = peers_;
    connection.other().Attach(std::move(peer));
    Reader reader;
    digest_ = {.sequence = random_() % 4};
    check_.Begin(digest_);
    connection.Begin({&digest_, Flip(), Flip(), Flip()});
    lines.Begin(digest_.sequence);
    for (int step = 0; step < kStepsPerRun; ++step) {
      Flip() ? Attack(lines) : Agree(lines);
      if (!Act(connection, reader).ok()) {
        return true;
      }
    }
    return false;
  }

  // What the victim has not given away; a peer's own memory is its business.
  bool memory_is_unchanged() { return own_pieces_.between_are_unchanged(); }

 private:
  RegionHeader& header() { return RegionHeader::Of(*own_); }
  RegionHeader& peers_header() { return RegionHeader::Of(*peers_); }
  Inbox& inbox() { return header().inbox(1); }
  bool Flip() { return random_() % 2 == 0; }

  void Reset() {
    for (Region* region : {own_.get(), peers_.get()}) {
      std::memset(region->header(), 0, RegionHeader::Bytes(2));
    }
    number_ = 0;
    expected_ = 0;
  }

  // A number that looks right, one beside a limit, or any.
  std::uint64_t Any() {
    switch (random_() % 6) {
      case 0:
        return random_() % 4;
      case 1:
        return random_() % (4 * kBytes);
      case 2:
        return *peers_->OffsetOf(peers_pieces_.at(0).data, kBytes) -
               random_() % 3 + 1;
      case 3:
        return ~std::uint64_t{0} - random_() % 5000;
      case 4:
        return std::uint64_t{1} << random_() % 64;
      default:
        return random_();
    }
  }

  Space AnySpace() { return static_cast<Space>(random_() % 6); }

  // Writes one word, somewhere.
  void Attack(const CallLines& lines) {
    const std::size_t at = random_() % kWindow;
    switch (random_() % 8) {
      case 0:
        inbox().messages[at].address = Any();
        inbox().messages[at].space = AnySpace();
        break;
      case 1:
        inbox().messages[at].bytes = static_cast<std::uint32_t>(Any());
        break;
      case 2:
        inbox().targets[at].address = Any();
        inbox().targets[at].space = AnySpace();
        inbox().targets[at].number = Flip() ? at : Any();
        break;
      case 3:
        inbox().released[at] = Flip() ? at : Any();
        break;
      case 4:
        inbox().taken = Any();
        break;
      case 5:
        peers_header().calls[lines.call() % 2].payload =
            static_cast<std::uint32_t>(Any());
        break;
      case 6:
        peers_header().failure.bytes = static_cast<std::uint32_t>(Any());
        peers_header().failure.code = static_cast<std::uint32_t>(Any());
        peers_header().failure.state = static_cast<std::uint32_t>(Any() % 4);
        break;
      default:
        Scribble();
        break;
    }
  }

  void Scribble() {
    std::byte* const base =
        Flip() ? reinterpret_cast<std::byte*>(&inbox()) : peers_->header();
    const std::size_t bytes =
        base == peers_->header() ? RegionHeader::Bytes(2) : sizeof(Inbox);
    const std::uint64_t word = Any();
    std::memcpy(base + random_() % (bytes / sizeof word) * sizeof word, &word,
                sizeof word);
  }

  // What a peer does that keeps to the rules, but for the values: so that the
  // victim comes far.
  void Agree(const CallLines& lines) {
    CallLine& line = peers_header().calls[lines.call() % 2];
    Inbox::Entry& message = inbox().messages[(number_ + 1) % kWindow];
    Inbox::Entry& target = inbox().targets[(number_ + 1) % kWindow];
    switch (random_() % 3) {
      case 0:
        line.check = check_.word();
        line.call = lines.call();
        break;
      case 1:
        message.address =
            Flip() ? *peers_->OffsetOf(peers_pieces_.at(1).data, kBytes)
                   : Any();
        message.bytes = Flip() ? kBytes : static_cast<std::uint32_t>(Any());
        message.space = AnySpace();
        message.number = ++number_;
        break;
      default:
        target.address = *peers_->OffsetOf(peers_pieces_.at(2).data, kBytes);
        target.space = AnySpace();
        target.bytes = Flip() ? kBytes : static_cast<std::uint32_t>(Any());
        target.number = number_ + 1;
        break;
    }
  }

  // One step of the victim's.
  Status Act(HostConnection& connection, Reader& reader) {
    switch (random_() % 6) {
      case 0:
        if (connection.CanExpect()) {
          ++expected_;
          connection.Expect({0, expected_},
                            Flip() ? own_pieces_.at(expected_) : Memory());
        }
        return Status::Ok();
      case 1: {
        RINGPIPE_ASSIGN_OR_RETURN(const bool can, connection.CanSend());
        return can ? connection.Send({0, 0}, own_pieces_.at(0)).status()
                   : Status::Ok();
      }
      case 2:
        return connection.Progress(reader).status();
      case 3:
        if (reader.arrived.empty()) {
          return Status::Ok();
        }
        static_cast<void>(connection.Release(reader.arrived.back()));
        reader.arrived.pop_back();
        return Status::Ok();
      case 4:
        return connection.failure();
      default:
        return connection.Poll(reader).status();
    }
  }

  std::mt19937_64 random_;
  const std::shared_ptr<Region> own_;
  const std::shared_ptr<Region> peers_;
  Pieces own_pieces_;
  Pieces peers_pieces_;
  CallCheck check_{0, &Describe};
  Digest digest_;
  std::uint64_t number_ = 0;    // of the peer's messages
  std::uint32_t expected_ = 0;  // of the victim's
};

TEST(HostilePeer, MakesNoMoreThanAnError) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  Duel duel(seed);
  int errors = 0;
  for (int run = 0; run < kRuns; ++run) {
    errors += duel.Run() ? 1 : 0;
    if (run % 1000 == 0) {
      ASSERT_TRUE(duel.memory_is_unchanged()) << run;
    }
  }
  ASSERT_TRUE(duel.memory_is_unchanged());
  // Neither does it go unnoticed, nor is every run at its end at once.
  EXPECT_GT(errors, kRuns / 10);
  EXPECT_LT(errors, kRuns * 9 / 10);
}

}  // namespace
}  // namespace ringpipe
