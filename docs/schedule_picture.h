// A picture in text of who sends what to whom.
#ifndef RINGPIPE_DOCS_SCHEDULE_PICTURE_H_
#define RINGPIPE_DOCS_SCHEDULE_PICTURE_H_

#include <span>
#include <string>

#include "pipeline/symbolic_run.h"

namespace ringpipe {

// One message has a line in the column of its sender, and in the rows of its
// step, its place in a chain of messages (SentMessage::chain):
//
//     step  rank 0    rank 1
//       1   B +-> 1   A +-> 0     chunk B goes to rank 1, which adds it
//       2   A -> 1    B -> 0
//
// Chunks have letters. `equal_chunks`: Schedule's; of scratch it then has only
// the number of chunks, because their places say nothing.
std::string PictureOf(std::span<const SentMessage> messages, int ranks,
                      int chunks, bool equal_chunks);

}  // namespace ringpipe

#endif  // RINGPIPE_DOCS_SCHEDULE_PICTURE_H_
