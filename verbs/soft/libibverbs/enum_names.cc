// The exported functions that name the values of verbs' enumerations, with the
// texts of rdma-core, which programs print and scripts search for.
#include <infiniband/verbs.h>

#include <cstddef>

namespace {

template <std::size_t kCount, typename Enum>
const char* NameOf(const char* const (&names)[kCount], Enum value) {
  const auto index = static_cast<std::size_t>(static_cast<unsigned>(value));
  return index < kCount && names[index] != nullptr ? names[index] : "unknown";
}

constexpr const char* kNodeTypes[] = {
    nullptr,
    "InfiniBand channel adapter",
    "InfiniBand switch",
    "InfiniBand router",
    "iWARP NIC",
    "usNIC",
    "usNIC UDP",
    "unspecified",
};

constexpr const char* kPortStates[] = {
    "no state change (NOP)", "down", "init", "armed", "active", "active defer",
};

constexpr const char* kEventTypes[] = {
    "CQ error",
    "local work queue catastrophic error",
    "invalid request local work queue error",
    "local access violation work queue error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration request error",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "WQ fatal",
};

constexpr const char* kCompletionStatuses[] = {
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
};

}  // namespace

extern "C" {

const char* ibv_node_type_str(ibv_node_type type) {
  return NameOf(kNodeTypes, type);
}

const char* ibv_port_state_str(ibv_port_state state) {
  return NameOf(kPortStates, state);
}

const char* ibv_event_type_str(ibv_event_type type) {
  return NameOf(kEventTypes, type);
}

const char* ibv_wc_status_str(ibv_wc_status status) {
  return NameOf(kCompletionStatuses, status);
}

}  // extern "C"
