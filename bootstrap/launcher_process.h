// Which process started the ranks of this host: it tells apart two jobs that
// have the same variables.
#ifndef RINGPIPE_BOOTSTRAP_LAUNCHER_PROCESS_H_
#define RINGPIPE_BOOTSTRAP_LAUNCHER_PROCESS_H_

#include <string>

namespace ringpipe {

// Names the launcher of this process, "PID.START_TIME.PID_NAMESPACE", the same
// for all ranks that it started on this host and for nobody else.
//
// It is usually the parent. But "mpirun sh -c '...; program'" puts a shell
// between, which has the rank's variables in its own environment: ancestors
// that started with `variable`=`value` are passed over, up to a process that
// has the name of a launcher.
std::string LauncherProcess(const std::string& variable,
                            const std::string& value);

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_LAUNCHER_PROCESS_H_
