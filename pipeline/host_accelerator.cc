#include "pipeline/host_accelerator.h"

#include <span>

#include "reduction/host_copy.h"
#include "reduction/host_reduction.h"

namespace ringpipe {
namespace {

// Works on the caller's thread; a ticket carries nothing, as what it stands for
// is done before the caller has it.
class HostAccelerator final : public Accelerator {
 public:
  std::string name() const override { return "host"; }
  Result<bool> Owns(const void* /*pointer*/) override { return true; }

  Status PrepareSlots(void* /*slots*/, std::size_t /*bytes*/) override {
    return Status::Ok();
  }
  bool ReleaseSlots(void* /*slots*/) override { return true; }
  bool IsSlot(const void* /*memory*/, std::size_t /*bytes*/) const override {
    return true;
  }

  Ticket CopyIn(void* slot, const void* user, std::size_t bytes) override {
    return Copy(Lane::kCopyIn, slot, user, bytes);
  }
  Ticket CopyOut(void* user, const void* slot, std::size_t bytes) override {
    return Copy(Lane::kCopyOut, user, slot, bytes);
  }
  Ticket CopyOutNonTemporal(void* user, const void* slot,
                            std::size_t bytes) override {
    NonTemporalCopy(user, slot, bytes);
    return {Lane::kCopyOut, 0};
  }
  Ticket CopyWithin(void* target, const void* source,
                    std::size_t bytes) override {
    return Copy(Lane::kCopyOut, target, source, bytes);
  }

  Ticket Reduce(DataType type, ReduceOp op, Targets targets, const void* own,
                std::span<const void* const> received, std::size_t count,
                const Scaling& scaling) override {
    ReduceAndScale(type, op, targets.first, own, received, count, scaling);
    if (targets.second != nullptr) {
      HostCopy(targets.second, targets.first, count * SizeOf(type));
    }
    return {Lane::kReduce, 0};
  }
  Ticket Scale(Lane lane, DataType type, void* target, const void* source,
               std::size_t count, double factor) override {
    FindScale(type)(target, source, count, factor);
    return {lane, 0};
  }

  Progress Poll(Ticket /*ticket*/) override { return Progress::kDone; }
  Status error() const override { return Status::Ok(); }
  bool Drain(Deadline /*deadline*/) override { return true; }

 private:
  static Ticket Copy(Lane lane, void* target, const void* source,
                     std::size_t bytes) {
    HostCopy(target, source, bytes);
    return {lane, 0};
  }
};

}  // namespace

std::unique_ptr<Accelerator> CreateHostAccelerator() {
  return std::make_unique<HostAccelerator>();
}

}  // namespace ringpipe
