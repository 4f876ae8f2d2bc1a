#include "bootstrap/launcher.h"

#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "auth/mac.h"
#include "bootstrap/launcher_process.h"
#include "bootstrap/slurm_node_list.h"

namespace ringpipe {
namespace {

constexpr int kMostRanks = 65'536;
constexpr uint64_t kSlurmFirstPort = 20'000;
constexpr uint64_t kSlurmPorts = 10'000;

Status Bad(const std::string& message) {
  return {StatusCode::kInvalidArgument, message};
}

// The variables of one launcher.
class Variables {
 public:
  explicit Variables(const Environment::Getter& get) : get_(get) {}

  std::optional<std::string> Get(std::string_view name) const {
    return get_(name);
  }
  std::string GetOr(std::string_view name, const std::string& otherwise) const {
    return get_(name).value_or(otherwise);
  }
  bool Has(std::string_view name) const { return get_(name).has_value(); }

  // The first of `names` that is set; the last if none is.
  std::string FirstSet(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      if (Has(name)) {
        return name;
      }
    }
    return names.back();
  }

  // The value of `name` as a number from 0 to `most`.
  Result<uint64_t> Number(const std::string& name, uint64_t most) const {
    const std::optional<std::string> text = Get(name);
    if (!text) {
      return Bad(name + " is not set");
    }
    uint64_t value = 0;
    const char* end = text->data() + text->size();
    const auto [parsed, error] = std::from_chars(text->data(), end, value);
    if (text->empty() || error != std::errc() || parsed != end ||
        value > most) {
      return Bad(name + "=" + *text + ": must be a whole number from 0 to " +
                 std::to_string(most));
    }
    return value;
  }

  // Rank and size, which must be both set and fit together.
  Result<Launch> RankAndSize(const std::string& launcher,
                             const std::string& rank_name,
                             const std::string& size_name) const {
    for (const auto& [set, unset] :
         {std::pair(rank_name, size_name), std::pair(size_name, rank_name)}) {
      if (Has(set) && !Has(unset)) {
        return Bad(set + " is set but " + unset + " is not: set both, or " +
                   "neither (" + launcher + " sets both)");
      }
    }
    Launch launch;
    launch.launcher = launcher;
    RINGPIPE_ASSIGN_OR_RETURN(const uint64_t rank,
                              Number(rank_name, kMostRanks - 1));
    RINGPIPE_ASSIGN_OR_RETURN(const uint64_t size,
                              Number(size_name, kMostRanks));
    if (rank >= size) {
      return Bad(rank_name + "=" + std::to_string(rank) + " contradicts " +
                 size_name + "=" + std::to_string(size) +
                 ": ranks go from 0 to size - 1");
    }
    launch.rank = static_cast<int>(rank);
    launch.size = static_cast<int>(size);
    return launch;
  }

  // Whether all ranks are on this host. False where `name` is not set.
  Result<bool> OneHost(const std::string& name, const Launch& launch) const {
    if (!Has(name)) {
      return false;
    }
    RINGPIPE_ASSIGN_OR_RETURN(const uint64_t local, Number(name, kMostRanks));
    if (local == 0 || local > static_cast<uint64_t>(launch.size)) {
      return Bad(name + "=" + std::to_string(local) + " contradicts a job of " +
                 std::to_string(launch.size) + " ranks");
    }
    return local == static_cast<uint64_t>(launch.size);
  }

