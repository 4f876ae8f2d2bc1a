#include "info/gpu_report.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "nlohmann/json.hpp"

namespace ringpipe::info {
namespace {

using Json = nlohmann::json;

// How long a child may take to be gone that was killed, or has said all.
constexpr std::chrono::milliseconds kEndPatience(1000);

Json OfStatus(const Status& status) {
  return {{"code", static_cast<int>(status.code())},
          {"message", status.message()}};
}

Status StatusOf(const Json& json) {
  return {static_cast<StatusCode>(json.at("code").get<int>()),
          json.at("message").get<std::string>()};
}

// --- In the child -----------------------------------------------------------

// Writes each finding as a line of JSON: what was written is there whatever
// becomes of the process.
class LineWriter final : public GpuSurveyor {
 public:
  explicit LineWriter(int fd) : fd_(fd) {}

  void Begins(const std::string& step) override { Write({{"begins", step}}); }
  void FoundDriver(int version) override { Write({{"version", version}}); }
  void FoundGpu(const SurveyedGpu& gpu) override {
    Write({{"gpu",
            {{"ordinal", gpu.ordinal},
             {"name", gpu.name},
             {"major", gpu.major},
             {"minor", gpu.minor},
             {"state", static_cast<int>(gpu.state)},
             {"usable", OfStatus(gpu.usable)}}}});
  }
  void FoundNoGpu(const Status& why) override {
    Write({{"none", OfStatus(why)}});
  }
  void Ended(const Status& status) { Write({{"ended", OfStatus(status)}}); }

 private:
  void Write(const Json& line) const {
    // A name may be any bytes.
    const std::string text =
        line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    std::size_t written = 0;
    while (written < text.size()) {
      const ssize_t bytes =
          write(fd_, text.data() + written, text.size() - written);
      if (bytes < 0 && errno != EINTR) {
        _exit(1);  // nobody listens
      }
      written += bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
    }
  }

  const int fd_;
};

// An exception must not go on as a second parent.
[[noreturn]] void Survey(int fd) noexcept {
  // Nobody would end it if it hung.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  LineWriter lines(fd);
  lines.Ended(SurveyGpus(lines));
  _exit(0);
}

// --- In the parent ----------------------------------------------------------

// What the lines have said so far.
struct Heard {
  GpuReport report;
  std::string step;  // that began last
  bool ended = false;
  Deadline deadline = Deadline::Infinite();  // of that step
  std::chrono::milliseconds patience{};

  void Line(std::string_view text) {
    const Json line = Json::parse(text);
    if (line.contains("begins")) {
      step = line["begins"].get<std::string>();
      deadline = Deadline::After(patience);
    } else if (line.contains("version")) {
      report.driver_version = line["version"].get<int>();
    } else if (line.contains("none")) {
      report.none = StatusOf(line["none"]);
    } else if (line.contains("ended")) {
      report.driver = StatusOf(line["ended"]);
      ended = true;
    } else if (line.contains("gpu")) {
      const Json& gpu = line["gpu"];
      report.gpus.push_back(
          {gpu.at("ordinal").get<int>(), gpu.at("name").get<std::string>(),
           gpu.at("major").get<int>(), gpu.at("minor").get<int>(),
           static_cast<SurveyedGpu::State>(gpu.at("state").get<int>()),
           StatusOf(gpu.at("usable"))});
    }
  }
};

// Until the child says no more; false at the deadline of a step.
bool Listen(int fd, Heard& heard) {
  std::string text;
  while (true) {
    pollfd readable = {fd, POLLIN, 0};
    constexpr int kMostMs = 1000;
    const int ready = poll(&readable, 1, heard.deadline.PollTimeoutMs(kMostMs));
    if (ready == 0 && heard.deadline.expired()) {
      return false;
    }
    if (ready <= 0) {
      continue;
    }
    char bytes[4096];
    const ssize_t got = read(fd, bytes, sizeof(bytes));
    if (got == 0 || (got < 0 && errno != EINTR)) {
      return true;
    }
    text.append(bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    for (std::size_t end = text.find('\n'); end != std::string::npos;
         end = text.find('\n')) {
      heard.Line(std::string_view(text).substr(0, end));
      text.erase(0, end + 1);
    }
  }
}

// The status with which the child has ended; nullopt: it has not, though it was
// killed, as where the kernel's part of the driver hangs.
std::optional<int> Await(pid_t child, Deadline deadline) {
  int status = 0;
  while (waitpid(child, &status, WNOHANG) != child) {
    if (deadline.expired()) {
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return status;
}

// What to say of a driver that did not let the child end in order.
Status Broken(const std::string& step, bool hangs, std::optional<int> status,
              std::chrono::milliseconds patience) {
  constexpr const char* kAdvice =
      "; see the kernel log (dmesg, Xid, NVRM) and whether nvidia-smi ends";
  if (hangs) {
    return {StatusCode::kDeviceError,
            "the driver is broken: it has not come back from " + step + " in " +
                std::to_string(patience.count() / 1000) + " s" + kAdvice};
  }
  std::string how = "ended the process that asked it";
  if (status && WIFSIGNALED(*status)) {
    how += " by signal " + std::to_string(WTERMSIG(*status)) + " (" +
           strsignal(WTERMSIG(*status)) + ")";
  }
  return {StatusCode::kDeviceError,
          "the driver is broken: it has " + how + ", in " + step + kAdvice};
}

}  // namespace

bool GpuReport::usable() const {
  return std::any_of(gpus.begin(), gpus.end(),
                     [](const SurveyedGpu& gpu) { return gpu.usable.ok(); });
}

const char* GpuReport::ObstacleTo(const GpuPath& path) const {
  return path.obstacle == nullptr && !usable() ? "no GPU here can be used"
                                               : path.obstacle;
}

GpuReport AskAboutGpus(std::chrono::milliseconds patience) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    GpuReport report;
    report.driver = ErrnoStatus(StatusCode::kResourceExhausted, "pipe", errno);
    return report;
  }
  const FileDescriptor reads(ends[0]);
  const pid_t child = fork();
  if (child == 0) {
    Survey(ends[1]);
  }
  const int fork_error = errno;
  close(ends[1]);
  Heard heard;
  heard.patience = patience;
  heard.deadline = Deadline::After(patience);
  if (child < 0) {
    heard.report.driver =
        ErrnoStatus(StatusCode::kResourceExhausted, "fork", fork_error);
    return heard.report;
  }
  const bool hangs = !Listen(reads.get(), heard);
  if (hangs) {
    kill(child, SIGKILL);
  }
  const std::optional<int> status = Await(child, Deadline::After(kEndPatience));
  if (!heard.ended) {
    heard.report.driver = Broken(heard.step, hangs, status, patience);
  }
  return heard.report;
}

}  // namespace ringpipe::info
