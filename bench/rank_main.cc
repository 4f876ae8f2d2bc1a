#include "bench/rank_main.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>

#include "bench/atomic_file.h"
#include "bench/available_memory.h"
#include "bench/benchmark.h"
#include "bench/byte_size.h"
#include "bench/communicator_job.h"
#include "bench/json_report.h"
#include "bench/local_ranks.h"
#include "engine/communicator.h"

namespace ringpipe {
namespace {

void Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Private memory, page-aligned, given back to the system at the end.
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

  Result<void*> Allocate(std::size_t bytes) {
    bytes_ = std::max<std::size_t>(bytes, 1);
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         "a buffer of " + FormatByteSize(bytes) + " bytes",
                         errno);
    }
    return data_;
  }

 private:
  void* data_ = MAP_FAILED;
  std::size_t bytes_ = 0;
};

class Rank {
 public:
  Rank(const Options& options, Communicator& communicator)
      : options_(options),
        communicator_(communicator),
        job_(communicator, options.blocking) {}

  Status Run() {
    RINGPIPE_RETURN_IF_ERROR(AllKnow(Agree(job_, CheckJsonPath())));
    RINGPIPE_ASSIGN_OR_RETURN(places_, job_.Places());
    RINGPIPE_RETURN_IF_ERROR(AllKnow(CheckHostMemory()));
    RINGPIPE_RETURN_IF_ERROR(AllKnow(Agree(job_, Allocate())));
    PrintHeader();
    const auto before = communicator_.stage_counters();
    RINGPIPE_ASSIGN_OR_RETURN(const BenchmarkResult result,
                              RunBenchmark(job_, options_, buffers_, Print));
    RINGPIPE_ASSIGN_OR_RETURN(const std::string bound_by,
                              job_.BoundBy(before, result.in_calls_us));
    RINGPIPE_RETURN_IF_ERROR(AllKnow(Agree(job_, Report(result, bound_by))));
    RINGPIPE_RETURN_IF_ERROR(Free());
    if (result.wrong > 0) {
      return AllKnow({StatusCode::kInternal, std::to_string(result.wrong) +
                                                 " wrong values in the "
                                                 "results"});
    }
    return {};
  }

  // Whether the error that Run returned is every rank's, in the same words.
  bool all_know() const { return all_know_; }

 private:
  Status AllKnow(Status status) {
    all_know_ = !status.ok();
    return status;
  }

  Status CheckJsonPath() const {
    if (job_.rank() != 0 || options_.json_path.empty()) {
      return {};
    }
    return CheckWritable(options_.json_path);
  }

  // The same verdict on every rank: all know what each host has.
  Status CheckHostMemory() {
    const auto available = AvailableMemory();
    RINGPIPE_ASSIGN_OR_RETURN(
        const auto blobs,
        job_.Exchange(available ? std::to_string(*available) : ""));
    std::map<std::string, int> ranks;
    for (const RankPlace& place : places_) {
      ++ranks[place.host];
    }
    for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
      const auto bytes = ParseByteSize(blobs[rank]);
      if (bytes.ok()) {
        const std::string& host = places_[rank].host;
        RINGPIPE_RETURN_IF_ERROR(
            CheckMemory(options_, ranks[host], bytes.value())
                .WithContext("host " + host));
      }
    }
    return {};
  }

  Status Allocate() {
    const std::size_t bytes = options_.max_bytes;
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
    RINGPIPE_ASSIGN_OR_RETURN(buffers_.send, send_.Allocate(bytes));
    RINGPIPE_ASSIGN_OR_RETURN(buffers_.receive, receive_.Allocate(bytes));
    if (options_.buffers == BufferKind::kRegistered && bytes > 0) {
      RINGPIPE_RETURN_IF_ERROR(communicator_.Register(buffers_.send, bytes));
      RINGPIPE_RETURN_IF_ERROR(communicator_.Register(buffers_.receive, bytes));
    }
    return {};
  }

  Status Free() {
    if (options_.buffers == BufferKind::kAllocated) {
      RINGPIPE_RETURN_IF_ERROR(communicator_.Free(buffers_.send));
      RINGPIPE_RETURN_IF_ERROR(communicator_.Free(buffers_.receive));
    } else if (options_.buffers == BufferKind::kRegistered &&
               options_.max_bytes > 0) {
      RINGPIPE_RETURN_IF_ERROR(communicator_.Deregister(buffers_.send));
      RINGPIPE_RETURN_IF_ERROR(communicator_.Deregister(buffers_.receive));
    }
    return {};
  }

  void PrintHeader() const {
    if (job_.rank() != 0) {
      return;
    }
    std::string text = "# ringpipe " + std::string(Version()) +
                       " allreduce, ranks: " + std::to_string(job_.size()) +
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
        " seed: " + std::to_string(options_.seed) + "\n#\n";
    Print(text + DescribePlaces());
  }

  // nccl-tests' list of ranks; the device, whose description is long, once
  // where it is the same for many ranks in a row.
  std::string DescribePlaces() const {
    constexpr std::size_t kMostLines = 64;
    std::string text = "# Using devices\n";
    std::string device;
    for (std::size_t rank = 0; rank < places_.size(); ++rank) {
      const RankPlace& place = places_[rank];
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
        text += "#  and " + std::to_string(places_.size() - rank) + " more\n";
      }
    }
    return text;
  }

  Status Report(const BenchmarkResult& result,
                const std::string& bound_by) const {
    if (job_.rank() != 0) {
      return {};
    }
    Print("# Bound by             : " + bound_by + "\n#\n");
    if (options_.json_path.empty()) {
      return {};
    }
    return WriteAtomically(
        options_.json_path,
        FormatJsonReport(Version(), options_, places_, result, bound_by));
  }

  const Options& options_;
  Communicator& communicator_;
  CommunicatorJob job_;
  PrivateMemory send_;
  PrivateMemory receive_;
  Buffers buffers_;
  std::vector<RankPlace> places_;
  bool all_know_ = false;
};

// The errors that every rank has when one rank fails.
bool IsShared(StatusCode code) {
  return code == StatusCode::kPeerLost || code == StatusCode::kAborted ||
         code == StatusCode::kMismatch;
}

Result<std::unique_ptr<Communicator>> Join(const Options& options) {
  RINGPIPE_ASSIGN_OR_RETURN(const CommunicatorOptions communicator_options,
                            CommunicatorOptions::FromProcess());
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

}  // namespace

int RankMain(const Options& options) {
  auto communicator = Join(options);
  if (!communicator.ok()) {
    ReportError(options.error_fd, -1, communicator.status());
    return 1;
  }
  Rank rank(options, **communicator);
  const Status status = rank.Run();
  if (status.ok()) {
    return 0;
  }
  if (options.error_fd >= 0) {
    ReportError(options.error_fd, -1, status);
    return 1;
  }
  // Other launchers print what each rank says: what all have to say, rank 0
  // says for them.
  const int self = (*communicator)->rank();
  const bool shared = rank.all_know() || IsShared(status.code());
  if (self == 0 || !shared) {
    ReportError(-1, shared ? -1 : self, status);
  }
  return 1;
}

}  // namespace ringpipe
