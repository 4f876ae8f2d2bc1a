#include "base/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "base/name_filter.h"

namespace ringpipe {
namespace {

struct Integer {
  int64_t Environment::*member;
  int64_t least, most;
  int64_t multiple_of = 1;
  std::optional<int64_t> never = {};  // the value that means "no end"
};

struct OptionalInteger {
  std::optional<int> Environment::*member;
  int least, most;
  std::optional<int> unset = {};  // the value that means "not set"
};

struct Text {
  std::string Environment::*member;
};

// One of a few words.
struct Word {
  std::string Environment::*member;
  std::array<std::string_view, 3> allowed;  // "": none
};

// A list of names, NameFilter's.
struct Names {
  std::string Environment::*member;
  NameFilter::Ports ports;
};

// "FIRST-LAST", of TCP ports.
struct Ports {
  int Environment::*first;
  int Environment::*last;
};

struct Level {};

using Kind =
    std::variant<Integer, OptionalInteger, Text, Word, Names, Ports, Level>;

struct Variable {
  std::string_view name;
  Kind kind;
  // What another library calls the same, read where `name` is not set, and the
  // member that tells which of the two it was.
  std::string_view foreign = {};
  std::string Environment::*source = nullptr;
};

constexpr int64_t kDayMs = 24LL * 60 * 60 * 1000;

// Every variable. Integers have their smallest and largest value.
const std::array kVariables = {
    Variable{"RINGPIPE_DEVICE",
             Names{&Environment::device, NameFilter::Ports::kAllowed},
             "NCCL_IB_HCA", &Environment::device_variable},
    Variable{"RINGPIPE_GID_INDEX",
             OptionalInteger{&Environment::gid_index, 0, 255, -1},
             "NCCL_IB_GID_INDEX", &Environment::gid_index_variable},
    Variable{"RINGPIPE_SOCKET_IFNAME",
             Names{&Environment::socket_interfaces, NameFilter::Ports::kNone},
             "NCCL_SOCKET_IFNAME", &Environment::socket_interfaces_variable},
    Variable{"RINGPIPE_SERVICE_LEVEL",
             Integer{&Environment::service_level, 0, 15}},
    Variable{"RINGPIPE_TRAFFIC_CLASS",
             Integer{&Environment::traffic_class, 0, 255}},
    Variable{"RINGPIPE_QP_TIMEOUT",
             OptionalInteger{&Environment::qp_timeout, 1, 31}},
    Variable{"RINGPIPE_QP_RETRY",
             OptionalInteger{&Environment::qp_retry, 0, 7}},
    Variable{"RINGPIPE_REGISTRATION",
             Word{&Environment::registration, {"auto", "always", "never"}}},
    Variable{"RINGPIPE_HOST_MEMORY",
             Word{&Environment::host_memory, {"auto", "never"}}},
    Variable{"RINGPIPE_HOST_ID", Text{&Environment::host_id}},
    Variable{"RINGPIPE_RANK", OptionalInteger{&Environment::rank, 0, 65'535}},
    Variable{"RINGPIPE_SIZE", OptionalInteger{&Environment::size, 1, 65'536}},
    Variable{"RINGPIPE_ROOT", Text{&Environment::root}},
    Variable{"RINGPIPE_JOB_ID", Text{&Environment::job_id}},
    Variable{"RINGPIPE_SECRET", Text{&Environment::secret}},
    Variable{"RINGPIPE_TIMEOUT_MS",
             Integer{&Environment::timeout_ms, 1, kDayMs, 1, -1}},
    Variable{"RINGPIPE_JOIN_TIMEOUT_MS",
             Integer{&Environment::join_timeout_ms, 1, kDayMs}},
    Variable{"RINGPIPE_TCP_TIMEOUT_MS",
             Integer{&Environment::tcp_timeout_ms, 1000, kDayMs}},
    Variable{"RINGPIPE_SUBCHUNK_BYTES",
             Integer{&Environment::subchunk_bytes, 256, 16 << 20, 64}},
    Variable{"RINGPIPE_DEPTH", Integer{&Environment::depth, 1, 64}},
    Variable{"RINGPIPE_ALGORITHM", Text{&Environment::algorithm}},
    Variable{"RINGPIPE_SLOTS", Integer{&Environment::slots, 0, 1 << 16}},
    Variable{"RINGPIPE_GPU_REDUCE",
             Word{&Environment::gpu_reduce, {"auto", "host", "gpu"}}},
    Variable{"RINGPIPE_SPIN_US", Integer{&Environment::spin_us, 0, 1'000'000}},
    Variable{"RINGPIPE_SOFT_ADVERSARY",
             Integer{&Environment::soft_adversary_seed, 0,
                     std::numeric_limits<int64_t>::max()}},
    Variable{"RINGPIPE_SOFT_LINK_LAYER",
             Word{&Environment::soft_link_layer, {"ethernet", "infiniband"}}},
    Variable{"RINGPIPE_SOFT_PORTS", Ports{&Environment::soft_first_port,
                                          &Environment::soft_last_port}},
    Variable{"RINGPIPE_TRACE", Text{&Environment::trace}},
    Variable{"RINGPIPE_LOG_LEVEL", Level{}},
};

Status Bad(std::string_view name, std::string_view value,
           const std::string& allowed) {
  return {StatusCode::kInvalidArgument,
          std::string(name) + "=" + std::string(value) + ": " + allowed};
}

std::optional<int64_t> ToInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// Each `name` is that by which `text` was found.
Status Assign(std::string_view /*name*/, const Text& kind,
              const std::string& text, Environment* out) {
  out->*kind.member = text;
  return Status::Ok();
}

Status Assign(std::string_view name, const Word& word, const std::string& text,
              Environment* out) {
  const auto none =
      std::find(word.allowed.begin(), word.allowed.end(), std::string_view());
  const std::vector<std::string_view> allowed(word.allowed.begin(), none);
  if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
    std::string words = "use ";
    for (std::size_t i = 0; i < allowed.size(); ++i) {
      words += i == 0 ? "" : i + 1 < allowed.size() ? ", " : " or ";
      words += allowed[i];
    }
    return Bad(name, text, words);
  }
  out->*word.member = text;
  return Status::Ok();
}

Status Assign(std::string_view name, const Names& names,
              const std::string& text, Environment* out) {
  if (const auto filter = NameFilter::Parse(text, names.ports); !filter.ok()) {
    const std::string one =
        names.ports == NameFilter::Ports::kAllowed ? "mlx5_0:1" : "eth0";
    return Bad(name, text,
               "use a list such as '" + one + "' (names that start so), '=" +
                   one + "' (this name), '^" + one + "' or '^=" + one +
                   "' (all but); " + filter.status().message());
  }
  out->*names.member = text;
  return Status::Ok();
}

Status Assign(std::string_view name, const Ports& ports,
              const std::string& text, Environment* out) {
  const std::size_t dash = text.find('-');
  const auto first = ToInteger(std::string_view(text).substr(0, dash));
  const auto last = dash == std::string::npos
                        ? std::nullopt
                        : ToInteger(std::string_view(text).substr(dash + 1));
  if (!first || !last || *first < 1024 || *last > 65'535 || *first >= *last) {
    return Bad(name, text, "use FIRST-LAST, two ports from 1024 to 65535");
  }
  out->*ports.first = static_cast<int>(*first);
  out->*ports.last = static_cast<int>(*last);
  return Status::Ok();
}

Status Assign(std::string_view name, const Level& /*kind*/,
              const std::string& text, Environment* out) {
  for (const LogLevel level : {LogLevel::kError, LogLevel::kWarning,
                               LogLevel::kInfo, LogLevel::kDebug}) {
    if (text == LogLevelName(level)) {
      out->log_level = level;
      return Status::Ok();
    }
  }
  return Bad(name, text, "use error, warning, info or debug");
}

std::string Range(int64_t least, int64_t most) {
  return "use a whole number from " + std::to_string(least) + " to " +
         std::to_string(most);
}

Status Assign(std::string_view name, const OptionalInteger& kind,
              const std::string& text, Environment* out) {
  const std::optional<int64_t> value = ToInteger(text);
  if (value && kind.unset && *value == *kind.unset) {
    out->*kind.member = std::nullopt;
    return Status::Ok();
  }
  if (!value || *value < kind.least || *value > kind.most) {
    return Bad(name, text,
               Range(kind.least, kind.most) +
                   (kind.unset ? ", or " + std::to_string(*kind.unset) +
                                     " to leave the choice to ringpipe"
                               : ""));
  }
  out->*kind.member = static_cast<int>(*value);
  return Status::Ok();
}

Status Assign(std::string_view name, const Integer& kind,
              const std::string& text, Environment* out) {
  const std::optional<int64_t> value = ToInteger(text);
  const bool never = value && kind.never == value;
  if (!never && (!value || *value < kind.least || *value > kind.most ||
                 *value % kind.multiple_of != 0)) {
    std::string allowed = Range(kind.least, kind.most);
    if (kind.multiple_of != 1) {
      allowed += ", a multiple of " + std::to_string(kind.multiple_of);
    }
    if (kind.never) {
      allowed += ", or " + std::to_string(*kind.never) + " for no deadline";
    }
    return Bad(name, text, allowed);
  }
  out->*kind.member = *value;
  return Status::Ok();
}

// Removes `prefix` from the front of `text`, where it is there.
bool Consume(std::string_view prefix, std::string_view* text) {
  const bool there = text->starts_with(prefix);
  text->remove_prefix(there ? prefix.size() : 0);
  return there;
}

// Whether a name ends in "_PORT" or "_PORT_80_TCP", whose value is a URL
// (tcp://HOST:80), or in "_PORT_80_TCP_" with PROTO, PORT or ADDR.
bool EndsAsPortOfService(std::string_view end, std::string_view value) {
  const bool url = value.find("://") != std::string_view::npos;
  if (!Consume("_PORT", &end)) {
    return false;
  }
  if (end.empty()) {
    // Without a look at the value, RINGPIPE_SOFT_PORT would not be found to be
    // a misspelt RINGPIPE_SOFT_PORTS.
    return url;
  }
  if (!Consume("_", &end)) {
    return false;
  }
  const std::size_t digits =
      std::min(end.find_first_not_of("0123456789"), end.size());
  end.remove_prefix(digits);
  if (digits == 0 || !(Consume("_TCP", &end) || Consume("_UDP", &end) ||
                       Consume("_SCTP", &end))) {
    return false;
  }
  return end.empty() ? url
                     : end == "_PROTO" || end == "_PORT" || end == "_ADDR";
}

// Whether Kubernetes sets such a variable for a service whose name is, or
// starts with, "ringpipe". It does so in every pod of the service's namespace
// (Kubernetes' documentation, "Service", section "Environment variables").
bool IsOfKubernetesService(std::string_view name, std::string_view value) {
  // The service's name ends at any underscore: it may have some of its own.
  for (std::size_t at = name.find('_'); at != std::string_view::npos;
       at = name.find('_', at + 1)) {
    std::string_view end = name.substr(at);
    if (EndsAsPortOfService(end, value) || end == "_SERVICE_HOST" ||
        end == "_SERVICE_PORT" ||
        (Consume("_SERVICE_PORT_", &end) && !end.empty())) {
      return true;
    }
  }
  return false;
}

// Variables of bindings, which read them themselves.
bool IsOfBinding(std::string_view name) {
  return name.starts_with("RINGPIPE_PYTHON_") ||
         name.starts_with("RINGPIPE_TORCH_");
}

// A misspelt variable would silently do nothing.
Status RejectUnknown() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view pair = *entry;
    const std::string_view name = pair.substr(0, pair.find('='));
    if (!name.starts_with("RINGPIPE_")) {
      continue;
    }
    bool known = false;
    for (const Variable& variable : kVariables) {
      known = known || variable.name == name;
    }
    const std::string_view value =
        pair.substr(std::min(name.size() + 1, pair.size()));
    if (!known && !IsOfBinding(name) && !IsOfKubernetesService(name, value)) {
      return {StatusCode::kInvalidArgument,
              std::string(name) +
                  " is not a variable of ringpipe's; docs/reference.md lists "
                  "them (unset it if it is not meant for ringpipe)"};
    }
  }
  return Status::Ok();
}

}  // namespace

Result<Environment> Environment::Parse(const Getter& get) {
  Environment environment;
  for (const Variable& variable : kVariables) {
    std::string_view name = variable.name;
    std::optional<std::string> text = get(name);
    if (!text && !variable.foreign.empty()) {
      name = variable.foreign;
      text = get(name);
    }
    if (text) {
      RINGPIPE_RETURN_IF_ERROR(std::visit(
          [&](const auto& kind) {
            return Assign(name, kind, *text, &environment);
          },
          variable.kind));
      if (variable.source != nullptr) {
        environment.*variable.source = name;
      }
    }
  }
  return environment;
}

std::vector<std::string_view> Environment::VariableNames() {
  std::vector<std::string_view> own;
  std::vector<std::string_view> foreign;
  for (const Variable& variable : kVariables) {
    own.push_back(variable.name);
    if (!variable.foreign.empty()) {
      foreign.push_back(variable.foreign);
    }
  }
  own.insert(own.end(), foreign.begin(), foreign.end());
  return own;
}

Result<Environment> Environment::FromProcess() {
  RINGPIPE_RETURN_IF_ERROR(RejectUnknown());
  return Parse([](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace ringpipe
