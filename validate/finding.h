// What a validation says is wrong.
#ifndef RINGPIPE_VALIDATE_FINDING_H_
#define RINGPIPE_VALIDATE_FINDING_H_

#include <string>
#include <utility>
#include <vector>

namespace ringpipe::validate {

struct Finding {
  enum class Kind {
    kLost,            // a rank or its link went away during the test
    kWrongBytes,      // data arrived that was not sent
    kSlowHost,        // a host (or a rank of it): both directions
    kSlowSender,      // what it sends
    kSlowReceiver,    // what it receives
    kSlowPath,        // one pair, both ways
    kSlowDirection,   // one pair, one way
    kSlowRail,        // one rail of all hosts
    kBelowExpected,   // all links, against --expect
    kSlowerThanThen,  // all links, against --baseline
    kPort,            // what a port says of itself
    kErrorCounter,    // a counter of errors grew
    kUnverified,      // slow links, and noise may be why
    kDisturbed,       // many messages of a host take longer than its others
    kBusy,            // a host has no core left for its ranks
    kContention,      // links slow each other down, none is slow alone
    kLatency,
    kPattern,    // bisection or rings get less than their links promise
    kUnmatched,  // a baseline of other hosts
    kFewLinks,   // nothing to compare them with
    kOther,
  };
  Kind kind = Kind::kOther;
  bool fault = true;    // false: worth knowing, and nothing is broken
  std::string host;     // where it is, if it is in one place
  std::string port;     // "mlx5_0:1", of that host, if it is about a port
  std::string subject;  // of slow links: which, "what host c17 sends"
  // The ranks of a single link; -1: it is not about one.
  int from = -1;
  int to = -1;
  int plane = -1;
  double weight = 0;  // among findings of a kind, the worst first
  std::string text;   // a sentence, with figures
  // Sentences about what has the same cause.
  std::vector<std::string> also;
  // Of slow links: which, from and to.
  std::vector<std::pair<int, int>> links;
};

Finding MakeFinding(Finding::Kind kind, bool fault, std::string text);

// "slow_sender".
const char* KindName(Finding::Kind kind);

// Faults first, by kind and weight.
void SortFindings(std::vector<Finding>& findings);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_FINDING_H_
