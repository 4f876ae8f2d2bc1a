// Who am I, and where is rank 0? From the variables of whichever launcher
// started the process.
//
//   launcher  rank, size from        rank 0 listens at (without RINGPIPE_ROOT)
//   --------  ---------------------  ---------------------------------------
//   ringpipe  RINGPIPE_RANK, _SIZE   RINGPIPE_ROOT is needed, but for one rank
//   torchrun  RANK, WORLD_SIZE       one host (LOCAL_WORLD_SIZE = WORLD_SIZE):
//                                    unix; else MASTER_ADDR, MASTER_PORT + 1
//                                    (65534 for 65535): MASTER_PORT itself may
//                                    be the agent's
//   Open MPI  OMPI_COMM_WORLD_RANK,  one host (..._LOCAL_SIZE = ..._SIZE):
//             OMPI_COMM_WORLD_SIZE   unix; else RINGPIPE_ROOT is needed
//   MPICH     PMI_RANK, PMI_SIZE     one host (MPI_LOCALNRANKS = PMI_SIZE):
//                                    unix; else RINGPIPE_ROOT is needed
//   Slurm     SLURM_PROCID,          one host: unix; else the first host of
//             SLURM_STEP_NUM_TASKS   SLURM_STEP_NODELIST, port 20000 + (31 *
//             or SLURM_NTASKS        job + step) mod 10000
//
// "unix" is an abstract unix socket whose name is a digest of the user, the
// job's own variables and, under torchrun and MPI, the launcher's process: two
// jobs at once never get the same one, and no port is needed.
#ifndef RINGPIPE_BOOTSTRAP_LAUNCHER_H_
#define RINGPIPE_BOOTSTRAP_LAUNCHER_H_

#include <string>

#include "base/environment.h"
#include "base/status.h"

namespace ringpipe {

// This process's place in its job.
struct Launch {
  int rank = 0;
  int size = 1;
  // Where rank 0 listens: "HOST:PORT", "[IPv6]:PORT" or "unix:@NAME" (an
  // abstract unix socket: one host, one network namespace). Empty only for a
  // job of one rank.
  std::string root;
  // Tells jobs apart that meet at one address; the same on all hosts.
  std::string job_id;
  // "ringpipe", "torchrun", "Open MPI", "MPICH", "Slurm": for messages.
  std::string launcher;
};

// In the order of the table above: the first launcher of which a variable for
// rank or size is set. RINGPIPE_ROOT and RINGPIPE_JOB_ID override what a
// launcher gives. kInvalidArgument, saying which variables to set, where no
// launcher is found, or its variables are half set, are no numbers or
// contradict each other. Thread-safe if `get` is.
Result<Launch> DetectLaunch(const Environment& environment,
                            const Environment::Getter& get);

// The same from the process's own environment. Not while another thread
// changes it.
Result<Launch> DetectLaunch(const Environment& environment);

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_LAUNCHER_H_
