#include "bench/rank_main.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>

#include "base/atomic_file.h"
#include "bench/available_memory.h"
#include "bench/benchmark.h"
#include "bench/bound_by.h"
#include "bench/byte_size.h"
#include "bench/communicator_job.h"
#include "bench/core_distance.h"
#include "bench/gpu_buffers.h"
#include "bench/interruption.h"
#include "bench/json_report.h"
#include "bench/local_ranks.h"
#include "bench/run_facts.h"
#include "bench/text_output.h"
#include "bootstrap/launcher.h"
#include "engine/algorithms.h"
#include "engine/communicator.h"
#include "engine/hosts.h"

namespace ringpipe {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = 2 << 20;

// Private memory, of huge pages or not, given back to the system at
// the end.
class PrivateMemory {
 public:
  PrivateMemory() = default;
  ~PrivateMemory() {
    if (data_ != MAP_FAILED) {
      munmap(data_, bytes_);
    }
  }
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;

  // Begins `align` bytes past a page.
  Result<void*> Allocate(std::size_t bytes, bool huge_pages, int align) {
    bytes_ =
        std::max<std::size_t>(bytes, 1) + align + (huge_pages ? kHugePage : 0);
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         "a buffer of " + FormatByteSize(bytes) + " bytes",
                         errno);
    }
    if (!huge_pages) {
      return static_cast<std::byte*>(data_) + align;
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(data_);
    auto* const aligned = reinterpret_cast<std::byte*>((begin + kHugePage - 1) /
                                                       kHugePage * kHugePage);
    if (madvise(aligned, bytes_ - kHugePage, MADV_HUGEPAGE) != 0) {
      return ErrnoStatus(StatusCode::kUnavailable,
                         "huge pages for a buffer (MADV_HUGEPAGE)", errno);
    }
    return aligned + align;
  }

 private:
  void* data_ = MAP_FAILED;
  std::size_t bytes_ = 0;
};

TextOutput StandardOutput(int stop_fd) {
  return {STDOUT_FILENO, "standard output", stop_fd};
}

TextOutput StandardError(int stop_fd) {
  return {STDERR_FILENO, "standard error", stop_fd};
}

// Open MPI kills all ranks as soon as one has ended, and one second after the
// signal in any case. So the others wait this long for rank 0 to save its
// report.
constexpr std::chrono::milliseconds kRank0Saves(700);

// As the engine sees them.
Result<Hosts> MeetHosts(Communicator& communicator,
                        const Environment& environment) {
  RINGPIPE_ASSIGN_OR_RETURN(const Residence own, Residence::Own(environment));
  RINGPIPE_ASSIGN_OR_RETURN(const auto blobs,
                            communicator.Exchange(own.Serialize()));
  return ParseHosts(blobs, communicator.rank());
}

class Rank {
 public:
  // `stop_fd`: readable once the run is to end early.
  Rank(const Options& options, Communicator& communicator,
       const Processor& processor, int stop_fd)
      : options_(options),
        communicator_(communicator),
        job_(communicator, options.blocking, options.tensors),
        table_(options.JsonToStandardOutput() ? StandardError(stop_fd)
                                              : StandardOutput(stop_fd)) {
    report_.facts.processor = processor;
  }

  Status Run() {
    RINGPIPE_RETURN_IF_ERROR(GatherFacts());
    RINGPIPE_RETURN_IF_ERROR(AllKnow(Agree(job_, CheckJsonPath())));
    RINGPIPE_ASSIGN_OR_RETURN(report_.facts.places, job_.Places());
    RINGPIPE_RETURN_IF_ERROR(AllKnow(CheckHostMemory()));
    RINGPIPE_RETURN_IF_ERROR(AllKnow(Agree(job_, Allocate())));
    RINGPIPE_RETURN_IF_ERROR(PrintHeader());
    RINGPIPE_RETURN_IF_ERROR(RunBenchmark(
        job_, options_, buffers_,
        [this](const std::string& text) { return table_.Write(text); },
        &report_.result));
    RINGPIPE_ASSIGN_OR_RETURN(const auto loads,
                              job_.Loads(report_.facts.places));
    report_.stages = StageShares(loads);
    report_.bound_by = BoundBy(loads, options_.buffers != BufferKind::kPrivate);
    RINGPIPE_RETURN_IF_ERROR(PrintBoundBy());
    RINGPIPE_RETURN_IF_ERROR(AllKnow(Agree(job_, WriteReport())));
    RINGPIPE_RETURN_IF_ERROR(Free());
    if (report_.result.wrong > 0) {
      return AllKnow(
          {StatusCode::kInternal, std::to_string(report_.result.wrong) +
                                      " wrong values in the results"});
    }
    return {};
  }

