#include "pipeline/host/strangers.h"

#include <cstddef>

namespace ringpipe {
namespace {

// One process may have many user ids.
constexpr std::size_t kMostUsersKept = 5;

}  // namespace

void Strangers::Count(uid_t user) {
  ++count_;
  const bool is_kept = of_.contains(user);
  ++(is_kept || of_.size() < kMostUsersKept ? of_[user] : of_others_);
}

std::string Strangers::Describe() const {
  if (count_ == 0) {
    return "";
  }
  std::string users;
  for (const auto& [user, count] : of_) {
    users += (users.empty() ? "of user " : "; of user ") +
             std::to_string(user) + ": " + std::to_string(count);
  }
  if (of_others_ > 0) {
    users += "; of other users: " + std::to_string(of_others_);
  }
  return "; " + std::to_string(count_) +
         " connections to this rank proved nothing (" + users + ")";
}

}  // namespace ringpipe