 private:
  const Environment::Getter& get_;
};

// "unix:@ringpipe-..." that only those get who say the same.
Result<std::string> UnixRoot(const std::vector<std::string>& distinguishing) {
  std::string all = std::to_string(geteuid());
  for (const std::string& part : distinguishing) {
    all += '\0' + part;
  }
  RINGPIPE_ASSIGN_OR_RETURN(const Mac digest, ComputeMac("", {all}));
  std::string name = "unix:@ringpipe-";
  for (size_t i = 0; i < 16; ++i) {
    constexpr std::string_view kHex = "0123456789abcdef";
    name += kHex[static_cast<uint8_t>(digest[i]) >> 4];
    name += kHex[static_cast<uint8_t>(digest[i]) & 15];
  }
  return name;
}

Status NeedsRoot(const Launch& launch) {
  return Bad(
      launch.launcher + " started " + std::to_string(launch.size) +
      " ranks on more than one host (or does not say how many are "
      "on this one) and exports no address: set RINGPIPE_ROOT to HOST:PORT of "
      "rank 0, and RINGPIPE_SECRET, the same on all ranks");
}

Result<Launch> FromRingpipe(const Environment& environment) {
  if (!environment.rank || !environment.size) {
    return Bad(environment.rank
                   ? "RINGPIPE_RANK is set but RINGPIPE_SIZE is not: set both"
                   : "RINGPIPE_SIZE is set but RINGPIPE_RANK is not: set both");
  }
  Launch launch;
  launch.launcher = "ringpipe";
  launch.rank = *environment.rank;
  launch.size = *environment.size;
  if (launch.rank >= launch.size) {
    return Bad("RINGPIPE_RANK=" + std::to_string(launch.rank) +
               " contradicts RINGPIPE_SIZE=" + std::to_string(launch.size) +
               ": ranks go from 0 to size - 1");
  }
  if (environment.root.empty() && launch.size > 1) {
    return Bad(
        "RINGPIPE_RANK and RINGPIPE_SIZE are set but RINGPIPE_ROOT is not: set "
        "it to HOST:PORT where rank 0 can listen, or to unix:@NAME on one "
        "host");
  }
  return launch;
}

Result<Launch> FromTorchrun(const Variables& variables, bool root_given) {
  RINGPIPE_ASSIGN_OR_RETURN(
      Launch launch, variables.RankAndSize("torchrun", "RANK", "WORLD_SIZE"));
  const std::string address = variables.GetOr("MASTER_ADDR", "");
  const std::string port = variables.GetOr("MASTER_PORT", "");
  const std::string run = variables.GetOr("TORCHELASTIC_RUN_ID", "");
  const std::string restart =
      variables.GetOr("TORCHELASTIC_RESTART_COUNT", "0");
  launch.job_id =
      "torchrun " + run + " " + address + ":" + port + " restart " + restart;
  if (root_given || launch.size == 1) {
    return launch;
  }
  for (const std::string name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (variables.GetOr(name, "").empty()) {
      return Bad("RANK and WORLD_SIZE are set but " + name +
                 " is not: set it (torchrun does), or RINGPIPE_ROOT");
    }
  }
  RINGPIPE_ASSIGN_OR_RETURN(const uint64_t master_port,
                            variables.Number("MASTER_PORT", 65'535));
  RINGPIPE_ASSIGN_OR_RETURN(const bool one_host,
                            variables.OneHost("LOCAL_WORLD_SIZE", launch));
  if (one_host) {
    RINGPIPE_ASSIGN_OR_RETURN(
        launch.root,
        UnixRoot({launch.job_id,
                  LauncherProcess("RANK", std::to_string(launch.rank))}));
    return launch;
  }
  const bool ipv6 = address.find(':') != std::string::npos;
  launch.root =
      (ipv6 ? "[" + address + "]" : address) + ":" +
      std::to_string(master_port == 65'535 ? 65'534 : master_port + 1);
  return launch;
}

Result<Launch> FromOpenMpi(const Variables& variables, bool root_given) {
  RINGPIPE_ASSIGN_OR_RETURN(
      Launch launch, variables.RankAndSize("Open MPI", "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE"));
  // The second is random, 128 bits, and only in Open MPI 4; the first alone
  // has few bits that differ between jobs.
  launch.job_id =
      "Open MPI " +
      variables.GetOr(
          variables.FirstSet({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}),
          "") +
      " " + variables.GetOr("OMPI_MCA_orte_precondition_transports", "");
  if (root_given || launch.size == 1) {
    return launch;
  }
  RINGPIPE_ASSIGN_OR_RETURN(
      const bool one_host,
      variables.OneHost("OMPI_COMM_WORLD_LOCAL_SIZE", launch));
  if (!one_host) {
    return NeedsRoot(launch);
  }
  RINGPIPE_ASSIGN_OR_RETURN(
      launch.root,
      UnixRoot({launch.job_id, LauncherProcess("OMPI_COMM_WORLD_RANK",
                                               std::to_string(launch.rank))}));
  return launch;
}

Result<Launch> FromMpich(const Variables& variables, bool root_given) {
  RINGPIPE_ASSIGN_OR_RETURN(
      Launch launch, variables.RankAndSize("MPICH", "PMI_RANK", "PMI_SIZE"));
  // MPICH gives its jobs no name. On one host the process of its proxy will
  // do; it says nothing on another host.
  launch.job_id = "MPICH " + variables.GetOr("PMI_PORT", "");
  if (root_given || launch.size == 1) {
    return launch;
  }
  RINGPIPE_ASSIGN_OR_RETURN(const bool one_host,
                            variables.OneHost("MPI_LOCALNRANKS", launch));
  if (!one_host) {
    return NeedsRoot(launch);
  }
  RINGPIPE_ASSIGN_OR_RETURN(
      launch.root,
      UnixRoot({launch.job_id,
                LauncherProcess("PMI_RANK", std::to_string(launch.rank))}));
  return launch;
}

Result<Launch> FromSlurm(const Variables& variables, bool root_given) {
  const std::string size_name =
      variables.FirstSet({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  RINGPIPE_ASSIGN_OR_RETURN(
      Launch launch, variables.RankAndSize("Slurm", "SLURM_PROCID", size_name));
  const std::string job_name =
      variables.FirstSet({"SLURM_JOBID", "SLURM_JOB_ID"});
  const std::string step_name =
      variables.FirstSet({"SLURM_STEPID", "SLURM_STEP_ID"});
  if (!variables.Has(step_name)) {
    return Bad(
        "SLURM_PROCID is set but SLURM_STEP_ID is not: a batch script is not "
        "a rank; start the ranks with srun");
  }
  RINGPIPE_ASSIGN_OR_RETURN(const uint64_t job,
                            variables.Number(job_name, UINT32_MAX));
  RINGPIPE_ASSIGN_OR_RETURN(const uint64_t step,
                            variables.Number(step_name, UINT32_MAX));
  launch.job_id = "Slurm " + variables.GetOr("SLURM_CLUSTER_NAME", "") + " " +
                  std::to_string(job) + "." + std::to_string(step) +
                  " restart " + variables.GetOr("SLURM_RESTART_COUNT", "0");
  if (root_given || launch.size == 1) {
    return launch;
  }
  const std::string list_name = variables.FirstSet(
      {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  const std::string list = variables.GetOr(list_name, "");
  RINGPIPE_ASSIGN_OR_RETURN(const std::string host, FirstSlurmHost(list));
  if (host == list) {  // it is the only one
    RINGPIPE_ASSIGN_OR_RETURN(launch.root, UnixRoot({launch.job_id}));
    return launch;
  }
  launch.root =
      host + ":" +
      std::to_string(kSlurmFirstPort + (31 * job + step) % kSlurmPorts);
  return launch;
}

Result<Launch> FromAnyLauncher(const Environment& environment,
                               const Variables& variables) {
  const bool root_given = !environment.root.empty();
  if (environment.rank || environment.size) {
    return FromRingpipe(environment);
  }
  if (variables.Has("RANK") || variables.Has("WORLD_SIZE")) {
    return FromTorchrun(variables, root_given);
  }
  if (variables.Has("OMPI_COMM_WORLD_RANK") ||
      variables.Has("OMPI_COMM_WORLD_SIZE")) {
    return FromOpenMpi(variables, root_given);
  }
  // srun --mpi=pmi2 sets PMI_RANK too, and Slurm's own variables say more.
  const bool slurm = variables.Has("SLURM_PROCID");
  const bool mpich = variables.Has("PMI_RANK") || variables.Has("PMI_SIZE");
  if (mpich && (!slurm || variables.Has("MPI_LOCALNRANKS"))) {
    return FromMpich(variables, root_given);
  }
  if (slurm) {
    return FromSlurm(variables, root_given);
  }
  return Bad(
      "no launcher found: set RINGPIPE_RANK, RINGPIPE_SIZE and RINGPIPE_ROOT, "
      "or start the ranks with torchrun, mpirun (Open MPI, MPICH) or srun");
}

}  // namespace

Result<Launch> DetectLaunch(const Environment& environment,
                            const Environment::Getter& get) {
  RINGPIPE_ASSIGN_OR_RETURN(Launch launch,
                            FromAnyLauncher(environment, Variables(get)));
  if (!environment.root.empty()) {
    launch.root = environment.root;
  }
  if (!environment.job_id.empty()) {
    launch.job_id = environment.job_id;
  }
  if (launch.size > kMostRanks) {
    return Bad(std::to_string(launch.size) + " ranks: a job has at most " +
               std::to_string(kMostRanks));
  }
  return launch;
}

Result<Launch> DetectLaunch(const Environment& environment) {
  return DetectLaunch(
      environment, [](std::string_view name) -> std::optional<std::string> {
        const char* value = std::getenv(std::string(name).c_str());
        return value == nullptr ? std::nullopt
                                : std::optional<std::string>(value);
      });
}

}  // namespace ringpipe
