#include "pipeline/test_network.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"

namespace ringpipe {
namespace {

constexpr std::uint32_t kEagerSizes[] = {0, 64, 4096};
constexpr std::uint32_t kPieces[] = {1, 2, 8};

// What a rank decides at will, and its sleep. Its own thread, but for Wake.
class Rank {
 public:
  explicit Rank(std::uint64_t seed)
      : random_(seed), wakes_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  std::size_t Draw(std::size_t below) { return random_() % below; }
  // Whether it leaves for later what it could do now. It does not sleep before
  // it has looked again.
  bool Defers() {
    const bool defers = Draw(3) == 0;
    if (defers) {
      deferred_ = true;
      Wake();
    }
    return defers;
  }

  int fd() const { return wakes_.get(); }
  void Arm() {
    armed_ = true;
    if (std::exchange(deferred_, false)) {
      Wake();
    }
  }
  void Consume() {
    std::uint64_t wakes = 0;
    static_cast<void>(!read(fd(), &wakes, sizeof wakes));
  }
  void Wake() {
    if (armed_.exchange(false)) {
      const std::uint64_t one = 1;
      static_cast<void>(!write(fd(), &one, sizeof one));
    }
  }

  std::atomic<bool> gone = false;

 private:
  std::mt19937_64 random_;
  const FileDescriptor wakes_;
  std::atomic<bool> armed_ = false;
  bool deferred_ = false;
};

// Messages from one rank to another.
struct Stream {
  struct Message {
    Instance instance;
    std::vector<Memory> source;
    bool eager = false;
    std::vector<std::byte> copy = {};  // where eager: the source

    std::uint32_t bytes() const {
      std::uint32_t sum = 0;
      for (const Memory& piece : source) {
        sum += piece.bytes;
      }
      return sum;
    }
  };
  struct Expected {
    Instance instance;
    Memory target;
    bool eager = false;
  };
  struct Arrival {
    Instance instance;
    const std::byte* data = nullptr;
    std::uint32_t bytes = 0;
  };
  // An arrival without a target, until Release.
  struct Lent {
    Instance receive;
    Message message;
  };

  Stream(Rank& its_sender, Rank& its_receiver)
      : sender(its_sender), receiver(its_receiver) {}

  // Whether an n-th message was sent, and an n-th expected.
  bool meets() const { return !on_wire.empty() && !expected.empty(); }
  // They differ where the calls do, which the first messages will say.
  bool alike() const { return on_wire.front().eager == expected.front().eager; }
  void Deliver();
  void FreeSource(const Message& message) {
    if (!message.eager) {
      sent.push_back(message.instance);
      sender.Wake();
    }
  }

  Rank& sender;
  Rank& receiver;
  std::deque<Digest> firsts;
  std::deque<Message> on_wire;
  std::deque<Expected> expected;
  std::deque<Lent> lent;
  // Reports that were not made yet.
  std::deque<Arrival> arrived;
  std::deque<Instance> sent;
};

void Stream::Deliver() {
  Message message = std::move(on_wire.front());
  on_wire.pop_front();
  const Expected next = expected.front();
  expected.pop_front();
  const std::uint32_t bytes = message.bytes();
  if (next.target.data == nullptr) {
    arrived.push_back({next.instance, message.source.front().data, bytes});
    lent.push_back({next.instance, std::move(message)});
  } else {
    std::uint32_t done = 0;
    for (const Memory& piece : message.source) {
      const std::uint32_t part =
          std::min(piece.bytes, next.target.bytes - done);
      std::copy_n(piece.data, part, next.target.data + done);
      done += part;
    }
    arrived.push_back({next.instance, next.target.data, bytes});
    FreeSource(message);
  }
  receiver.Wake();
}

}  // namespace

struct TestNetwork::Shared {
  explicit Shared(const Options& its_options)
      : options(its_options),
        mutexes(static_cast<std::size_t>(its_options.size) * its_options.size) {
    for (int rank = 0; rank < options.size; ++rank) {
      ranks.emplace_back(options.seed * 1'000'003 + rank);
    }
    for (Rank& from : ranks) {
      for (Rank& to : ranks) {
        streams.emplace_back(from, to);
      }
    }
  }

  std::mutex& MutexOf(int a, int b) {
    return mutexes[std::min(a, b) * options.size + std::max(a, b)];
  }

  Stream& Between(int from, int to) {
    return streams[from * options.size + to];
  }
  bool Connects(int a, int b) const {
    return a != b && (!options.connects || options.connects(a, b));
  }
  Abilities AbilitiesOf(int a, int b) const {
    const int low = std::min(a, b);
    const int high = std::max(a, b);
    if (options.abilities) {
      return options.abilities(low, high);
    }
    std::mt19937_64 pair(options.seed * 1'000'003 + low * options.size + high);
    const bool reads = pair() % 2 == 0;
    return {.reads_peer = reads,
            .pieces = reads ? 1 : kPieces[pair() % 3],
            .eager_bytes = kEagerSizes[pair() % 3]};
  }

