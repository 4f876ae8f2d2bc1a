#include "bootstrap/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

namespace ringpipe {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Result<Launch> Detect(const Variables& variables) {
  const Environment::Getter get =
      [&variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt
                                    : std::optional(found->second);
  };
  RINGPIPE_ASSIGN_OR_RETURN(const Environment environment,
                            Environment::Parse(get));
  return DetectLaunch(environment, get);
}

Variables With(Variables variables, const std::string& name,
               const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables Without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

// The launch is refused, and the message has all of `words`.
void ExpectRefused(const Variables& variables,
                   const std::vector<std::string>& words) {
  const Status status = Detect(variables).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "no \"" << word << "\" in: " << status.message();
  }
}

const Variables kOwn = {{"RINGPIPE_RANK", "2"},
                        {"RINGPIPE_SIZE", "4"},
                        {"RINGPIPE_ROOT", "gpu1:2000"}};
const Variables kTorchrun = {
    {"RANK", "1"},
    {"WORLD_SIZE", "4"},
    {"LOCAL_WORLD_SIZE", "4"},
    {"MASTER_ADDR", "127.0.0.1"},
    {"MASTER_PORT", "29500"},
    {"TORCHELASTIC_RUN_ID", "none"},
    {"TORCHELASTIC_RESTART_COUNT", "0"},
};
const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
    {"PMIX_NAMESPACE", "1910505473"},
    {"OMPI_MCA_orte_precondition_transports", "cf491b3af2a46085-2ad08b17"},
};
const Variables kMpich = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}};
const Variables kSlurm = {
    {"SLURM_PROCID", "5"},         {"SLURM_NTASKS", "8"},
    {"SLURM_JOB_ID", "200505"},    {"SLURM_STEP_ID", "0"},
    {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_NODELIST", "gpu[03-05,9],x1"},
};

TEST(LauncherTest, OwnVariables) {
  const Launch launch = Detect(kOwn).value();
  EXPECT_EQ(launch.launcher, "ringpipe");
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(launch.root, "gpu1:2000");
  EXPECT_EQ(Detect(With(kOwn, "RINGPIPE_JOB_ID", "j")).value().job_id, "j");
  EXPECT_TRUE(Detect({{"RINGPIPE_RANK", "0"}, {"RINGPIPE_SIZE", "1"}}).ok());
}

TEST(LauncherTest, OwnVariablesHalfSetOrContradictory) {
  ExpectRefused(Without(kOwn, "RINGPIPE_RANK"),
                {"RINGPIPE_SIZE is set", "RINGPIPE_RANK is not"});
  ExpectRefused(Without(kOwn, "RINGPIPE_SIZE"),
                {"RINGPIPE_RANK is set", "RINGPIPE_SIZE is not"});
  ExpectRefused(Without(kOwn, "RINGPIPE_ROOT"), {"RINGPIPE_ROOT is not"});
  ExpectRefused(With(kOwn, "RINGPIPE_RANK", "4"),
                {"RINGPIPE_RANK=4", "RINGPIPE_SIZE=4"});
}

TEST(LauncherTest, OwnVariablesWinOverEveryLauncher) {
  Variables all = kOwn;
  for (const Variables& more : {kTorchrun, kOpenMpi, kMpich, kSlurm}) {
    all.insert(more.begin(), more.end());
  }
  EXPECT_EQ(Detect(all).value().launcher, "ringpipe");
}

TEST(LauncherTest, NoLauncherSaysWhatToSet) {
  ExpectRefused({}, {"RINGPIPE_RANK", "RINGPIPE_SIZE", "RINGPIPE_ROOT",
                     "torchrun", "mpirun", "srun"});
}

TEST(LauncherTest, TorchrunOnOneHostNeedsNoPort) {
  const Launch launch = Detect(kTorchrun).value();
  EXPECT_EQ(launch.launcher, "torchrun");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.size, 4);
  EXPECT_TRUE(launch.root.starts_with("unix:@ringpipe-")) << launch.root;
}

