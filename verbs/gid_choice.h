// Which entry of an Ethernet port's GID table names this end.
#ifndef RINGPIPE_VERBS_GID_CHOICE_H_
#define RINGPIPE_VERBS_GID_CHOICE_H_

#include <optional>
#include <string>

#include "verbs/library.h"

namespace ringpipe::verbs {

struct GidChoice {
  int index = 0;
  ibv_gid gid = {};
};

// The entry that suits RoCE best; nullopt where the table has none that is not
// empty. Better is: routable rather than link-local; RoCE v2 rather than v1
// where `port_folder` (/sys/class/infiniband/NAME/ports/1) says which is which;
// IPv4-mapped rather than IPv6; the lower index.
std::optional<GidChoice> ChooseGid(const Library& library, ibv_context* context,
                                   int port, int table_entries,
                                   const std::string& port_folder);

// "::ffff:192.168.77.1".
std::string GidText(const ibv_gid& gid);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_GID_CHOICE_H_
