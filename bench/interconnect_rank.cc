#include "bench/interconnect_rank.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/host_name.h"
#include "bench/interconnect_report.h"
#include "bench/interruption.h"
#include "bench/local_ranks.h"
#include "bench/progress_bar.h"
#include "bench/text_output.h"
#include "engine/communicator.h"
#include "validate/identity.h"
#include "validate/measure.h"
#include "validate/named_ranks.h"
#include "validate/port_findings.h"
#include "validate/ports.h"

namespace ringpipe {
namespace {

using validate::Measurements;
using validate::Verdict;

constexpr int kNotMeasured = static_cast<int>(Verdict::kNotMeasured);
// Launchers kill all ranks soon after the first has ended: the others wait this
// long for the one that reports.
constexpr std::chrono::milliseconds kReporterSaves(700);
constexpr std::size_t kJobIdBytes = 256;  // RINGPIPE_JOB_ID

class InterconnectJob {
 public:
  InterconnectJob(const InterconnectOptions& options, SignalWatch& signals)
      : options_(options), signals_(signals) {}

  // The exit status; or dies of the signal that ended the run.
  int Run() {
    const Status joined = Join("");
    if (!joined.ok()) {
      signals_.Stop();
      ReportError(options_.error_fd, -1, joined);
      return kNotMeasured;
    }
    rank_ = communicator_->rank();
    bar_.emplace(rank_ == 0);
    ArmSignals();
    Status status = CheckBefore();
    if (status.ok()) {
      status = MeasureAll();
    }
    bar_.reset();
    if (const int signal = signals_.Stop()) {
      EndEarly(signal);
    }
    return status.ok() || !measured_.ranks.empty() ? Finish(status)
                                                   : Refuse(status);
  }

 private:
  // With one rail alone where `rail` names it.
  Status Join(const std::string& rail) {
    RINGPIPE_ASSIGN_OR_RETURN(CommunicatorOptions options,
                              CommunicatorOptions::FromProcess());
    options.while_waiting = [this] {
      const std::lock_guard<std::mutex> lock(mutex_);
      return interrupted_.has_value();
    };
    if (place_) {
      options.rank = place_->rank;
      options.size = place_->size;
      options.job_id = place_->job_id;
    }
    if (!rail.empty()) {
      options.environment.device = "=" + rail;
      options.environment.device_variable = "RINGPIPE_DEVICE";
    }
    auto communicator = Communicator::Create(options);
    if (!communicator.ok()) {
      return WithPorts(WithAdvice(communicator.status()));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    communicator_ = std::move(communicator).value();
    if (interrupted_) {
      communicator_->Abort(*interrupted_);
    }
    return Status::Ok();
  }

  void Leave() {
    std::unique_ptr<Communicator> left;
    const std::lock_guard<std::mutex> lock(mutex_);
    left.swap(communicator_);
  }

  Status WithAdvice(const Status& status) const {
    return options_.error_fd < 0 &&
                   status.code() == StatusCode::kInvalidArgument
               ? Status(status.code(),
                        status.message() +
                            "\nTo start all ranks on this host, say how many: "
                            "interconnect --ranks 8")
               : status;
  }

  // And what this host's ports say, which may be why the ranks cannot meet.
  static Status WithPorts(const Status& status) {
    std::string text = status.message();
    for (const validate::Finding& finding :
         validate::FindPortFaults(validate::ReadPorts("/sys", HostName()))) {
      text += "; " + finding.text;
    }
    return {status.code(), text};
  }

  void ArmSignals() {
    // Other ranks of a launcher of our own die at once.
    if (rank_ != 0 && options_.error_fd >= 0) {
      return;
    }
    signals_.Arm([this](int signal) {
      ReportStop(options_.error_fd, signal);
      const std::lock_guard<std::mutex> lock(mutex_);
      interrupted_ = "interrupted by " + SignalName(signal);
      if (communicator_ != nullptr) {
        communicator_->Abort(*interrupted_);
      }
    });
  }

  // Rank 0's files: all ranks hear of it.
  Status CheckBefore() {
    if (rank_ != 0) {
      return Status::Ok();
    }
    Status status = CheckFiles(options_);
    if (status.ok() && !options_.baseline_path.empty()) {
      RINGPIPE_ASSIGN_OR_RETURN(baseline_,
                                ReadMeasurements(options_.baseline_path));
    }
    if (!status.ok()) {
      communicator_->Abort(status.message());
    }
    return status;
  }

  Status MeasureAll() {
    validate::MeasureOptions options;
    options.run = options_.run;
    if (rank_ == 0) {
      options.announce = [this](const std::string& line) { Announce(line); };
      options.progress = [this](double part, const std::string& what) {
        bar_->Show(part, what);
      };
    }
    Status status = validate::Measure(*communicator_, options, &measured_);
    while (!status.ok() && CanGoOn()) {
      status = GoOn(status, options);
    }
    RINGPIPE_RETURN_IF_ERROR(status);
    // With another number on some, the analysis says so.
    const int rails = measured_.CommonRails();
    for (int rail = 0; rails > 1 && rail < rails; ++rail) {
      RINGPIPE_RETURN_IF_ERROR(MeasureRail(rail, options));
    }
    return Status::Ok();
  }

  // Whether a host is lost without which the others can go on, and do: where
  // they could not meet, there is no communicator.
  bool CanGoOn() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return communicator_ != nullptr && !interrupted_ && measured_.ending &&
           CanDoWithout(measured_.ending->lost_rank);
  }