  const Options options;
  std::deque<Rank> ranks;
  std::deque<std::mutex> mutexes;  // one for the two streams of a pair
  std::deque<Stream> streams;      // from * size + to
};

class TestNetwork::LooseConnection final : public Connection {
 public:
  LooseConnection(Shared& shared, int rank, int peer, const CallCheck& check)
      : Connection(peer),
        rank_(rank),
        abilities_(shared.AbilitiesOf(rank, peer)),
        check_(check),
        self_(shared.ranks[rank]),
        peer_(shared.ranks[peer]),
        mutex_(shared.MutexOf(rank, peer)),
        out_(shared.Between(rank, peer)),
        in_(shared.Between(peer, rank)) {}

  Abilities abilities() const override { return abilities_; }

  void Begin(const Call& call) override {
    digest_ = *call.digest;
    first_sent_ = agreed_ = false;
    sends_eagerly_ = call.eager && call.sends;
    expects_eager_ = call.eager && call.receives;
  }
  bool agreed() const override { return agreed_; }

  bool CanExpect() const override { return !self_.Defers(); }

  Result<bool> CanSend() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool room = sends_eagerly_ ||
                      (agreed_ && out_.expected.size() > out_.on_wire.size());
    return room && !self_.Defers();
  }

  void Expect(Instance instance, const Memory& target) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (target.data != nullptr && self_.Draw(2) == 0) {
      std::memset(target.data, 0xA5, target.bytes);
    }
    in_.expected.push_back(
        {instance, target, std::exchange(expects_eager_, false)});
    peer_.Wake();
  }

  Result<bool> Send(Instance instance, Pieces source) override {
    const bool eager = std::exchange(sends_eagerly_, false);
    Stream::Message message = {instance, {source.begin(), source.end()}, eager};
    if (eager) {
      SendFirst();
      const Memory& whole = source.front();
      message.copy.assign(whole.data, whole.data + whole.bytes);
      message.source[0].data = message.copy.data();
    } else {
      ++sources_in_use_;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    out_.on_wire.push_back(std::move(message));
    peer_.Wake();
    return eager;
  }

  Status Release(Instance instance) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto lent = std::find_if(
        in_.lent.begin(), in_.lent.end(),
        [&](const Stream::Lent& one) { return one.receive == instance; });
    if (lent == in_.lent.end()) {
      return {StatusCode::kInternal, "released what was not lent"};
    }
    in_.FreeSource(lent->message);
    in_.lent.erase(lent);
    return Status::Ok();
  }

  Result<bool> Progress(Events& /*events*/) override {
    return !sends_eagerly_ && SendFirst();
  }

  bool holds_back() const override { return !first_sent_ && sends_eagerly_; }
  Status Announce() override {
    SendFirst();
    return Status::Ok();
  }

  bool sending() const override { return sources_in_use_ > 0; }
  // Whatever happens wakes.
  Status PrepareToSleep(bool /*starved*/) override { return Status::Ok(); }
  Status Probe() override { return Status::Ok(); }

  // Takes some of what has happened.
  Result<bool> Poll(Events& events) {
    if (peer_.gone) {
      return Status(StatusCode::kPeerLost,
                    "the connection of rank " + std::to_string(rank_) +
                        " to rank " + std::to_string(peer()) + " failed");
    }
    RINGPIPE_ASSIGN_OR_RETURN(bool happened, Move());
    if (!has_reports_) {
      return happened;
    }
    while (const auto sent = TakeAny(out_.sent)) {
      --sources_in_use_;
      RINGPIPE_RETURN_IF_ERROR(events.Sent(*sent));
      happened = true;
    }
    while (const auto arrival = TakeAny(in_.arrived)) {
      RINGPIPE_RETURN_IF_ERROR(
          events.Arrived(arrival->instance, arrival->data, arrival->bytes));
      happened = true;
    }
    return happened;
  }

  // Nothing of this end's memory is used any more, but for what the peer reads;
  // `in_order`: the peer still gets what was sent.
  void Leave(bool in_order) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Stream::Lent& lent : in_.lent) {
      in_.FreeSource(lent.message);
    }
    in_.lent.clear();
    in_.expected.clear();
    if (!in_order) {
      out_.on_wire.clear();
    }
    peer_.Wake();
  }
  bool lends() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(
        out_.lent.begin(), out_.lent.end(),
        [](const Stream::Lent& lent) { return !lent.message.eager; });
  }

 private:
  // Whether it was not sent before.
  bool SendFirst() {
    if (std::exchange(first_sent_, true)) {
      return false;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    out_.firsts.push_back(digest_);
    peer_.Wake();
    return true;
  }
  // What is eager comes with the peer's first message, so not before it.
  bool CanDeliver(const Stream& stream) const {
    return stream.meets() && stream.alike() &&
           (!stream.on_wire.front().eager || (&stream == &in_ && agreed_));
  }
  // Messages, of which either end moves both ends'. Returns whether a first one
  // came.
  Result<bool> Move() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Stream* stream : {&out_, &in_}) {
      while (CanDeliver(*stream) && !self_.Defers()) {
        stream->Deliver();
      }
    }
    has_reports_ = !out_.sent.empty() || !in_.arrived.empty();
    bool first_came = false;
    while (!in_.firsts.empty() && !self_.Defers()) {
      RINGPIPE_ASSIGN_OR_RETURN(const CallCheck::When when,
                                check_.Compare(peer(), in_.firsts.front()));
      if (when == CallCheck::When::kLater) {
        break;
      }
      agreed_ |= when == CallCheck::When::kNow;
      in_.firsts.pop_front();
      first_came = true;
    }
    if (agreed_ && in_.meets() && !in_.alike()) {
      return Status(StatusCode::kInternal,
                    "rank " + std::to_string(peer()) + " and rank " +
                        std::to_string(rank_) +
                        " do not agree on what is eager");
    }
    return first_came;
  }
  // Not all reports that there are, and in any order.
  template <typename T>
  std::optional<T> TakeAny(std::deque<T>& reports) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (reports.empty() || self_.Defers()) {
      return std::nullopt;
    }
    const auto any = reports.begin() +
                     static_cast<std::ptrdiff_t>(self_.Draw(reports.size()));
    const T taken = *any;
    reports.erase(any);
    return taken;
  }

  const int rank_;
  const Abilities abilities_;
  const CallCheck& check_;
  Rank& self_;
  Rank& peer_;
  std::mutex& mutex_;
  // Guarded by the mutex.
  Stream& out_;
  Stream& in_;

  Digest digest_;
  bool first_sent_ = true;
  bool agreed_ = false;
  bool sends_eagerly_ = false;
  bool expects_eager_ = false;
  bool has_reports_ = false;
  int sources_in_use_ = 0;
};

