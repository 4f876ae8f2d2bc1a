#include "bench/communicator_job.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

#include "base/host_name.h"
#include "nlohmann/json.hpp"

namespace ringpipe {
namespace {

using Json = nlohmann::json;

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

double Number(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_number() ? at->get<double>() : 0;
}

std::vector<int> OwnCores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

RankLoad ParseLoad(const Json& json, const std::string& host) {
  RankLoad load;
  load.host = host;
  load.in_calls_ns = Number(json, "in_calls");
  load.cpu_ns = Number(json, "cpu");
  load.queued_ns = Number(json, "queued");
  if (const auto cores = json.find("cores");
      cores != json.end() && cores->is_array()) {
    for (const Json& core : *cores) {
      load.cores.insert(core.is_number_integer() ? core.get<int>() : 0);
    }
  }
  if (const auto stages = json.find("stages");
      stages != json.end() && stages->is_object()) {
    for (const auto& [stage, time] : stages->items()) {
      load.stages[stage] = {Number(time, "busy"), Number(time, "wait")};
    }
  }
  return load;
}

}  // namespace

// The first tensor lies last: gradients come from the last layer to the first.
std::vector<Buffer> CommunicatorJob::InTensors(const void* buffer,
                                               DataType type) const {
  std::vector<Buffer> list;
  if (buffer != nullptr) {
    auto* end = static_cast<std::byte*>(const_cast<void*>(buffer));
    for (const std::size_t count : tensors_) {
      end += count * SizeOf(type);
    }
    for (const std::size_t count : tensors_) {
      end -= count * SizeOf(type);
      list.push_back({end, count});
    }
  }
  return list;
}

Status CommunicatorJob::Run(const Call& call) {
  if (tensors_.empty()) {
    return RunAsItIs(call);
  }
  const std::vector<Buffer> send = InTensors(call.send, call.type);
  const std::vector<Buffer> receive = InTensors(call.receive, call.type);
  Call in_pieces = call;
  in_pieces.send = in_pieces.receive = nullptr;
  in_pieces.send_list = send;
  in_pieces.receive_list = receive;
  return RunAsItIs(in_pieces);
}

Status CommunicatorJob::RunAsItIs(const Call& call) {
  if (blocking_) {
    return communicator_.Run(call);
  }
  auto request = communicator_.Start(call);
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

CommunicatorJob::Counters CommunicatorJob::ReadCounters() const {
  Counters counters;
  counters.at = Clock::now();
  counters.stages = communicator_.stage_counters();
  timespec cpu = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  counters.cpu_ns =
      static_cast<double>(cpu.tv_sec) * 1e9 + static_cast<double>(cpu.tv_nsec);
  // "TIME-ON-CPU TIME-IN-QUEUE TIMESLICES", in nanoseconds.
  char text[96];
  const ssize_t size = pread(queue_fd_, text, sizeof text - 1, 0);
  if (size > 0) {
    text[size] = '\0';
    char* rest = nullptr;
    std::strtoull(text, &rest, 10);
    counters.queued_ns = static_cast<double>(std::strtoull(rest, nullptr, 10));
  }
  return counters;
}

void CommunicatorJob::BeforeTimedCalls() { before_ = ReadCounters(); }

void CommunicatorJob::AfterTimedCalls() {
  const Counters now = ReadCounters();
  load_.in_calls_ns +=
      std::chrono::duration<double, std::nano>(now.at - before_.at).count();
  load_.cpu_ns += now.cpu_ns - before_.cpu_ns;
  load_.queued_ns += now.queued_ns - before_.queued_ns;
  for (std::size_t i = 0; i < now.stages.size(); ++i) {
    const StageCounters& stage = now.stages[i];
    const StageCounters& past = before_.stages[i];
    StageTime& time = load_.stages[std::string(stage.stage)];
    time.busy_ns += static_cast<double>(stage.busy_ns - past.busy_ns);
    time.wait_ns += static_cast<double>(stage.wait_ns - past.wait_ns);
  }
}

Result<std::vector<RankLoad>> CommunicatorJob::Loads(
    const std::vector<RankPlace>& places) {
  Json mine = {{"in_calls", load_.in_calls_ns},
               {"cpu", load_.cpu_ns},
               {"queued", load_.queued_ns},
               {"cores", OwnCores()},
               {"stages", Json::object()}};
  for (const auto& [stage, time] : load_.stages) {
    mine["stages"][stage] = {{"busy", time.busy_ns}, {"wait", time.wait_ns}};
  }
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, ExchangeJson(*this, mine));
  std::vector<RankLoad> loads;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    loads.push_back(ParseLoad(all[rank], places[rank].host));
  }
  return loads;
}

}  // namespace ringpipe