  // Not without this host, nor that of rank 0, where all meet.
  bool CanDoWithout(int lost) const {
    return lost >= 0 && lost < measured_.size() &&
           measured_.ranks[lost].host != measured_.ranks.front().host &&
           measured_.ranks[lost].host != measured_.ranks[rank_].host;
  }

  // Without the host that is lost: what had not been measured; or `failure`
  // where the others cannot meet.
  Status GoOn(const Status& failure, validate::MeasureOptions options) {
    const auto lost_before = static_cast<std::ptrdiff_t>(lost_.size());
    Lose(measured_.ending->lost_rank, measured_.ending->message);
    const std::vector<int> left = Meet();
    if (left.empty()) {
      measured_.lost = lost_;
      // The first of them is measured_.ending's.
      measured_.lost.erase(measured_.lost.begin() + lost_before);
      return failure;
    }
    // Some may have one more pattern: rank 0 decides.
    const auto said = communicator_->Exchange(
        measured_.HasAllLinks() && measured_.CommonRails() < 2 ? "all" : "");
    const bool has_all = said.ok() && !said->front().empty();
    Measurements without;
    options.run.links = !has_all;
    options.run.latency = !has_all;
    Status status = validate::Measure(*communicator_, options, &without);
    without.NameHostsLike(measured_, left);
    const bool has_begun = !without.ranks.empty();
    if (!has_begun) {
      without.ranks = OnlyWith(left).ranks;
    }
    if (without.ending) {  // by the names that hosts have here
      without.EndBy(status, without.ending->phase, validate::LostRank(status));
    }
    if (has_all || !has_begun) {
      measured_.TakeStress(without, left);
    } else {
      measured_ = std::move(without);
      rank_ = place_->rank;
    }
    measured_.lost = lost_;
    return status;
  }

  // The ranks that have not come, or have gone again. None where some have come
  // for another job: they may take other hosts for lost.
  static std::set<int> Missing(const Status& joined, int size) {
    if (joined.code() != StatusCode::kTimeout) {
      const int lost = validate::LostRank(joined);
      return lost >= 0 && lost < size ? std::set<int>{lost} : std::set<int>();
    }
    const std::string& message = joined.message();
    const bool none_refused =
        message.find("no connection was refused") != std::string::npos;
    return none_refused && message.find("did not join") != std::string::npos
               ? validate::ListedRanks(message, size)
               : std::set<int>();
  }

  Measurements OnlyWith(const std::vector<int>& ranks) const {
    Measurements some;
    for (const int rank : ranks) {
      some.ranks.push_back(measured_.ranks[rank]);
    }
    return some;
  }

  bool IsLost(const std::string& host) const {
    return std::any_of(
        lost_.begin(), lost_.end(),
        [&](const validate::Lost& lost) { return lost.host == host; });
  }

  void Lose(int rank, const std::string& why) {
    const std::string& host = measured_.ranks[rank].host;
    if (IsLost(host)) {
      return;
    }
    lost_.push_back({host, measured_.ending->phase, why});
    if (rank_ == 0) {
      Announce("host " + host + " is lost; going on without it");
    }
  }

  // Joins the ranks of all hosts that are not lost, and returns these. Those
  // that do not come are lost, too. None: they cannot meet.
  std::vector<int> Meet() {
    while (true) {
      // Who takes another host for lost has another job.
      std::string job_id = "without " + std::to_string(lost_.size());
      std::vector<int> left;
      for (int rank = 0; rank < measured_.size(); ++rank) {
        if (IsLost(measured_.ranks[rank].host)) {
          job_id += "," + std::to_string(rank);
        } else {
          left.push_back(rank);
        }
      }
      const auto own = std::find(left.begin(), left.end(), rank_);
      place_ = {static_cast<int>(own - left.begin()),
                static_cast<int>(left.size()), job_id.substr(0, kJobIdBytes)};
      Leave();
      const Status joined = Join("");
      if (joined.ok()) {
        return left;
      }
      const Measurements these = OnlyWith(left);
      const std::set<int> missing = Missing(joined, these.size());
      if (missing.empty() ||
          !std::all_of(missing.begin(), missing.end(),
                       [&](int rank) { return CanDoWithout(left[rank]); })) {
        return {};
      }
      for (const int rank : missing) {
        Lose(left[rank], validate::WithHosts(these, joined.message()));
      }
    }
  }

