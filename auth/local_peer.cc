#include "auth/local_peer.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace ringpipe {
namespace {

// The kernel's PROC_USER_INIT_INO: the namespace that all others are in.
constexpr ino_t kInitialNamespace = 0xEFFFFFFD;

std::string Folder(const std::string& proc, pid_t pid) {
  return proc + "/" + (pid == 0 ? "self" : std::to_string(pid));
}

std::optional<std::string> Contents(const std::string& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file),
                   std::istreambuf_iterator<char>()};
  return file.good() || file.eof() ? std::optional(text) : std::nullopt;
}

// Who may not be traced does not show its namespace, but how ids are mapped
// there, as seen from ours.
bool HasOurMaps(pid_t pid, const std::string& proc) {
  for (const char* map : {"/uid_map", "/gid_map"}) {
    const auto own = Contents(Folder(proc, 0) + map);
    if (!own || own->empty() || own != Contents(Folder(proc, pid) + map)) {
      return false;
    }
  }
  return true;
}

bool IsInOurNamespace(pid_t pid, const std::string& proc) {
  struct stat own, other;
  if (stat((Folder(proc, 0) + "/ns/user").c_str(), &own) != 0) {
    return false;
  }
  if (pid <= 0) {
    // Of a PID namespace that is not below ours. To those of the initial user
    // namespace the kernel gives no id of ours from another one.
    return own.st_ino == kInitialNamespace;
  }
  if (stat((Folder(proc, pid) + "/ns/user").c_str(), &other) == 0) {
    return own.st_dev == other.st_dev && own.st_ino == other.st_ino;
  }
  return errno == EACCES && HasOurMaps(pid, proc);
}

}  // namespace

Status CheckLocalProcess(const ucred& process, const std::string& proc) {
  if (process.uid != geteuid()) {
    return {
        StatusCode::kPermissionDenied,
        "it belongs to another user (uid " + std::to_string(process.uid) + ")"};
  }
  if (process.pid == getpid() || IsInOurNamespace(process.pid, proc)) {
    return Status::Ok();
  }
  const std::string who = " (pid " + std::to_string(process.pid) + ")";
  if (access(Folder(proc, 0).c_str(), F_OK) != 0) {
    return {StatusCode::kPermissionDenied,
            proc +
                " is not mounted, or for another PID namespace: it alone shows "
                "whether a process is in our user namespace" +
                who};
  }
  return {StatusCode::kPermissionDenied,
          "it is in another user namespace, or does not show that it is in "
          "ours" +
              who};
}

Status CheckLocalPeer(int socket, ucred* process) {
  socklen_t bytes = sizeof *process;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, process, &bytes) != 0) {
    return ErrnoStatus(StatusCode::kPermissionDenied,
                       "the kernel does not say whose it is", errno);
  }
  return CheckLocalProcess(*process);
}

}  // namespace ringpipe
