#include "bench/measurement.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/deadline.h"
#include "bench/input_data.h"
#include "bench/options.h"
#include "bench/peers/touch.h"
#include "bench/verification.h"

namespace ringpipe {
namespace {

// Doubles in one blob of an exchange: 512 KiB.
constexpr std::size_t kExchangedAtOnce = 64 * 1024;

// Every rank's values, [rank][index]; all ranks have the same number.
Result<std::vector<std::vector<double>>> ExchangeDoubles(
    Job& job, const std::vector<double>& mine) {
  std::vector<std::vector<double>> all(job.size());
  for (std::size_t from = 0; from < mine.size(); from += kExchangedAtOnce) {
    const std::size_t count = std::min(kExchangedAtOnce, mine.size() - from);
    std::string blob(count * sizeof(double), '\0');
    std::memcpy(blob.data(), mine.data() + from, blob.size());
    RINGPIPE_ASSIGN_OR_RETURN(const auto blobs, job.Exchange(blob));
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (rank >= blobs.size() || blobs[rank].size() != blob.size()) {
        return Status(StatusCode::kMismatch,
                      "rank " + std::to_string(rank) +
                          " measured another number of calls than this rank; "
                          "give all ranks the same options");
      }
      all[rank].resize(from + count);
      std::memcpy(all[rank].data() + from, blobs[rank].data(), blob.size());
    }
  }
  return all;
}

class SeriesRun {
 public:
  SeriesRun(Job& job, const SeriesPlan& plan, const SeriesProgress& progress,
            std::vector<double>& timed_us)
      : job_(job), plan_(plan), progress_(progress), timed_us_(timed_us) {}

  Result<Series> Run() {
    timed_us_.clear();
    // What is not known yet is taken for the default.
    planned_ = 1.0 + plan_.warmups + plan_.checks +
               plan_.iterations.value_or(kDefaultIterations);
    RINGPIPE_RETURN_IF_ERROR(FillAllInputs());
    RINGPIPE_ASSIGN_OR_RETURN(const double first_us, Call());
    double fastest_us = first_us;
    for (int i = 0; i < plan_.warmups; ++i) {
      Rotate();
      RINGPIPE_RETURN_IF_ERROR(RefillIfDue());
      RINGPIPE_ASSIGN_OR_RETURN(const double us, Call());
      fastest_us = std::min(fastest_us, us);
    }
    RINGPIPE_ASSIGN_OR_RETURN(const int iterations, Iterations(fastest_us));
    planned_ = done_ + iterations + plan_.checks;
    RINGPIPE_RETURN_IF_ERROR(TimedCalls(iterations));
    std::vector<double> mine = timed_us_;
    mine.insert(mine.begin(), first_us);
    RINGPIPE_ASSIGN_OR_RETURN(series_.samples_us, ExchangeDoubles(job_, mine));
    for (std::vector<double>& samples : series_.samples_us) {
      series_.first_us.push_back(samples.front());
      samples.erase(samples.begin());
    }
    RINGPIPE_RETURN_IF_ERROR(Check());
    return std::move(series_);
  }

 private:
  const CollectiveInfo& Info() const { return InfoOf(plan_.collective); }
  const CollectiveInfo::Buffers& Has() const {
    return Info().Of(job_.rank() == plan_.root);
  }
  std::size_t ElementsOf(Holds holds) const {
    return holds == Holds::kNothing ? 0
           : holds == Holds::kWhole && Info().has_parts
               ? plan_.count * job_.size()
               : plan_.count;
  }
  std::size_t InputBytes() const {
    return ElementsOf(Has().input) * SizeOf(plan_.type);
  }
  std::size_t OutputBytes() const {
    return ElementsOf(Has().output) * SizeOf(plan_.type);
  }
  // Of this rank.
  bool InPlace() const {
    return plan_.in_place && Has().input != Holds::kNothing &&
           Has().output != Holds::kNothing;
  }
  // Where the rank's part is in a whole message that it shares.
  std::size_t Offset(Holds own, Holds other) const {
    return InPlace() && own == Holds::kOwnPart && other == Holds::kWhole
               ? job_.rank() * plan_.count * SizeOf(plan_.type)
               : 0;
  }
  std::byte* Output() const {
    return OfTurn(plan_.receive) + Offset(Has().output, Has().input);
  }
  std::byte* Input() const {
    return OfTurn(InPlace() ? plan_.receive : plan_.send) +
           Offset(Has().input, Has().output);
  }
  std::byte* OfTurn(void* first) const {
    return static_cast<std::byte*>(first) + turn_ * plan_.stride;
  }

