#include "base/environment.h"

#include <unistd.h>

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

struct Level {};

struct Variable {
  std::string_view name;
  std::variant<Integer, OptionalInteger, Text, Level> kind;
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

Status Assign(const Variable& variable, const std::string& text,
              Environment* out) {
  if (const auto* kind = std::get_if<Text>(&variable.kind)) {
    out->*kind->member = text;
    return Status::Ok();
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
