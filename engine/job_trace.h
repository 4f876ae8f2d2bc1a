#ifndef RINGPIPE_ENGINE_JOB_TRACE_H_
#define RINGPIPE_ENGINE_JOB_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/log.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "engine/clock_offset.h"
#include "engine/trace_writer.h"
#include "pipeline/trace.h"

namespace ringpipe {

// The trace of one communicator on one rank (RINGPIPE_TRACE), from its creation
// to its file. All ranks trace, or none.
//
// An orderly end gives one file with the events of all ranks, which rank 0
// writes. Otherwise (a rank failed, or exits, or there are more ranks than
// kMostRanksInOneFile) each rank that can writes a file of its own beside it,
// FILE.rank3. The second communicator of rank 0's process with the same FILE
// writes FILE.2 (FILE.2.rank3), and so on.
//
// A file that cannot be written is an error in the log, and of no call.
// Thread-safe, but for WriteTogether and WriteAlone: one of them, once.
class JobTrace {
 public:
  // The file goes to all ranks by way of rank 0, so that rank 0 sends size²
  // times the events of a rank.
  static constexpr int kMostRanksInOneFile = 64;

  // Rank 0 looks whether it can write the file. `path`: relative to the working
  // directory as it is now.
  JobTrace(const std::string& path, int rank, int size, const Logger& logger);
  JobTrace(const JobTrace&) = delete;
  JobTrace& operator=(const JobTrace&) = delete;

  Trace& trace() { return trace_; }

  // What this rank says of the trace when it joins: not empty, in one line.
  std::string Claim() const;
  // What rank 0 said. kMismatch if it cannot be read.
  Status Accept(const std::string& claim_of_rank_0);

  // Where all ranks are about to destroy their communicators and make this
  // call.
  void WriteTogether(Bootstrap& bootstrap, Deadline deadline) noexcept;
  // After a failure, or without the others. Where nothing was recorded: no
  // file. `logs`: says where it is.
  void WriteAlone(bool logs) noexcept;

 private:
  // The events of all ranks, one part of each after the other.
  Status Gather(Bootstrap& bootstrap, Deadline deadline);
  Result<std::vector<ClockSample>> SampleClocks(Bootstrap& bootstrap,
                                                Deadline deadline) const;
  Status WriteOwnFile(std::uint64_t* events) const;
  TraceWriter::Run run(bool aligned) const { return {run_id_, size_, aligned}; }
  std::string SharedPath() const;

  const int rank_;
  const int size_;
  const Logger logger_;
  const std::string path_;  // absolute
  Trace trace_;
  // As rank 0 says: how many communicators of its process have had this file,
  // this one included; 0: nothing can be written.
  int number_ = 0;
  std::uint64_t run_id_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_JOB_TRACE_H_