  // The next call takes the next buffers.
  void Rotate() { turn_ = (turn_ + 1) % plan_.rotate; }

  // Touches the outputs of all turns but the first too, whose page faults are
  // the first call's.
  Status FillAllInputs() {
    for (int i = 0; i < plan_.rotate; ++i) {
      Rotate();
      RINGPIPE_RETURN_IF_ERROR(FillMyInput(0));
      if (turn_ != 0 && !InPlace()) {
        RINGPIPE_RETURN_IF_ERROR(SetOutput(0));
      }
    }
    return {};
  }

  Status FillMyInput(std::uint64_t iteration) {
    since_fill_ = 0;
    return Write(Input(), InputBytes(), [&](void* data) {
      FillInput(
          plan_.type, plan_.op,
          {plan_.seed, static_cast<std::uint64_t>(job_.rank()), iteration}, 0,
          ElementsOf(Has().input), data);
    });
  }

  // All its bytes.
  Status SetOutput(int value) {
    return Write(Output(), OutputBytes(),
                 [&](void* data) { std::memset(data, value, OutputBytes()); });
  }

  // What fill(data) writes, into a buffer, by way of the host's memory where it
  // has to be.
  template <typename Fill>
  Status Write(std::byte* buffer, std::size_t bytes, Fill fill) {
    if (bytes == 0) {
      return {};
    }
    if (!plan_.copy) {
      fill(buffer);
      return {};
    }
    staged_.resize(bytes);
    fill(staged_.data());
    return plan_.copy(buffer, staged_.data(), bytes);
  }

  // The output, where the host can read it.
  Result<const void*> ReadableOutput() {
    if (!plan_.copy || OutputBytes() == 0) {
      return Output();
    }
    staged_.resize(OutputBytes());
    RINGPIPE_RETURN_IF_ERROR(
        plan_.copy(staged_.data(), Output(), staged_.size()));
    return staged_.data();
  }

  // In place, each call reduces the result of the one before. So that floats
  // do not end as infinities, NaNs or (slow) denormals, whose times would not
  // be those of ordinary data, the input is filled again, outside of the timed
  // part, before p^calls passes 2^100 (sum; of float16 2^13) or 2^13 (prod,
  // whose factors are within 2^-7 of 1).
  Status RefillIfDue() {
    const bool half = plan_.type == DataType::kFloat16;
    const bool floats = half || plan_.type == DataType::kFloat32 ||
                        plan_.type == DataType::kFloat64 ||
                        plan_.type == DataType::kBfloat16;
    if (!plan_.in_place || !floats || job_.size() == 1) {
      return {};
    }
    const double powers = plan_.op == ReduceOp::kProd || half ? 13 : 100;
    const int calls =
        std::max(1, static_cast<int>(powers / std::log2(job_.size())));
    return since_fill_ >= calls ? FillAllInputs() : Status();
  }

  Status TimedCalls(int calls) {
    timed_us_.reserve(calls);
    job_.BeforeTimedCalls();
    for (int i = 0; i < calls; ++i) {
      Rotate();
      RINGPIPE_RETURN_IF_ERROR(RefillIfDue());
      RINGPIPE_ASSIGN_OR_RETURN(const double us, Call());
      timed_us_.push_back(us);
    }
    job_.AfterTimedCalls();
    return {};
  }

