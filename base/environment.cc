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

namespace ringpipe {
namespace {

struct Integer {
  int64_t Environment::*member;
  int64_t least, most;
  int64_t multiple_of = 1;
};

struct OptionalInteger {
  std::optional<int> Environment::*member;
  int least, most;
};

struct Text {
  std::string Environment::*member;
};

// One of a few words.
struct Word {
  std::string Environment::*member;
  std::array<std::string_view, 2> allowed;
};

// "FIRST-LAST", of TCP ports.
struct Ports {
  int Environment::*first;
  int Environment::*last;
};

struct Level {};

struct Variable {
  std::string_view name;
  std::variant<Integer, OptionalInteger, Text, Word, Ports, Level> kind;
};

constexpr int64_t kDayMs = 24LL * 60 * 60 * 1000;

// Every variable. Integers have their smallest and largest value.
const std::array kVariables = {
    Variable{"RINGPIPE_DEVICE", Text{&Environment::device}},
    Variable{"RINGPIPE_HOST_ID", Text{&Environment::host_id}},
    Variable{"RINGPIPE_RANK", OptionalInteger{&Environment::rank, 0, 65'535}},
    Variable{"RINGPIPE_SIZE", OptionalInteger{&Environment::size, 1, 65'536}},
    Variable{"RINGPIPE_ROOT", Text{&Environment::root}},
    Variable{"RINGPIPE_JOB_ID", Text{&Environment::job_id}},
    Variable{"RINGPIPE_SECRET", Text{&Environment::secret}},
    Variable{"RINGPIPE_TIMEOUT_MS",
             Integer{&Environment::timeout_ms, -1, kDayMs}},
    Variable{"RINGPIPE_JOIN_TIMEOUT_MS",
             Integer{&Environment::join_timeout_ms, 1, kDayMs}},
    Variable{"RINGPIPE_SUBCHUNK_BYTES",
             Integer{&Environment::subchunk_bytes, 256, 16 << 20, 64}},
    Variable{"RINGPIPE_DEPTH", Integer{&Environment::depth, 1, 64}},
    Variable{"RINGPIPE_SLOTS", Integer{&Environment::slots, 0, 1 << 16}},
    Variable{"RINGPIPE_SPIN_US", Integer{&Environment::spin_us, 0, 1'000'000}},
    Variable{"RINGPIPE_SOFT_ADVERSARY",
             Integer{&Environment::soft_adversary_seed, 0,
                     std::numeric_limits<int64_t>::max()}},
    Variable{"RINGPIPE_SOFT_LINK_LAYER",
             Word{&Environment::soft_link_layer, {"ethernet", "infiniband"}}},
    Variable{"RINGPIPE_SOFT_PORTS", Ports{&Environment::soft_first_port,
                                          &Environment::soft_last_port}},
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

Status AssignWord(std::string_view name, const Word& word,
                  const std::string& text, Environment* out) {
  const auto& allowed = word.allowed;
  if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
    return Bad(
        name, text,
        "use " + std::string(allowed[0]) + " or " + std::string(allowed[1]));
  }
  out->*word.member = text;
  return Status::Ok();
}

Status AssignPorts(std::string_view name, const Ports& ports,
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

Status Assign(const Variable& variable, const std::string& text,
              Environment* out) {
  if (const auto* kind = std::get_if<Text>(&variable.kind)) {
    out->*kind->member = text;
    return Status::Ok();
  }
  if (const auto* kind = std::get_if<Word>(&variable.kind)) {
    return AssignWord(variable.name, *kind, text, out);
  }
  if (const auto* kind = std::get_if<Ports>(&variable.kind)) {
    return AssignPorts(variable.name, *kind, text, out);
  }
  if (std::holds_alternative<Level>(variable.kind)) {
    for (const LogLevel level : {LogLevel::kError, LogLevel::kWarning,
                                 LogLevel::kInfo, LogLevel::kDebug}) {
      if (text == LogLevelName(level)) {
        out->log_level = level;
        return Status::Ok();
      }
    }
    return Bad(variable.name, text, "use error, warning, info or debug");
  }
  const std::optional<int64_t> value = ToInteger(text);
  if (const auto* kind = std::get_if<OptionalInteger>(&variable.kind)) {
    if (!value || *value < kind->least || *value > kind->most) {
      return Bad(variable.name, text,
                 "use a whole number from " + std::to_string(kind->least) +
                     " to " + std::to_string(kind->most));
    }
    out->*kind->member = static_cast<int>(*value);
    return Status::Ok();
  }
  const auto& kind = std::get<Integer>(variable.kind);
  if (!value || *value < kind.least || *value > kind.most ||
      *value % kind.multiple_of != 0) {
    std::string allowed = "use a whole number from " +
                          std::to_string(kind.least) + " to " +
                          std::to_string(kind.most);
    if (kind.multiple_of != 1) {
      allowed += ", a multiple of " + std::to_string(kind.multiple_of);
    }
    return Bad(variable.name, text, allowed);
  }
  out->*kind.member = *value;
  return Status::Ok();
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
    if (!known) {
      return {StatusCode::kInvalidArgument,
              std::string(name) +
                  " is not a variable of ringpipe's; README.md lists them "
                  "(unset it if it is not meant for ringpipe)"};
    }
  }
  return Status::Ok();
}

}  // namespace

Result<Environment> Environment::Parse(const Getter& get) {
  Environment environment;
  for (const Variable& variable : kVariables) {
    if (const std::optional<std::string> text = get(variable.name)) {
      RINGPIPE_RETURN_IF_ERROR(Assign(variable, *text, &environment));
    }
  }
  return environment;
}

Result<Environment> Environment::FromProcess() {
  RINGPIPE_RETURN_IF_ERROR(RejectUnknown());
  return Parse([](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace ringpipe
