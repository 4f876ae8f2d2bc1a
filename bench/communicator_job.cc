#include "bench/communicator_job.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "nlohmann/json.hpp"

namespace ringpipe {
namespace {

using Json = nlohmann::json;

std::string HostName() {
  char name[256] = "unknown";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Every rank's object, by rank.
Result<std::vector<Json>> ExchangeJson(Job& job, const Json& mine) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto blobs, job.Exchange(Dump(mine)));
  std::vector<Json> all;
  for (const std::string& blob : blobs) {
    all.push_back(Json::parse(blob, nullptr, /*allow_exceptions=*/false));
    if (!all.back().is_object()) {
      return Status(StatusCode::kMismatch,
                    "rank " + std::to_string(all.size() - 1) +
                        " runs another version of this benchmark");
    }
  }
  return all;
}

struct StageTime {
  double busy_ns = 0;
  double wait_ns = 0;
};

std::string Describe(const std::map<std::string, StageTime>& stages,
                     double in_calls_ns) {
  if (stages.empty() || in_calls_ns <= 0) {
    return "nothing that was counted";
  }
  const auto longest = std::max_element(
      stages.begin(), stages.end(), [](const auto& a, const auto& b) {
        return a.second.busy_ns + a.second.wait_ns <
               b.second.busy_ns + b.second.wait_ns;
      });
  char text[160];
  std::snprintf(text, sizeof text,
                "%.60s (busy %.0f %%, waited for %.0f %% of the time in calls)",
                longest->first.c_str(),
                100 * longest->second.busy_ns / in_calls_ns,
                100 * longest->second.wait_ns / in_calls_ns);
  return text;
}

}  // namespace

Status CommunicatorJob::AllReduce(const void* send, void* receive,
                                  std::size_t count, DataType type,
                                  ReduceOp op) {
  if (blocking_) {
    return communicator_.AllReduce(send, receive, count, type, op);
  }
  auto request = communicator_.AllReduceAsync(send, receive, count, type, op);
  return request.ok() ? request->Wait() : request.status();
}

Result<std::vector<RankPlace>> CommunicatorJob::Places() {
  RINGPIPE_ASSIGN_OR_RETURN(
      const auto all,
      ExchangeJson(*this, {{"host", HostName()},
                           {"pid", getpid()},
                           {"device", communicator_.device()}}));
  std::vector<RankPlace> places;
  for (const Json& json : all) {
    // value() throws where the type is another one.
    const auto text = [&json](const char* key) {
      const auto at = json.find(key);
      return at != json.end() && at->is_string() ? at->get<std::string>()
                                                 : std::string("unknown");
    };
    const auto pid = json.find("pid");
    places.push_back(
        {text("host"),
         pid != json.end() && pid->is_number_integer() ? pid->get<int>() : 0,
         text("device")});
  }
  return places;
}

Result<std::string> CommunicatorJob::BoundBy(
    const std::vector<StageCounters>& before, double in_calls_us) {
  Json mine = {{"calls", in_calls_us * 1e3}, {"stages", Json::object()}};
  for (const StageCounters& now : communicator_.stage_counters()) {
    StageCounters past;
    for (const StageCounters& counters : before) {
      if (counters.stage == now.stage) {
        past = counters;
      }
    }
    mine["stages"][now.stage] = {
        static_cast<double>(now.busy_ns - past.busy_ns),
        static_cast<double>(now.wait_ns - past.wait_ns)};
  }
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, ExchangeJson(*this, mine));
  std::map<std::string, StageTime> stages;
  double in_calls_ns = 0;
  for (const Json& json : all) {
    if (!json.contains("calls") || !json["calls"].is_number() ||
        !json.contains("stages")) {
      continue;
    }
    in_calls_ns += json["calls"].get<double>();
    for (const auto& [stage, times] : json["stages"].items()) {
      if (times.is_array() && times.size() == 2 && times[0].is_number() &&
          times[1].is_number()) {
        stages[stage].busy_ns += times[0].get<double>();
        stages[stage].wait_ns += times[1].get<double>();
      }
    }
  }
  return Describe(stages, in_calls_ns);
}

}  // namespace ringpipe