  // After Run returned because `signal` ended the run early: rank 0 writes what
  // was measured until then.
  Status SaveInterrupted(int signal) {
    if (options_.json_path.empty() || report_written_) {
      return {};
    }
    if (job_.rank() != 0) {
      std::this_thread::sleep_for(kRank0Saves);
      return {};
    }
    report_.interrupted_by = signal;
    return WriteReport();
  }

  // Whether the reader of the table or of the report has gone away.
  bool reader_left() const {
    return table_.reader_left() || report_reader_left_;
  }

  // No launcher that is known has started this rank.
  bool started_by_hand() const { return report_.facts.launcher == "ringpipe"; }

  // Whether the error that Run returned is every rank's, in the same words.
  bool all_know() const { return all_know_; }

 private:
  Status AllKnow(Status status) {
    all_know_ = !status.ok();
    return status;
  }

  Status CheckJsonPath() const {
    if (job_.rank() != 0 || options_.json_path.empty() ||
        options_.JsonToStandardOutput()) {
      return {};
    }
    return CheckWritable(options_.json_path);
  }

  // The same verdict on every rank: all know what each host has.
  Status CheckHostMemory() {
    RINGPIPE_ASSIGN_OR_RETURN(const Environment environment,
                              Environment::FromProcess());
    const std::uint64_t slots =
        OnOneHost() ? BytesOfSlots(options_, environment, job_.size()) : 0;
    const auto available = AvailableMemory();
    RINGPIPE_ASSIGN_OR_RETURN(
        const auto blobs,
        job_.Exchange(available ? std::to_string(*available) : ""));
    std::map<std::string, int> ranks;
    for (const RankPlace& place : report_.facts.places) {
      ++ranks[place.host];
    }
    for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
      const auto bytes = ParseByteSize(blobs[rank]);
      if (bytes.ok()) {
        const std::string& host = report_.facts.places[rank].host;
        RINGPIPE_RETURN_IF_ERROR(
            CheckMemory(options_, ranks[host], slots, bytes.value())
                .WithContext("host " + host));
      }
    }
    return {};
  }

  // Of those that are sent, and of those that are received.
  std::size_t BytesOfBuffers() const {
    return (options_.rotate - 1) * buffers_.stride + options_.max_bytes;
  }

  Status Allocate() {
    // All begin at the same place in their pages.
    buffers_.stride = (options_.max_bytes + kPage - 1) / kPage * kPage;
    const std::size_t bytes = BytesOfBuffers();
    if (options_.buffers == BufferKind::kAllocated) {
      // At least one byte: a buffer of nothing need not be one.
      RINGPIPE_ASSIGN_OR_RETURN(
          buffers_.send,
          communicator_.Allocate(std::max<std::size_t>(bytes, 1)));
      RINGPIPE_ASSIGN_OR_RETURN(
          buffers_.receive,
          communicator_.Allocate(std::max<std::size_t>(bytes, 1)));
      return {};
    }
    if (options_.memory != MemoryPlace::kHost) {
      return AllocateOnGpu(bytes).WithContext(
          "--memory " + std::string(Name(options_.memory)));
    }
    RINGPIPE_ASSIGN_OR_RETURN(
        buffers_.send,
        send_.Allocate(bytes, options_.huge_pages, options_.align));
    RINGPIPE_ASSIGN_OR_RETURN(
        buffers_.receive,
        receive_.Allocate(bytes, options_.huge_pages, options_.align));
    if (options_.buffers == BufferKind::kRegistered && bytes > 0) {
      RINGPIPE_RETURN_IF_ERROR(communicator_.Register(buffers_.send, bytes));
      RINGPIPE_RETURN_IF_ERROR(communicator_.Register(buffers_.receive, bytes));
    }
    return {};
  }

  // Ranks of a host take its GPUs in turn.
  Status AllocateOnGpu(std::size_t bytes) {
    const std::vector<RankPlace>& places = report_.facts.places;
    const auto own = places.begin() + job_.rank();
    const auto number = std::count_if(
        places.begin(), own,
        [&](const RankPlace& place) { return place.host == own->host; });
    RINGPIPE_ASSIGN_OR_RETURN(
        gpu_, GpuBuffers::Create(options_.memory, static_cast<int>(number)));
    for (void** const buffer : {&buffers_.send, &buffers_.receive}) {
      RINGPIPE_ASSIGN_OR_RETURN(void* const memory,
                                gpu_->Allocate(bytes + options_.align));
      *buffer = static_cast<std::byte*>(memory) + options_.align;
    }
    buffers_.copy = [this](void* target, const void* source,
                           std::size_t bytes) {
      return gpu_->Copy(target, source, bytes);
    };
    return {};
  }

  Status Free() {
    if (gpu_ != nullptr) {
      gpu_->Free();
    }
    if (options_.buffers == BufferKind::kAllocated) {
      RINGPIPE_RETURN_IF_ERROR(communicator_.Free(buffers_.send));
      RINGPIPE_RETURN_IF_ERROR(communicator_.Free(buffers_.receive));
    } else if (options_.buffers == BufferKind::kRegistered &&
               BytesOfBuffers() > 0) {
      RINGPIPE_RETURN_IF_ERROR(communicator_.Deregister(buffers_.send));
      RINGPIPE_RETURN_IF_ERROR(communicator_.Deregister(buffers_.receive));
    }
    return {};
  }

  // Then slots come with the first call that needs some.
  bool OnOneHost() const {
    return communicator_.device().starts_with("host memory: all ranks");
  }

  Status PrintHeader() {
    if (job_.rank() != 0) {
      return {};
    }
    std::string text = "# ringpipe " + std::string(Version()) + " " +
                       NameOfAll(options_.collectives) +
                       ", ranks: " + std::to_string(job_.size()) +
                       "\n# minBytes " + std::to_string(options_.min_bytes) +
                       " maxBytes " + std::to_string(options_.max_bytes) +
                       " step: ";
    text += options_.step_factor != 0
                ? std::to_string(options_.step_factor) + "(factor)"
                : std::to_string(options_.step_bytes) + "(bytes)";
    text +=
        " warmup iters: " + std::to_string(options_.warmups) + " iters: " +
        (options_.iterations
             ? std::to_string(*options_.iterations)
             : std::to_string(kFewestDefaultIterations) + " to " +
                   std::to_string(kDefaultIterations)) +
        " validation: " + std::to_string(options_.checks) +
        " blocking: " + std::to_string(options_.blocking) +
        " registered: " + std::to_string(static_cast<int>(options_.buffers)) +
        (options_.memory == MemoryPlace::kHost
             ? ""
             : " memory: " + std::string(Name(options_.memory))) +
        (options_.huge_pages ? " huge pages" : "") +
        " align: " + std::to_string(options_.align) +
        (options_.rotate > 1 ? " rotate: " + std::to_string(options_.rotate)
                             : "") +
        (options_.touch ? " touch" : "") +
        (options_.algorithm.empty() ? ""
                                    : " algorithm: " + options_.algorithm) +
        " seed: " + std::to_string(options_.seed) + "\n#\n";
    return table_.Write(text + DescribePlaces());
  }

  // nccl-tests' list of ranks; the device, whose description is long, once
  // where it is the same for many ranks in a row.
  std::string DescribePlaces() const {
    constexpr std::size_t kMostLines = 64;
    std::string text = "# Using devices\n";
    std::string device;
    const std::vector<RankPlace>& places = report_.facts.places;
    for (std::size_t rank = 0; rank < places.size(); ++rank) {
      const RankPlace& place = places[rank];
      if (place.device != device) {
        device = place.device;
        text += "#   " + device + "\n";
      }
      if (rank < kMostLines) {
        char line[320];
        std::snprintf(line, sizeof line, "#  Rank %2zu Pid %6d on %10s\n", rank,
                      place.pid, place.host.c_str());
        text += line;
      } else if (rank == kMostLines) {
        text += "#  and " + std::to_string(places.size() - rank) + " more\n";
      }
    }
    return text;
  }

  // The line is left out where nothing is known.
  Status PrintBoundBy() {
    if (job_.rank() != 0) {
      return {};
    }
    return table_.Write((report_.bound_by ? "# Bound by             : " +
                                                *report_.bound_by + "\n#\n"
                                          : "#\n"));
  }

  Status GatherFacts() {
    RunFacts& facts = report_.facts;
    RINGPIPE_ASSIGN_OR_RETURN(const Environment environment,
                              Environment::FromProcess());
    RINGPIPE_ASSIGN_OR_RETURN(const Launch launch, DetectLaunch(environment));
    facts.version = Version();
    facts.date = UtcDate();
    facts.launcher = options_.error_fd >= 0 ? "--ranks" : launch.launcher;
    facts.environment = ReportedVariables(environ);
    RINGPIPE_ASSIGN_OR_RETURN(const Hosts hosts,
                              MeetHosts(communicator_, environment));
    RINGPIPE_ASSIGN_OR_RETURN(
        const AlgorithmChoice algorithms,
        AlgorithmChoice::Parse(environment.algorithm,
                               {0, job_.size(), 0, hosts.numbers},
                               environment.subchunk_bytes));
    facts.chunking.algorithm = algorithms
                                   .For(options_.collectives.front(),
                                        options_.max_bytes, hosts.common())
                                   .name;
    facts.chunking.subchunk_bytes = environment.subchunk_bytes;
    facts.chunking.depth = algorithms.DepthFor(
        static_cast<int>(environment.depth), environment.subchunk_bytes,
        {0, job_.size(), 0, hosts.numbers}, hosts.common());
    return {};
  }

  Status WriteReport() {
    if (job_.rank() != 0 || options_.json_path.empty()) {
      return {};
    }
    report_.facts.chunking.slots = communicator_.slot_counters().slots;
    const std::string text = FormatJsonReport(options_, report_);
    report_written_ = true;
    if (!options_.JsonToStandardOutput()) {
      return WriteAtomically(options_.json_path, text);
    }
    TextOutput output = StandardOutput(/*stop_fd=*/-1);
    const Status status = output.Write(text);
    // No error that the other ranks should know.
    report_reader_left_ = output.reader_left();
    return report_reader_left_ ? Status() : status;
  }

  const Options& options_;
  Communicator& communicator_;
  CommunicatorJob job_;
  PrivateMemory send_;
  PrivateMemory receive_;
  std::unique_ptr<GpuBuffers> gpu_;  // null: they are the host's
  Buffers buffers_;
  TextOutput table_;
  Report report_;
  bool report_written_ = false;
  bool report_reader_left_ = false;
  bool all_know_ = false;
};