TEST(LauncherTest, RanksOfOneJobMeetAndOthersDoNot) {
  struct Case {
    Variables variables;
    std::string rank;
    std::vector<std::string> distinguishing;
  };
  for (const Case& c : {
           Case{kTorchrun,
                "RANK",
                {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                 "MASTER_PORT", "MASTER_ADDR"}},
           Case{kOpenMpi,
                "OMPI_COMM_WORLD_RANK",
                {"PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports"}},
           Case{kMpich, "PMI_RANK", {}},
           Case{With(kSlurm, "SLURM_STEP_NODELIST", "gpu03"),
                "SLURM_PROCID",
                {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
       }) {
    const Launch one = Detect(With(c.variables, c.rank, "0")).value();
    const Launch other = Detect(With(c.variables, c.rank, "3")).value();
    EXPECT_EQ(one.root, other.root);
    EXPECT_TRUE(one.root.starts_with("unix:@")) << one.root;
    EXPECT_EQ(one.job_id, other.job_id);
    for (const std::string& name : c.distinguishing) {
      const Launch stranger = Detect(With(c.variables, name, "77")).value();
      EXPECT_NE(stranger.root, one.root) << name;
      EXPECT_NE(stranger.job_id, one.job_id) << name;
    }
  }
}

TEST(LauncherTest, TorchrunOnSeveralHostsLeavesMasterPortToItsOwner) {
  const Variables hosts =
      With(With(kTorchrun, "LOCAL_WORLD_SIZE", "2"), "MASTER_ADDR", "gpu1");
  EXPECT_EQ(Detect(hosts).value().root, "gpu1:29501");
  EXPECT_EQ(Detect(With(hosts, "MASTER_PORT", "65535")).value().root,
            "gpu1:65534");
  EXPECT_EQ(Detect(With(hosts, "MASTER_ADDR", "fd00::2")).value().root,
            "[fd00::2]:29501");
  EXPECT_EQ(Detect(With(hosts, "RINGPIPE_ROOT", "a:1")).value().root, "a:1");
}

TEST(LauncherTest, TorchrunHalfSetOrContradictory) {
  ExpectRefused(Without(kTorchrun, "RANK"), {"WORLD_SIZE is set", "RANK is"});
  ExpectRefused(Without(kTorchrun, "WORLD_SIZE"),
                {"RANK is set", "WORLD_SIZE"});
  ExpectRefused(Without(kTorchrun, "MASTER_ADDR"), {"MASTER_ADDR is not"});
  ExpectRefused(Without(kTorchrun, "MASTER_PORT"), {"MASTER_PORT is not"});
  ExpectRefused(With(kTorchrun, "MASTER_PORT", "70000"), {"MASTER_PORT=70000"});
  ExpectRefused(With(kTorchrun, "RANK", "4"), {"RANK=4", "WORLD_SIZE=4"});
  ExpectRefused(With(kTorchrun, "RANK", "x"), {"RANK=x"});
  ExpectRefused(With(kTorchrun, "LOCAL_WORLD_SIZE", "5"),
                {"LOCAL_WORLD_SIZE=5"});
}

TEST(LauncherTest, MpiOnSeveralHostsNeedsARoot) {
  for (const Variables& hosts :
       {With(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        Without(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        With(kMpich, "MPI_LOCALNRANKS", "2"),
        Without(kMpich, "MPI_LOCALNRANKS")}) {
    ExpectRefused(hosts, {"RINGPIPE_ROOT", "RINGPIPE_SECRET"});
    EXPECT_EQ(Detect(With(hosts, "RINGPIPE_ROOT", "gpu1:1")).value().root,
              "gpu1:1");
  }
}

TEST(LauncherTest, MpiHalfSetOrContradictory) {
  ExpectRefused(Without(kOpenMpi, "OMPI_COMM_WORLD_RANK"),
                {"OMPI_COMM_WORLD_SIZE is set", "OMPI_COMM_WORLD_RANK is not"});
  ExpectRefused(With(kOpenMpi, "OMPI_COMM_WORLD_RANK", "4"),
                {"OMPI_COMM_WORLD_RANK=4", "OMPI_COMM_WORLD_SIZE=4"});
  ExpectRefused(With(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "9"),
                {"OMPI_COMM_WORLD_LOCAL_SIZE=9"});
  ExpectRefused(Without(kMpich, "PMI_SIZE"),
                {"PMI_RANK is set", "PMI_SIZE is"});
  ExpectRefused(With(kMpich, "PMI_SIZE", "-1"), {"PMI_SIZE=-1"});
}

TEST(LauncherTest, SlurmTakesTheFirstHostAndAPortFromTheJob) {
  const Launch launch = Detect(kSlurm).value();
  EXPECT_EQ(launch.launcher, "Slurm");
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.size, 8);
  // 20000 + (31 * 200505 + 0) mod 10000
  EXPECT_EQ(launch.root, "gpu03:25655");
  EXPECT_EQ(Detect(With(kSlurm, "SLURM_STEP_ID", "2")).value().root,
            "gpu03:25657");
}

TEST(LauncherTest, SlurmUnderPmi2IsSlurm) {
  Variables pmi2 = kSlurm;
  pmi2["PMI_RANK"] = "5";
  pmi2["PMI_SIZE"] = "8";
  EXPECT_EQ(Detect(pmi2).value().launcher, "Slurm");
  // mpirun of MPICH inside of an allocation is not.
  EXPECT_EQ(Detect(With(pmi2, "MPI_LOCALNRANKS", "8")).value().launcher,
            "MPICH");
}

TEST(LauncherTest, SlurmHalfSetOrContradictory) {
  ExpectRefused(Without(kSlurm, "SLURM_STEP_ID"), {"srun"});
  ExpectRefused(Without(kSlurm, "SLURM_JOB_ID"), {"SLURM_JOB_ID is not set"});
  ExpectRefused(
      Without(Without(kSlurm, "SLURM_NTASKS"), "SLURM_STEP_NUM_TASKS"),
      {"SLURM_PROCID is set", "SLURM_NTASKS is not"});
  ExpectRefused(With(kSlurm, "SLURM_PROCID", "8"), {"SLURM_PROCID=8"});
  ExpectRefused(With(kSlurm, "SLURM_STEP_NODELIST", "gpu[03"),
                {"gpu[03", "RINGPIPE_ROOT"});
}

}  // namespace
}  // namespace ringpipe
