#include "engine/agreement.h"

#include <cstddef>

#include "engine/communicator.h"

namespace ringpipe {

Introduction Introduce(const Environment& environment, const RankRails& rails,
                       const std::string& trace) {
  return {
      Version(),
      rails.kind(),
      rails.Describe(),
      rails.Ports(),
      "RINGPIPE_SUBCHUNK_BYTES=" + std::to_string(environment.subchunk_bytes) +
          " RINGPIPE_DEPTH=" + std::to_string(environment.depth) +
          (environment.algorithm.empty()
               ? ""
               : " RINGPIPE_ALGORITHM=" + environment.algorithm),
      trace};
}

// One value a line.
std::string Introduction::Serialize() const {
  return version + "\n" + kind + "\n" + devices + "\n" + ports + "\n" +
         chunking + "\n" + trace + "\n";
}

Result<Introduction> Introduction::Parse(const std::string& text) {
  Introduction introduction;
  std::size_t begin = 0;
  for (std::string* value :
       {&introduction.version, &introduction.kind, &introduction.devices,
        &introduction.ports, &introduction.chunking, &introduction.trace}) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      return Status(StatusCode::kMismatch,
                    "a rank sent an introduction that cannot be read: do all "
                    "ranks run the same version of ringpipe?");
    }
    *value = text.substr(begin, end - begin);
    begin = end + 1;
  }
  return introduction;
}

Status CheckAgreement(const std::vector<Introduction>& ranks) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const auto differ = [&](const std::string& what, const std::string& first,
                            const std::string& other,
                            const std::string& advice) {
      return Status(StatusCode::kMismatch,
                    what + " differs: rank 0 has " + first + ", rank " +
                        std::to_string(rank) + " has " + other + "; " + advice);
    };
    const Introduction& first = ranks[0];
    const Introduction& other = ranks[rank];
    if (first.version != other.version) {
      return differ("ringpipe's version", first.version, other.version,
                    "install the same one everywhere");
    }
    if (first.kind != other.kind) {
      return differ("the kind of device",
                    first.kind + " (" + first.devices + ")",
                    other.kind + " (" + other.devices + ")",
                    "set RINGPIPE_DEVICE alike on all ranks (soft: the "
                    "software device on all)");
    }
    if (first.chunking != other.chunking) {
      return differ("the chunking", first.chunking, other.chunking,
                    "set these variables alike on all ranks");
    }
    if (first.trace.empty() != other.trace.empty()) {
      return differ("RINGPIPE_TRACE", first.trace.empty() ? "none" : "a file",
                    other.trace.empty() ? "none" : "a file",
                    "set the variable on all ranks or on none");
    }
  }
  return Status::Ok();
}

}  // namespace ringpipe
