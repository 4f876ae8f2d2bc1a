// ringpipe_options as CommunicatorOptions.
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "engine/c_interface.h"

namespace ringpipe::c_interface {
namespace {

constexpr std::int64_t kMostMs = 24LL * 60 * 60 * 1000;

// The status of one of a store's functions, by name.
Status Failed(const char* function, int result) {
  return {StatusCode::kUnavailable, std::string("ringpipe_store::") + function +
                                        " returned " + std::to_string(result)};
}

Result<Store> ToStore(const ringpipe_store* from) {
  RINGPIPE_ASSIGN_OR_RETURN(const ringpipe_store store,
                            Read(from, "ringpipe_store"));
  if (store.put == nullptr || store.get == nullptr || store.reserved != 0) {
    return Invalid(store.reserved != 0
                       ? "ringpipe_store::reserved is not 0; initialise the "
                         "structure with zeros"
                       : "ringpipe_store has no put, or no get");
  }
  Store made;
  made.put = [store](const std::string& key, const std::string& value) {
    const int result =
        store.put(store.context, key.c_str(), value.data(), value.size());
    return result == 0 ? Status::Ok() : Failed("put", result);
  };
  made.get = [store](const std::string& key, std::chrono::milliseconds timeout)
      -> Result<std::optional<std::string>> {
    std::array<char, RINGPIPE_STORE_BYTES> value = {};
    std::size_t bytes = 0;
    const int result = store.get(store.context, key.c_str(), timeout.count(),
                                 value.data(), value.size(), &bytes);
    if (result == RINGPIPE_STORE_NOT_YET) {
      return std::optional<std::string>();
    }
    if (result != 0) {
      return Failed("get", result);
    }
    if (bytes > value.size()) {
      return Invalid("ringpipe_store::get says that the value has " +
                     std::to_string(bytes) + " bytes; it has at most " +
                     std::to_string(value.size()));
    }
    return std::optional<std::string>(std::in_place, value.data(), bytes);
  };
  return made;
}

// The program's own functions.
Status SetFunctions(const ringpipe_options& given,
                    CommunicatorOptions& settings) {
  if (given.log != nullptr) {
    settings.log = [log = given.log, context = given.log_context](
                       LogLevel level, std::string_view line) {
      log(static_cast<ringpipe_log_level>(level), std::string(line).c_str(),
          context);
    };
  }
  if (given.while_waiting != nullptr) {
    settings.while_waiting = [function = given.while_waiting,
                              context = given.while_waiting_context] {
      return function(context) != 0;
    };
  }
  if (given.interval_us < 0) {
    return Invalid("ringpipe_options::interval_us is " +
                   std::to_string(given.interval_us) +
                   "; give microseconds, or 0 for 20 ms");
  }
  if (given.interval_us > 0) {
    settings.while_waiting_interval =
        std::chrono::microseconds(given.interval_us);
  }
  if (given.store != nullptr) {
    RINGPIPE_ASSIGN_OR_RETURN(settings.store, ToStore(given.store));
  }
  return Status::Ok();
}

// As the variable of that name, which it replaces.
Status SetTimeout(std::int64_t given_ms, bool may_be_none, const char* name,
                  std::int64_t& setting_ms) {
  if (given_ms == RINGPIPE_DEFAULT_TIMEOUT) {
    return Status::Ok();
  }
  const bool is_none = given_ms == RINGPIPE_NO_TIMEOUT;
  if ((given_ms < 1 || given_ms > kMostMs) && !(may_be_none && is_none)) {
    return Invalid(std::string("ringpipe_options::") + name + " is " +
                   std::to_string(given_ms) + "; give milliseconds from 1 to " +
                   std::to_string(kMostMs) +
                   ", or RINGPIPE_DEFAULT_TIMEOUT (0)" +
                   (may_be_none ? ", or RINGPIPE_NO_TIMEOUT (-1)" : ""));
  }
  setting_ms = given_ms;
  return Status::Ok();
}

Status Set(const ringpipe_options& given, CommunicatorOptions& settings) {
  if (given.explicit_rank != 0) {
    settings.rank = given.rank;
    settings.size = given.size;
  }
  settings.root = given.root != nullptr ? given.root : "";
  settings.job_id = given.job_id != nullptr ? given.job_id : "";
  Environment& environment = settings.environment;
  if (given.secret != nullptr) {
    environment.secret = given.secret;
  }
  if (given.host_id != nullptr) {
    environment.host_id = given.host_id;
  }
  RINGPIPE_RETURN_IF_ERROR(SetTimeout(given.timeout_ms, /*may_be_none=*/true,
                                      "timeout_ms", environment.timeout_ms));
  RINGPIPE_RETURN_IF_ERROR(SetTimeout(given.join_timeout_ms,
                                      /*may_be_none=*/false, "join_timeout_ms",
                                      environment.join_timeout_ms));
  return SetFunctions(given, settings);
}

}  // namespace

Result<CommunicatorOptions> ToOptions(const ringpipe_options* options) {
  RINGPIPE_ASSIGN_OR_RETURN(CommunicatorOptions settings,
                            CommunicatorOptions::FromProcess());
  if (options != nullptr) {
    RINGPIPE_ASSIGN_OR_RETURN(const ringpipe_options given,
                              Read(options, "ringpipe_options"));
    RINGPIPE_RETURN_IF_ERROR(Set(given, settings));
  }
  return settings;
}

}  // namespace ringpipe::c_interface
