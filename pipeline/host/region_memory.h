#ifndef RINGPIPE_PIPELINE_HOST_REGION_MEMORY_H_
#define RINGPIPE_PIPELINE_HOST_REGION_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/memory_source.h"
#include "base/pages.h"
#include "pipeline/host/region.h"

namespace ringpipe {

// Memory that the ranks of a host reach: of this rank's region.
class RegionMemory final : public MemorySource {
 public:
  explicit RegionMemory(std::shared_ptr<Region> region)
      : region_(std::move(region)) {}

  Result<Allocation> Allocate(std::size_t bytes) override {
    if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
      return Status(StatusCode::kResourceExhausted,
                    "cannot allocate " + std::to_string(bytes) + " bytes");
    }
    bytes = RoundUp(std::max<std::size_t>(bytes, 1), kPageBytes);
    RINGPIPE_ASSIGN_OR_RETURN(std::byte* const data, region_->Allocate(bytes));
    return Allocation(shared_from_this(), data, bytes);
  }

 private:
  void Free(std::byte* data, std::size_t bytes) noexcept override {
    region_->Free(data, bytes);
  }
  // It ends with the region.
  void Keep(std::byte* /*data*/, std::size_t /*bytes*/) noexcept override {}

  const std::shared_ptr<Region> region_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_REGION_MEMORY_H_