class TestNetwork::LooseTransport final : public Transport {
 public:
  LooseTransport(Shared& shared, int rank, const CallCheck& check)
      : reach_(shared.options.reach),
        self_(shared.ranks[rank]),
        descriptor_{self_.fd(), POLLIN, 0} {
    for (int peer = 0; peer < shared.options.size; ++peer) {
      connections_.push_back(
          shared.Connects(rank, peer)
              ? std::make_unique<LooseConnection>(shared, rank, peer, check)
              : nullptr);
    }
  }
  ~LooseTransport() override { Leave(); }

  std::string_view way() const override { return "the test network"; }
  std::string AddressFor(int /*peer*/) const override { return {}; }
  Status Connect(std::span<const std::string> /*addresses*/,
                 Deadline /*deadline*/, int /*abort_fd*/) override {
    return Status::Ok();
  }
  Connection* connection(int peer) override { return connections_[peer].get(); }
  std::string DescribeRoute(int /*peer*/) const override {
    return std::string(way());
  }

  // Of some buffers, whosever memory they are, and in any way.
  Result<Reached> ReachOf(const UserMemory& memory) override {
    return Reached{reach_ ? reach_(memory)
                          : Reach{static_cast<Reach::Sends>(self_.Draw(3)),
                                  self_.Draw(2) == 0},
                   memory.data};
  }
  MemoryHandle HandleOf(const SlotPool& /*slots*/) override { return nullptr; }

  Result<bool> Poll(Connection::Events& events) override {
    bool happened = false;
    const std::size_t first = self_.Draw(connections_.size());
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      const auto& connection = connections_[(first + i) % connections_.size()];
      if (connection != nullptr) {
        RINGPIPE_ASSIGN_OR_RETURN(const bool polled, connection->Poll(events));
        happened |= polled;
      }
    }
    return happened;
  }

  Status Arm() override {
    self_.Arm();
    return Status::Ok();
  }
  std::span<const pollfd> descriptors() const override {
    return std::span(&descriptor_, 1);
  }
  void ConsumeEvents() override { self_.Consume(); }
  Status CheckAsyncEvents(std::vector<std::string>* /*notices*/) override {
    return Status::Ok();
  }

  void FinishSending(Deadline /*deadline*/) override { in_order_ = true; }
  void Stop() override { Leave(); }
  bool Flush(Deadline deadline) override {
    while (std::any_of(connections_.begin(), connections_.end(),
                       [](const auto& connection) {
                         return connection != nullptr && connection->lends();
                       })) {
      if (deadline.expired()) {
        return false;
      }
      sched_yield();
    }
    return true;
  }

 private:
  void Leave() {
    self_.gone = !in_order_;
    for (const auto& connection : connections_) {
      if (connection != nullptr) {
        connection->Leave(in_order_);
      }
    }
  }

  const std::function<Reach(const UserMemory&)> reach_;
  Rank& self_;
  const pollfd descriptor_;
  std::vector<std::unique_ptr<LooseConnection>> connections_;  // by rank
  bool in_order_ = false;
};

TestNetwork::TestNetwork(const Options& options)
    : shared_(std::make_unique<Shared>(options)) {}
TestNetwork::~TestNetwork() = default;

std::unique_ptr<Transport> TestNetwork::Create(int rank,
                                               const CallCheck& check) {
  return std::make_unique<LooseTransport>(*shared_, rank, check);
}

}  // namespace ringpipe