// The errors that every rank has when one rank fails.
bool IsShared(StatusCode code) {
  return code == StatusCode::kPeerLost || code == StatusCode::kAborted ||
         code == StatusCode::kMismatch;
}

// What follows wins over what the variable says already.
void ChooseAlgorithm(Collective collective, const std::string& name) {
  constexpr const char* kVariable = "RINGPIPE_ALGORITHM";
  const char* const before = std::getenv(kVariable);
  const std::string choice =
      std::string(CollectiveName(collective)) + ":" + name;
  setenv(kVariable,
         before == nullptr || *before == '\0'
             ? choice.c_str()
             : (std::string(before) + "," + choice).c_str(),
         /*overwrite=*/1);
}

Result<std::unique_ptr<Communicator>> Join(const Options& options) {
  if (!options.algorithm.empty()) {
    ChooseAlgorithm(options.collectives.front(), options.algorithm);
  }
  if (!options.trace_path.empty()) {
    setenv("RINGPIPE_TRACE", options.trace_path.c_str(), /*overwrite=*/1);
  }
  RINGPIPE_ASSIGN_OR_RETURN(const CommunicatorOptions communicator_options,
                            CommunicatorOptions::FromProcess());
  if (options.pin) {  // --ranks has set the variable
    RINGPIPE_RETURN_IF_ERROR(
        RunOnCore(communicator_options.environment.rank.value_or(0)));
  }
  auto communicator = Communicator::Create(communicator_options);
  if (!communicator.ok() && options.error_fd < 0 &&
      communicator.status().code() == StatusCode::kInvalidArgument) {
    return Status(communicator.status().code(),
                  communicator.status().message() +
                      "\nTo start all ranks on this host, say how many: "
                      "allreduce --ranks 8 -b 256M -e 256M");
  }
  return communicator;
}

