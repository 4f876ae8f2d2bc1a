// What the phases of a measurement share.
#ifndef RINGPIPE_VALIDATE_MEASURE_RUN_H_
#define RINGPIPE_VALIDATE_MEASURE_RUN_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "engine/communicator.h"
#include "validate/measure.h"
#include "validate/measurements.h"
#include "validate/partners.h"
#include "validate/phases.h"

namespace ringpipe::validate {

double SecondsSince(Clock::time_point start);

// Memory of the communicator's, given back at the end.
class Buffers {
 public:
  explicit Buffers(Communicator& communicator) : communicator_(communicator) {}
  ~Buffers() {
    for (void* memory : {send_, receive_}) {
      if (memory != nullptr) {
        static_cast<void>(communicator_.Free(memory));
      }
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  Status Allocate(std::uint64_t bytes) {
    RINGPIPE_ASSIGN_OR_RETURN(send_, communicator_.Allocate(bytes));
    RINGPIPE_ASSIGN_OR_RETURN(receive_, communicator_.Allocate(bytes));
    return Status::Ok();
  }
  void* send() const { return send_; }
  void* receive() const { return receive_; }

 private:
  Communicator& communicator_;
  void* send_ = nullptr;
  void* receive_ = nullptr;
};

// The job, what was measured of it so far, and how its ranks tell each other.
struct MeasureRun {
  MeasureRun(Communicator& job, const MeasureOptions& wanted,
             Measurements& measured)
      : communicator(job),
        options(wanted),
        into(measured),
        rank(job.rank()),
        size(job.size()),
        buffers(job) {}

  void Enter(Phase next);
  void ShowProgress(double part, const std::string& what) const;

  // All ranks make the call, with or without partners.
  Status SendOnce(const Pairing& pairing, std::uint64_t bytes) const;

  // The numbers of all ranks, on all ranks, by rank.
  template <typename Number>
  Result<std::vector<std::vector<Number>>> Share(
      const std::vector<Number>& own) const;
  Result<double> MedianOfRanks(double own) const;
  Result<double> LargestOfRanks(double own) const;

  Communicator& communicator;
  const MeasureOptions& options;
  Measurements& into;
  const int rank;
  const int size;
  Buffers buffers;
  RunPlan plan;
  HostNetwork network_before;
  // HostNetwork's.
  std::uint64_t steps = 0;
  std::uint64_t lossy_steps = 0;
  Phase phase = Phase::kBandwidth;
  int rail = -1;      // that is measured by itself; -1: all together
  std::string doing;  // what is being measured
};

template <typename Number>
Result<std::vector<std::vector<Number>>> MeasureRun::Share(
    const std::vector<Number>& own) const {
  const std::string blob(reinterpret_cast<const char*>(own.data()),
                         own.size() * sizeof(Number));
  RINGPIPE_ASSIGN_OR_RETURN(const auto blobs, communicator.Exchange(blob));
  std::vector<std::vector<Number>> all;
  for (const std::string& text : blobs) {
    std::vector<Number>& values =
        all.emplace_back(text.size() / sizeof(Number));
    std::copy_n(text.data(), values.size() * sizeof(Number),
                reinterpret_cast<char*>(values.data()));
  }
  return all;
}

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_MEASURE_RUN_H_
