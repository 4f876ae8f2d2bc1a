#include "engine/goodbye.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <set>
#include <vector>

#include "engine/culprit.h"

namespace ringpipe {
namespace {

// How long devices may take to send a last short message when a rank leaves
// before the others.
constexpr std::chrono::milliseconds kLastMessagesPatience(500);
// How long a rank that destroys its communicator waits for the others.
constexpr std::chrono::milliseconds kGoodbyePatience(2000);

}  // namespace

// Peers may still be in their last call: acknowledging messages, or sending
// credits. But two ranks that destroy two communicators in different orders
// would wait for each other.
bool Goodbye::LeaveTogether(Deadline deadline) noexcept {
  try {
    if (job_.abort->raised(0)) {
      return false;
    }
    job_.whereabouts->Move(Whereabouts::Place::kLeaving, CoarseNow());
    const Status together = job_.bootstrap->LeaveTogether(Deadline::At(
        std::min(deadline.when(), Deadline::After(kGoodbyePatience).when())));
    if (together.ok()) {
      return true;
    }
    if (together.code() == StatusCode::kTimeout) {
      job_.logger->Warning(
          "destroyed the communicator without waiting any longer for rank(s) " +
          RanksThatStay() +
          ", which have not destroyed theirs: destroy communicators on all "
          "ranks in the same order, after their last calls");
    } else if (together.code() == StatusCode::kInterrupted) {
      job_.logger->Warning(
          "destroyed the communicator without waiting for the other ranks: " +
          together.message());
    } else {
      job_.logger->Debug("leaving alone: " + together.ToString());
    }
    // Where it has not failed meanwhile. That another rank has left before is a
    // failure of later calls alone.
    if (!job_.abort->raised(0)) {
      job_.executor->FinishSending(Deadline::After(kLastMessagesPatience));
      Tell(/*lives_on=*/true);
    }
  } catch (const std::exception&) {
    // Then alone, without a word.
  }
  return false;
}

void Goodbye::Exit(bool idle) {
  if (idle) {
    job_.executor->FinishSending(Deadline::After(kLastMessagesPatience));
  }
  Tell(/*lives_on=*/false);
}

// Of calls that this rank has not ended, all others hear why they fail.
void Goodbye::Tell(bool lives_on) {
  const std::uint64_t calls = job_.whereabouts->now().calls_ended();
  job_.executor->TellPeers(
      {StatusCode::kPeerLost, "rank " + std::to_string(job_.rank) + " (pid " +
                                  std::to_string(getpid()) +
                                  (lives_on ? ") has destroyed its communicator"
                                            : ") has ended without destroying "
                                              "its communicator")},
      calls);
  lives_on ? job_.bootstrap->LeaveAlone(calls) : job_.bootstrap->Exit(calls);
}

std::string Goodbye::RanksThatStay() {
  const std::vector<std::string> texts =
      job_.bootstrap->AskAll(Deadline::After(kAnswerPatience));
  const std::vector<int> departed = job_.bootstrap->departed();
  std::set<int> ranks;
  for (int rank = 0; rank < job_.size; ++rank) {
    const std::optional<Answer> answer = Answer::Decode(texts[rank]);
    const bool leaves =
        answer.has_value() && answer->place == Whereabouts::Place::kLeaving;
    if (rank != job_.rank && !leaves &&
        std::find(departed.begin(), departed.end(), rank) == departed.end()) {
      ranks.insert(rank);
    }
  }
  return FormatRanks(ranks);
}

}  // namespace ringpipe