// Ends a run that `signal` ended early: what was measured is saved, and the
// process dies of the signal.
[[noreturn]] void EndEarly(const Options& options, Rank& rank, int signal) {
  const Status saved = rank.SaveInterrupted(signal);
  if (!saved.ok()) {
    // Not by way of the launcher, which prints nothing any more.
    ReportError(-1, -1, saved);
  }
  // The launcher then ends all ranks; it may know already.
  ReportStop(options.error_fd, signal);
  DieOf(signal);
}

// Tells the user about an error that ended this rank's run.
void ReportFailure(const Options& options, const Rank& rank,
                   Communicator& communicator, const Status& status) {
  if (options.error_fd >= 0) {
    ReportError(options.error_fd, -1, status);
  } else {
    // Other launchers print what each rank says: what all have to say, rank 0
    // says for them; and where a rank is lost two more, since rank 0 may be
    // that, or stopped. A rank that was started by hand may have a terminal of
    // its own.
    const int self = communicator.rank();
    const bool shared = rank.all_know() || IsShared(status.code());
    const int speakers = status.code() == StatusCode::kPeerLost ? 3 : 1;
    if (self < speakers || !shared || rank.started_by_hand()) {
      ReportError(-1, shared ? -1 : self, status);
    }
  }
  if (!rank.all_know() && communicator.failure().ok()) {
    // The others are still at work.
    communicator.Abort(status.message());
  }
}