  Status MeasureRail(int rail, const validate::MeasureOptions& options) {
    Leave();
    Status joined = Join(measured_.ranks[rank_].rails[rail]);
    if (!joined.ok()) {
      measured_.EndBy(joined, "rail " + std::to_string(rail),
                      validate::LostRank(joined));
      return joined;
    }
    bar_.emplace(rank_ == 0);  // the time left is this rail's
    return validate::MeasureRail(*communicator_, rail, options, &measured_);
  }

  void Announce(const std::string& line) {
    bar_->Clear();
    TextOutput(STDERR_FILENO, "standard error", signals_.fd())
        .Write("interconnect: " + line + "\n")
        .ok();
  }

  // Rank 0; or, where a rank is lost, the first that is on another host, for
  // that one may be gone as a whole.
  int Reporter() const {
    const int lost = measured_.ending ? measured_.ending->lost_rank : -1;
    if (lost < 0) {
      return 0;
    }
    for (int rank = 0; rank < measured_.size(); ++rank) {
      const std::string& host = measured_.ranks[rank].host;
      if (host != measured_.ranks[lost].host && !IsLost(host)) {
        return rank;
      }
    }
    return lost == 0 ? 1 : 0;
  }

  // Also of a run that a lost rank has ended: that is its result.
  int Finish(const Status& ended) {
    if (!ended.ok()) {
      if (rank_ == Reporter()) {
        return Judge();
      }
      // As the reporter judges, as far as this rank knows the same.
      const int exit_status = OwnExitStatus();
      std::this_thread::sleep_for(kReporterSaves);
      return exit_status;
    }
    // All exit alike, as rank 0 judges.
    std::string verdict;
    if (rank_ == 0) {
      verdict = std::to_string(OwnExitStatus());
    }
    const auto all = communicator_->Exchange(verdict);
    const bool agreed = all.ok() && !all->front().empty();
    int exit_status = agreed ? all->front()[0] - '0' : kNotMeasured;
    if (rank_ == 0) {
      exit_status = Judge();
    }
    // Not before it has reported, for some launchers end all ranks when the
    // first has ended; and they do not wait for a reader for ever.
    static_cast<void>(communicator_->Exchange(""));
    return exit_status;
  }

  // By what this rank knows.
  int OwnExitStatus() {
    return ExitStatus(
        Analyze(measured_, options_.analysis, Baseline()).verdict);
  }

  // Reports. The exit status.
  int Judge() {
    const auto verdict = Report(options_, measured_, Baseline());
    if (!verdict.ok()) {
      ReportError(options_.error_fd, rank_, verdict.status());
      return kNotMeasured;
    }
    return ExitStatus(verdict.value());
  }

  // Null where there is none. Rank 0 knew before that it can be read.
  const Measurements* Baseline() {
    if (!options_.baseline_path.empty() && !baseline_) {
      auto read = ReadMeasurements(options_.baseline_path);
      if (!read.ok()) {
        return nullptr;
      }
      baseline_ = std::move(read).value();
    }
    return baseline_ ? &*baseline_ : nullptr;
  }

  // Before the ranks knew each other.
  int Refuse(const Status& status) {
    const bool shared = status.code() == StatusCode::kAborted ||
                        status.code() == StatusCode::kPeerLost;
    if (rank_ == 0 || !shared || options_.error_fd >= 0) {
      ReportError(options_.error_fd, -1, status);
    }
    return kNotMeasured;
  }

  [[noreturn]] void EndEarly(int signal) {
    if (rank_ == 0 && !measured_.ranks.empty()) {
      // That ranks are gone is the signal's doing.
      const std::string phase =
          measured_.ending ? measured_.ending->phase : std::string();
      measured_.ending = validate::Ending{phase, "", -1, SignalName(signal)};
      measured_.lost = lost_;
      const auto verdict = Report(options_, measured_, Baseline());
      if (!verdict.ok()) {
        ReportError(-1, -1, verdict.status());
      }
    } else if (rank_ != 0) {
      std::this_thread::sleep_for(kReporterSaves);
    }
    ReportStop(options_.error_fd, signal);
    DieOf(signal);
  }

  const InterconnectOptions& options_;
  SignalWatch& signals_;
  int rank_ = 0;  // in measured_
  // In the communicator, once hosts are lost.
  struct Place {
    int rank;
    int size;
    std::string job_id;
  };
  std::optional<Place> place_;
  std::vector<validate::Lost> lost_;
  std::optional<ProgressBar> bar_;
  Measurements measured_;
  std::optional<Measurements> baseline_;

  std::mutex mutex_;  // guards the rest against the signals' thread
  std::optional<std::string> interrupted_;
  std::unique_ptr<Communicator> communicator_;  // waits while it is destroyed
};

}  // namespace

int InterconnectRank(const InterconnectOptions& options) {
  // Before the communicator's threads.
  SignalWatch signals;
  signal(SIGPIPE, SIG_IGN);
  return InterconnectJob(options, signals).Run();
}

}  // namespace ringpipe
