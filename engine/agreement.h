// What all ranks of a communicator must have in common.
#ifndef RINGPIPE_ENGINE_AGREEMENT_H_
#define RINGPIPE_ENGINE_AGREEMENT_H_

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "engine/rails.h"

namespace ringpipe {

// What a rank says of itself when it joins.
struct Introduction {
  std::string version;
  std::string kind;     // of device: "RoCE"
  std::string devices;  // "mlx5_0 port 1: ..."
  std::string ports;    // RankRails::Ports
  std::string chunking;
  std::string trace;  // JobTrace::Claim; empty: it does not trace

  std::string Serialize() const;
  static Result<Introduction> Parse(const std::string& text);
};

Introduction Introduce(const Environment& environment, const RankRails& rails,
                       const std::string& trace);

// kMismatch, naming two ranks and both values, where they differ in anything
// that matters.
Status CheckAgreement(const std::vector<Introduction>& ranks);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_AGREEMENT_H_