int RunOnce(const Options& options) {
  // Before the communicator's threads. A write to a pipe that nobody reads is
  // an error that is noticed where it happens.
  SignalWatch signals;
  signal(SIGPIPE, SIG_IGN);
  const Processor processor = FindProcessor();  // before --pin
  auto communicator = Join(options);
  if (!communicator.ok()) {
    signals.Stop();  // ends the process where a signal came
    ReportError(options.error_fd, -1, communicator.status());
    return 1;
  }
  Rank rank(options, **communicator, processor, signals.fd());
  // Other ranks of a launcher of our own die at once.
  if ((*communicator)->rank() == 0 || options.error_fd < 0) {
    signals.Arm([&](int signal) {
      ReportStop(options.error_fd, signal);
      (*communicator)->Abort("interrupted by " + SignalName(signal));
    });
  }
  const Status status = rank.Run();
  if (const int signal = signals.Stop()) {
    EndEarly(options, rank, signal);
  }
  if (rank.reader_left()) {
    EndEarly(options, rank, SIGPIPE);
  }
  if (!status.ok()) {
    ReportFailure(options, rank, **communicator, status);
    return 1;
  }
  return 0;
}

// Each of the collectives by each of its algorithms that there are for these
// ranks.
Result<std::vector<Options>> OneByOne(const Options& options) {
  Options any = options;
  any.algorithm.clear();
  RINGPIPE_ASSIGN_OR_RETURN(const auto communicator, Join(any));
  RINGPIPE_ASSIGN_OR_RETURN(const Environment environment,
                            Environment::FromProcess());
  RINGPIPE_ASSIGN_OR_RETURN(const Hosts hosts,
                            MeetHosts(*communicator, environment));
  std::vector<Options> all;
  for (const Collective collective : options.collectives) {
    for (const AlgorithmInfo& info : Algorithms()) {
      if (info.collective == collective &&
          Exists(info, {communicator->rank(), communicator->size(), 0,
                        hosts.numbers})) {
        any.collectives = {collective};
        any.algorithm = info.name;
        all.push_back(any);
      }
    }
  }
  return all;
}

}  // namespace

int RankMain(const Options& options) {
  if (options.algorithm != kAllAlgorithms) {
    return RunOnce(options);
  }
  const auto all = OneByOne(options);
  if (!all.ok()) {
    ReportError(options.error_fd, -1, all.status());
    return 1;
  }
  for (const Options& one : *all) {
    if (const int status = RunOnce(one)) {
      return status;
    }
  }
  return 0;
}

}  // namespace ringpipe
