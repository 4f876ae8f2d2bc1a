// A list that admits some names and not others, in the syntax of NCCL_IB_HCA
// and NCCL_SOCKET_IFNAME:
//
//   mlx5_0,mlx5_1:2   names that start with an entry (of a device, its port 2)
//   =mlx5_0,mlx5_1    names that are one of the entries
//   ^mlx5_0           all names but those that start with an entry
//   ^=mlx5_0          all names but the entries
//
// The signs stand once, before the whole list.
#ifndef RINGPIPE_BASE_NAME_FILTER_H_
#define RINGPIPE_BASE_NAME_FILTER_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ringpipe {

// A value; immutable once parsed, so thread-safe.
class NameFilter {
 public:
  struct Entry {
    std::string name;
    int port = 0;  // 0: any
    bool operator==(const Entry& other) const = default;
    // As it is written: "mlx5_0", "mlx5_0:1".
    std::string ToString() const;
  };
  enum class Ports { kAllowed, kNone };

  NameFilter() = default;  // admits every name

  // "" admits every name. kNone: a colon is part of the name, as in the label
  // of an address, "eth0:1". As NCCL does, entries without text between two
  // commas are passed over. kInvalidArgument, saying what is wrong with `text`,
  // for a list without an entry, a sign elsewhere than at the start, or names
  // or ports that cannot be any.
  static Result<NameFilter> Parse(const std::string& text, Ports ports);

  bool Admits(std::string_view name, int port = 0) const;
  // Whether `entry` means this name and port; exclusion plays no part.
  bool Matches(const Entry& entry, std::string_view name, int port = 0) const;

  bool admits_all() const { return entries_.empty(); }
  bool excludes() const { return excludes_; }
  const std::vector<Entry>& entries() const { return entries_; }
  bool operator==(const NameFilter& other) const = default;

 private:
  bool excludes_ = false;
  bool exact_ = false;
  std::vector<Entry> entries_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_NAME_FILTER_H_