  // Returns the time of one call, in microseconds.
  Result<double> Call() {
    if (progress_) {
      progress_(done_ / planned_);
    }
    RINGPIPE_RETURN_IF_ERROR(job_.Barrier());
    const auto start = Clock::now();
    if (plan_.touch) {
      RewriteInput(Input(), InputBytes());
    }
    RINGPIPE_RETURN_IF_ERROR(
        job_.Run({.collective = plan_.collective,
                  .send = InputBytes() > 0 ? Input() : nullptr,
                  .receive = OutputBytes() > 0 ? Output() : nullptr,
                  .count = plan_.count,
                  .type = plan_.type,
                  .op = plan_.op,
                  .root = plan_.root}));
    if (plan_.touch) {
      ReadOutput(Output(), OutputBytes());
    }
    const double us =
        std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    done_ += 1;
    since_fill_ += 1;
    return us;
  }

  // The same number on every rank.
  Result<int> Iterations(double call_us) {
    if (plan_.iterations) {
      return *plan_.iterations;
    }
    RINGPIPE_ASSIGN_OR_RETURN(const auto by_rank,
                              ExchangeDoubles(job_, {call_us}));
    double slowest_us = 0;
    for (const auto& us : by_rank) {
      slowest_us = std::max(slowest_us, us.front());
    }
    const double fit = kDefaultBudgetSeconds * 1e6 / std::max(slowest_us, 1.0);
    return static_cast<int>(
        std::clamp<double>(fit, kFewestDefaultIterations, kDefaultIterations));
  }

  Status Check() {
    if (plan_.checks == 0) {
      return {};
    }
    double wrong = 0;
    for (int check = 1; check <= plan_.checks; ++check) {
      Rotate();
      RINGPIPE_RETURN_IF_ERROR(FillMyInput(check));
      if (!InPlace()) {
        RINGPIPE_RETURN_IF_ERROR(SetOutput(0xff));  // NaN in floats
      }
      RINGPIPE_RETURN_IF_ERROR(Call().status());
      RINGPIPE_ASSIGN_OR_RETURN(const std::size_t mine, Verify(check));
      wrong += static_cast<double>(mine);
    }
    RINGPIPE_ASSIGN_OR_RETURN(const auto by_rank,
                              ExchangeDoubles(job_, {wrong}));
    series_.wrong = 0;
    for (const auto& of_rank : by_rank) {
      *series_.wrong += static_cast<std::uint64_t>(of_rank.front());
    }
    return {};
  }

  Result<std::size_t> Verify(int check) {
    VerifiedCall call;
    call.collective = plan_.collective;
    call.root = plan_.root;
    call.type = plan_.type;
    call.op = plan_.op;
    call.count = plan_.count;
    call.rank = job_.rank();
    call.size = job_.size();
    call.seed = plan_.seed;
    call.iteration = static_cast<std::uint64_t>(check);
    RINGPIPE_ASSIGN_OR_RETURN(const void* const output, ReadableOutput());
    if (call.collective != Collective::kAllReduce) {
      return CountWrong(call, output);
    }
    RINGPIPE_ASSIGN_OR_RETURN(const auto digests,
                              job_.Exchange(VerificationDigest(call, output)));
    return CountWrong(call, output, digests);
  }

  Job& job_;
  const SeriesPlan& plan_;
  const SeriesProgress& progress_;
  std::vector<double>& timed_us_;
  Series series_;
  double done_ = 0;  // calls
  double planned_ = 1;
  int since_fill_ = 0;             // calls
  int turn_ = 0;                   // which of the buffers
  std::vector<std::byte> staged_;  // with plan_.copy: what a buffer holds
};

}  // namespace

Result<Series> Measure(Job& job, const SeriesPlan& plan,
                       const SeriesProgress& progress,
                       std::vector<double>* timed_us) {
  return SeriesRun(job, plan, progress, *timed_us).Run();
}

std::vector<double> SlowestRank(
    const std::vector<std::vector<double>>& samples_us) {
  std::vector<double> slowest = samples_us.front();
  for (const auto& samples : samples_us) {
    for (std::size_t i = 0; i < slowest.size(); ++i) {
      slowest[i] = std::max(slowest[i], samples[i]);
    }
  }
  return slowest;
}

}  // namespace ringpipe
