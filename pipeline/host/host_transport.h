#ifndef RINGPIPE_PIPELINE_HOST_HOST_TRANSPORT_H_
#define RINGPIPE_PIPELINE_HOST_HOST_TRANSPORT_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipeline/connection.h"
#include "pipeline/host/host_connection.h"
#include "pipeline/host/region.h"
#include "pipeline/host/region_exchange.h"

namespace ringpipe {

// The connections of a rank to the others of its host, through shared memory.
class HostTransport final : public Transport {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    // By rank: whom it connects; not this rank itself.
    std::vector<bool> local;
    // The job's secret, which every rank has from the bootstrap.
    std::string job_key;
    const CallCheck* check = nullptr;  // outlives the transport
  };

  // A region with room for what the connections need.
  static Result<std::shared_ptr<Region>> CreateRegion(int rank, int size);

  // `own` is of CreateRegion, and of nobody else's transport.
  static Result<std::unique_ptr<HostTransport>> Create(
      const Options& options, std::shared_ptr<Region> own);
  ~HostTransport() override;

  std::string_view way() const override { return "host memory"; }
  std::string AddressFor(int peer) const override;
  // All ranks of the host at the same time.
  Status Connect(std::span<const std::string> addresses, Deadline deadline,
                 int abort_fd) override;
  Connection* connection(int peer) override { return connections_[peer].get(); }
  std::string DescribeRoute(int peer) const override;

  Result<bool> Poll(Connection::Events& events) override;
  bool found_silence() const override { return false; }

  Status Arm() override;
  std::span<const pollfd> descriptors() const override {
    return std::span(&descriptor_, 1);
  }
  void ConsumeEvents() override;
  Status CheckAsyncEvents(std::vector<std::string>* /*notices*/) override {
    return Status::Ok();
  }

  bool Flush(Deadline deadline) override;

 private:
  HostTransport(const Options& options, std::shared_ptr<Region> own,
                FileDescriptor wakes, std::unique_ptr<RegionExchange> exchange);

  const Options options_;
  const std::shared_ptr<Region> own_;
  RegionHeader& header_;
  const FileDescriptor wakes_;  // this rank, that sleeps
  const pollfd descriptor_;
  std::unique_ptr<RegionExchange> exchange_;  // until Connect
  CallLines lines_;
  // By rank.
  std::vector<std::unique_ptr<HostConnection>> connections_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_HOST_TRANSPORT_H_
