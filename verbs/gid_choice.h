// Which entry of a port's GID table names this end.
#ifndef RINGPIPE_VERBS_GID_CHOICE_H_
#define RINGPIPE_VERBS_GID_CHOICE_H_

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "verbs/library.h"

namespace ringpipe::verbs {

// Which address of a port is asked for.
struct AddressRequest {
  std::optional<int> gid_index;  // the entry; nullopt: the best one
  // Where gid_index came from, for messages.
  std::string variable = "RINGPIPE_GID_INDEX";
  // Of the software device between hosts: this host's address by which the
  // ranks have met, "10.77.0.1"; "" where that says nothing.
  std::string met_at = "";
};

// An entry that is not empty.
struct GidEntry {
  int index = 0;
  ibv_gid gid = {};
  std::string type;       // sysfs's "RoCE v2", "IB/RoCE v1"; "": not known
  std::string interface;  // "eth0"; "": not known
};

// The table of an open port, without its empty entries. Types and interfaces
// come from `port_folder`, "/sys/class/infiniband/NAME/ports/1", where it has
// them.
std::vector<GidEntry> ReadGidTable(const Library& library, ibv_context* context,
                                   int port, int table_entries,
                                   const std::string& port_folder);

// The same of a port that is not open, from sysfs alone. nullopt where sysfs
// has no such table.
std::optional<std::vector<GidEntry>> ReadGidTable(
    const std::string& port_folder);

// The entry that suits RoCE best among those that are not link-local: RoCE v2
// rather than v1 where the type is known; IPv4-mapped rather than IPv6; the
// lower index; before all, request.met_at. kUnavailable, with what is there, if
// there is none. With an index, that entry, whatever it is; kInvalidArgument
// where it is empty. `port_name` ("mlx5_0 port 1") is for messages.
Result<GidEntry> ChooseGid(const std::vector<GidEntry>& table,
                           const AddressRequest& request,
                           const std::string& port_name);

// "::ffff:192.168.77.1".
std::string GidText(const ibv_gid& gid);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_GID_CHOICE_H_
