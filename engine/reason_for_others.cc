#include "engine/reason_for_others.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace ringpipe {
namespace {

// Whether another rank has told it: "rank 3: no power".
bool HasTeller(std::string_view message) {
  constexpr std::string_view kRank = "rank ";
  const std::size_t end = message.find_first_not_of("0123456789", kRank.size());
  return message.starts_with(kRank) && end > kRank.size() &&
         message.substr(std::min(end, message.size())).starts_with(": ");
}

}  // namespace

bool IsOfOneRank(StatusCode code) {
  return code == StatusCode::kInvalidArgument ||
         code == StatusCode::kUnavailable ||
         code == StatusCode::kResourceExhausted ||
         code == StatusCode::kPermissionDenied ||
         code == StatusCode::kDeviceError || code == StatusCode::kInternal;
}

Status ReasonForOthers(const Status& reason, int rank) {
  return IsOfOneRank(reason.code()) && !HasTeller(reason.message())
             ? reason.WithContext("rank " + std::to_string(rank))
             : reason;
}

}  // namespace ringpipe
