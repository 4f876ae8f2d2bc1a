#include "bootstrap/bootstrap.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "auth/handshake.h"
#include "bootstrap/message.h"
#include "bootstrap/session.h"
#include "bootstrap/stored_root.h"

namespace ringpipe {
namespace {

Status CheckLaunch(const Launch& launch) {
  if (launch.size < 1 || launch.rank < 0 || launch.rank >= launch.size) {
    return {StatusCode::kInvalidArgument,
            "rank " + std::to_string(launch.rank) + " of " +
                std::to_string(launch.size) +
                " ranks: ranks go from 0 to size - 1"};
  }
  if (launch.job_id.size() > Handshake::kMostNameBytes) {
    return {StatusCode::kInvalidArgument,
            "the job id (RINGPIPE_JOB_ID) has " +
                std::to_string(launch.job_id.size()) + " bytes; at most " +
                std::to_string(Handshake::kMostNameBytes) + " are allowed"};
  }
  return Status::Ok();
}

// How long a rank that cannot take part looks for the others, to tell them.
constexpr std::chrono::seconds kTellingTime(3);

// On a rank other than 0: looks into the store where rank 0 is.
Status FindRoot(Bootstrap::Options& options) {
  const Deadline deadline =
      options.obstacle.ok()
          ? options.deadline
          : Deadline::At(std::min(options.deadline.when(),
                                  Deadline::After(kTellingTime).when()));
  RINGPIPE_ASSIGN_OR_RETURN(
      StoredRoot root,
      StoredRoot::Await(*options.store, options.launch, deadline));
  const std::string rank = "rank " + std::to_string(options.launch.rank);
  if (root.secret.empty() && options.secret.empty()) {
    return {StatusCode::kInvalidArgument,
            rank +
                " was given no secret (RINGPIPE_SECRET), but rank 0 was: give "
                "all ranks the same one, or none"};
  }
  if (!root.secret.empty() && !options.secret.empty() &&
      options.obstacle.ok()) {
    options.obstacle = {StatusCode::kMismatch,
                        rank +
                            " was given a secret (RINGPIPE_SECRET), but rank 0 "
                            "was not: give all ranks the same one, or none"};
  }
  if (!root.secret.empty()) {
    options.secret = std::move(root.secret);
  }
  options.launch.root.clear();
  for (const std::string& address : root.addresses) {
    options.launch.root += (options.launch.root.empty() ? "" : ", ") + address;
  }
  options.stored_addresses = std::move(root.addresses);
  return Status::Ok();
}

// With what the store has, or will have.
Result<Bootstrap::Options> ByStore(Bootstrap::Options options) {
  if (options.store == nullptr || options.launch.size == 1) {
    return options;
  }
  if (options.launch.rank > 0) {
    RINGPIPE_RETURN_IF_ERROR(FindRoot(options));
  } else if (options.secret.empty()) {
    RINGPIPE_ASSIGN_OR_RETURN(options.secret, MakeSecret());
    options.has_made_secret = true;
  }
  return options;
}

}  // namespace

Bootstrap::Bootstrap() = default;

Result<std::unique_ptr<Bootstrap>> Bootstrap::Join(const Options& options) {
  RINGPIPE_RETURN_IF_ERROR(CheckLaunch(options.launch));
  if (options.launch.size == 1) {
    RINGPIPE_RETURN_IF_ERROR(options.obstacle);  // there is nobody to tell
  }
  RINGPIPE_ASSIGN_OR_RETURN(const Options all, ByStore(options));
  std::unique_ptr<Bootstrap> bootstrap(new Bootstrap);
  RINGPIPE_ASSIGN_OR_RETURN(bootstrap->session_, Session::Create(all));
  RINGPIPE_RETURN_IF_ERROR(bootstrap->session_->Join());
  return bootstrap;
}

Bootstrap::~Bootstrap() {
  if (session_ != nullptr) {
    session_->Leave();
  }
}

void Bootstrap::Exit(uint64_t calls) {
  session_->Exit(calls, /*lives_on=*/false);
}

void Bootstrap::LeaveAlone(uint64_t calls) {
  session_->Exit(calls, /*lives_on=*/true);
}

int Bootstrap::rank() const { return session_->rank(); }

int Bootstrap::size() const { return session_->size(); }

const std::string& Bootstrap::job_key() const { return session_->job_key(); }

const std::string& Bootstrap::address() const { return session_->address(); }

Result<std::vector<std::string>> Bootstrap::AllGather(const std::string& blob,
                                                      Deadline deadline) {
  return session_->Gather(Gathering::kAllGather, blob, deadline);
}

Status Bootstrap::Barrier(Deadline deadline) {
  return session_->Gather(Gathering::kBarrier, "", deadline).status();
}

Status Bootstrap::LeaveTogether(Deadline deadline) {
  return session_->Gather(Gathering::kLeave, "", deadline).status();
}

std::vector<std::string> Bootstrap::AskAll(Deadline deadline) {
  return session_->AskAll(deadline);
}

Status Bootstrap::Abort(const Status& reason) {
  return session_->Abort(reason);
}

Status Bootstrap::failure() const { return session_->failure(); }

std::vector<int> Bootstrap::departed() const { return session_->departed(); }

int Bootstrap::refused_connections() const {
  return session_->refused_connections();
}

}  // namespace ringpipe
