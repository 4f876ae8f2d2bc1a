// A transport by which nothing ever comes, for tests of what its user does.
#ifndef RINGPIPE_PIPELINE_QUIET_TRANSPORT_H_
#define RINGPIPE_PIPELINE_QUIET_TRANSPORT_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/connection.h"

namespace ringpipe {

// Takes whatever is sent. The peer never says anything.
class QuietConnection final : public Connection {
 public:
  explicit QuietConnection(int peer) : Connection(peer) {}

  Abilities abilities() const override { return {.eager_bytes = 4096}; }
  void Begin(const Call& /*call*/) override {}
  bool agreed() const override { return false; }
  bool CanExpect() const override { return true; }
  Result<bool> CanSend() override { return true; }
  void Expect(Instance /*instance*/, const Memory& /*target*/) override {}
  Result<bool> Send(Instance /*instance*/, Pieces /*source*/) override {
    return true;
  }
  Status Release(Instance /*instance*/) override { return Status::Ok(); }
  Result<bool> Progress(Events& /*events*/) override { return false; }
  bool holds_back() const override { return false; }
  Status Announce() override { return Status::Ok(); }
  bool sending() const override { return false; }
  Status PrepareToSleep(bool /*has_message*/) override { return Status::Ok(); }
  Status Probe() override { return Status::Ok(); }
};

// Its peer is rank 1.
class QuietTransport : public Transport {
 public:
  std::string_view way() const override { return "quiet"; }
  std::string AddressFor(int /*peer*/) const override { return ""; }
  Status Connect(std::span<const std::string> /*addresses*/,
                 Deadline /*deadline*/, int /*abort_fd*/) override {
    return Status::Ok();
  }
  Connection* connection(int peer) override {
    return peer == 1 ? &connection_ : nullptr;
  }
  std::string DescribeRoute(int /*peer*/) const override { return "quiet"; }
  Result<Reached> ReachOf(const UserMemory& /*memory*/) override {
    return Reached();
  }
  MemoryHandle HandleOf(const SlotPool& /*slots*/) override { return nullptr; }
  Result<bool> Poll(Connection::Events& /*events*/) override { return false; }
  Status Arm() override { return Status::Ok(); }
  std::span<const pollfd> descriptors() const override { return {}; }
  void ConsumeEvents() override {}
  Status CheckAsyncEvents(std::vector<std::string>* /*notices*/) override {
    return Status::Ok();
  }
  void Stop() override {}
  bool Flush(Deadline /*deadline*/) override { return true; }

 private:
  QuietConnection connection_{1};
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_QUIET_TRANSPORT_H_
