#include "engine/job_trace.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <utility>

#include "auth/byte_stream.h"
#include "base/atomic_file.h"
#include "base/host_name.h"

namespace ringpipe {
namespace {

// 4 MiB a rank, and 32 MiB in the file of many ranks.
constexpr std::size_t kMostEvents = 1 << 16;
constexpr std::size_t kMostEventsInOneFile = 1 << 19;
// How often the clocks are compared. The closest of them counts.
constexpr int kClockSamples = 8;
// What is gathered at once.
constexpr std::size_t kMostPartBytes = 1 << 20;
constexpr std::size_t kMostPartsBytes = 16 << 20;  // of all ranks

bool InOneFile(int size) { return size <= JobTrace::kMostRanksInOneFile; }

std::size_t CapacityFor(int size) {
  return InOneFile(size) ? std::min(kMostEvents, kMostEventsInOneFile / size)
                         : kMostEvents;
}

std::size_t EventsInPart(int size) {
  return std::min(kMostPartBytes, kMostPartsBytes / size) / sizeof(TraceEvent);
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

// How many communicators of this process have asked for the file, this one
// included. Only the process knows that it has several.
int CountUse(const std::string& path) {
  static std::mutex* const mutex = new std::mutex;  // outlive other statics
  static auto* const uses = new std::map<std::string, int>;
  const std::lock_guard<std::mutex> lock(*mutex);
  return ++(*uses)[path];
}

std::int64_t Now() {
  return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
}

// What a rank says before its events.
struct Announcement {
  std::string host;
  std::uint64_t pid = 0;
  std::uint64_t events = 0;
  std::uint64_t dropped = 0;
  std::vector<ClockSample> clock;

  std::string Encode() const {
    ByteWriter writer;
    writer.String(host);
    writer.U64(pid);
    writer.U64(events);
    writer.U64(dropped);
    for (const ClockSample& sample : clock) {
      writer.U64(static_cast<std::uint64_t>(sample.entered_ns));
      writer.U64(static_cast<std::uint64_t>(sample.left_ns));
    }
    return writer.Take();
  }

  static std::optional<Announcement> Decode(std::string_view bytes, int size) {
    ByteReader reader(bytes);
    Announcement announcement;
    announcement.host = reader.String(256);
    announcement.pid = reader.U64();
    announcement.events = reader.U64();
    announcement.dropped = reader.U64();
    for (int i = 0; i < kClockSamples; ++i) {
      const auto entered = static_cast<std::int64_t>(reader.U64());
      announcement.clock.push_back(
          {entered, static_cast<std::int64_t>(reader.U64())});
    }
    if (!reader.finished() || announcement.events > CapacityFor(size)) {
      return std::nullopt;
    }
    return announcement;
  }
};

std::string Bytes(std::span<const TraceEvent> events) {
  return {reinterpret_cast<const char*>(events.data()), events.size_bytes()};
}

std::vector<TraceEvent> Events(std::string_view bytes) {
  std::vector<TraceEvent> events(bytes.size() / sizeof(TraceEvent));
  if (!events.empty()) {
    std::memcpy(static_cast<void*>(events.data()), bytes.data(),
                events.size() * sizeof(TraceEvent));
  }
  return events;
}

Status Unreadable(int rank) {
  return {StatusCode::kMismatch,
          "rank " + std::to_string(rank) +
              " sent a trace that cannot be read: do all ranks run the same "
              "version of ringpipe?"};
}

}  // namespace

JobTrace::JobTrace(const std::string& path, int rank, int size,
                   const Logger& logger)
    : rank_(rank),
      size_(size),
      logger_(logger),
      path_(Absolute(path)),
      trace_(CapacityFor(size)) {
  if (rank != 0) {
    return;
  }
  std::random_device random;
  run_id_ = std::uint64_t{random()} << 32 | random();
  number_ = CountUse(path_);
  if (const Status status = CheckWritable(SharedPath()); !status.ok()) {
    logger_.Error("RINGPIPE_TRACE=" + path +
                  ": there will be no trace: " + status.ToString());
    number_ = 0;
  }
}

std::string JobTrace::Claim() const {
  return rank_ == 0 ? std::to_string(number_) + " " + std::to_string(run_id_)
                    : "on";
}

Status JobTrace::Accept(const std::string& claim_of_rank_0) {
  const char* const end = claim_of_rank_0.data() + claim_of_rank_0.size();
  const auto number = std::from_chars(claim_of_rank_0.data(), end, number_);
  if (number.ec != std::errc() || number.ptr == end) {
    return Unreadable(0);
  }
  const auto id = std::from_chars(number.ptr + 1, end, run_id_);
  return id.ec == std::errc() && id.ptr == end ? Status::Ok() : Unreadable(0);
}

std::string JobTrace::SharedPath() const {
  return number_ > 1 ? path_ + "." + std::to_string(number_) : path_;
}

void JobTrace::WriteTogether(Bootstrap& bootstrap, Deadline deadline) noexcept {
  if (number_ == 0) {
    return;
  }
  if (!InOneFile(size_)) {
    WriteAlone(/*logs=*/true);
    return;
  }
  try {
    const Status gathered = Gather(bootstrap, deadline);
    if (gathered.ok()) {
      if (rank_ == 0) {
        logger_.Info("the trace is in " + SharedPath());
      }
      return;
    }
    logger_.Error("no trace of all ranks: " + gathered.ToString());
  } catch (const std::bad_alloc&) {
    // Perhaps there is enough memory for this rank's own.
  }
  WriteAlone(/*logs=*/true);
}

// No rank leaves a gathering before all have entered it.
Result<std::vector<ClockSample>> JobTrace::SampleClocks(
    Bootstrap& bootstrap, Deadline deadline) const {
  std::vector<ClockSample> samples(kClockSamples);
  for (ClockSample& sample : samples) {
    sample.entered_ns = Now();
    RINGPIPE_RETURN_IF_ERROR(bootstrap.AllGather("", deadline).status());
    sample.left_ns = Now();
  }
  return samples;
}

Status JobTrace::Gather(Bootstrap& bootstrap, Deadline deadline) {
  const Trace::Contents own = trace_.Read();
  Announcement announcement = {HostName(),
                               static_cast<std::uint64_t>(getpid()),
                               own.events.size(),
                               own.dropped,
                               {}};
  RINGPIPE_ASSIGN_OR_RETURN(announcement.clock,
                            SampleClocks(bootstrap, deadline));
  RINGPIPE_ASSIGN_OR_RETURN(
      const std::vector<std::string> announced,
      bootstrap.AllGather(announcement.Encode(), deadline));
  std::vector<TraceWriter::Source> sources;
  std::vector<Announcement> ranks;
  std::uint64_t most_events = 0;
  for (int rank = 0; rank < size_; ++rank) {
    auto decoded = Announcement::Decode(announced[rank], size_);
    if (!decoded) {
      return Unreadable(rank);
    }
    ranks.push_back(std::move(*decoded));
    const Announcement& other = ranks.back();
    const ClockOffset offset = EstimateOffset(ranks[0].clock, other.clock);
    sources.push_back({rank, other.host, other.pid, other.dropped,
                       offset.offset_ns, offset.error_ns});
    most_events = std::max(most_events, other.events);
  }
  // Where rank 0 cannot write it takes part all the same: the others count on
  // it.
  Status written;
  std::optional<TraceWriter> writer;
  if (rank_ == 0) {
    auto created =
        TraceWriter::Create(SharedPath(), run(/*aligned=*/true), sources);
    written = created.status();
    if (created.ok()) {
      writer.emplace(std::move(created).value());
    }
  }
  const std::size_t part = EventsInPart(size_);
  for (std::uint64_t begin = 0; begin < most_events; begin += part) {
    const std::size_t from = std::min(begin, own.events.size());
    const std::size_t count = std::min(part, own.events.size() - from);
    RINGPIPE_ASSIGN_OR_RETURN(
        const std::vector<std::string> parts,
        bootstrap.AllGather(Bytes(std::span(own.events).subspan(from, count)),
                            deadline));
    for (int rank = 0; rank < size_ && writer && written.ok(); ++rank) {
      written = writer->Add(sources[rank], Events(parts[rank]));
    }
  }
  if (writer && written.ok()) {
    written = writer->Finish();
  }
  return written;
}

void JobTrace::WriteAlone(bool logs) noexcept {
  if (number_ == 0) {
    return;
  }
  try {
    std::uint64_t events = 0;
    const Status written = WriteOwnFile(&events);
    if (!logs) {
      return;
    }
    if (!written.ok()) {
      logger_.Error("no trace of rank " + std::to_string(rank_) + ": " +
                    written.ToString());
    } else if (events > 0) {
      logger_.Warning("the trace of this rank alone is in " + SharedPath() +
                      ".rank" + std::to_string(rank_));
    }
  } catch (const std::bad_alloc&) {
    // Then there is none.
  }
}

Status JobTrace::WriteOwnFile(std::uint64_t* events) const {
  const Trace::Contents own = trace_.Read();
  *events = own.events.size();
  if (own.events.empty()) {
    return Status::Ok();
  }
  const TraceWriter::Source source = {
      rank_, HostName(), static_cast<std::uint64_t>(getpid()), own.dropped};
  RINGPIPE_ASSIGN_OR_RETURN(
      TraceWriter writer,
      TraceWriter::Create(SharedPath() + ".rank" + std::to_string(rank_),
                          run(/*aligned=*/false), std::span(&source, 1)));
  RINGPIPE_RETURN_IF_ERROR(writer.Add(source, own.events));
  return writer.Finish();
}

}  // namespace ringpipe
