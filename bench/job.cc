#include "bench/job.h"

namespace ringpipe {

Status Agree(Job& job, const Status& mine) {
  // One character for the code, then the message.
  std::string blob;
  if (!mine.ok()) {
    blob = static_cast<char>('a' + static_cast<int>(mine.code()));
    blob += mine.message();
  }
  RINGPIPE_ASSIGN_OR_RETURN(const auto blobs, job.Exchange(blob));
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    if (!blobs[rank].empty()) {
      return Status(static_cast<StatusCode>(blobs[rank][0] - 'a'),
                    blobs[rank].substr(1))
          .WithContext("rank " + std::to_string(rank));
    }
  }
  return {};
}

}  // namespace ringpipe
