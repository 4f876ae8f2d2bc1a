#include "bootstrap/bootstrap.h"

#include <utility>

#include "auth/handshake.h"
#include "bootstrap/message.h"
#include "bootstrap/session.h"

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

}  // namespace

Bootstrap::Bootstrap() = default;

Result<std::unique_ptr<Bootstrap>> Bootstrap::Join(const Options& options) {
  RINGPIPE_RETURN_IF_ERROR(CheckLaunch(options.launch));
  if (options.launch.size == 1) {
    RINGPIPE_RETURN_IF_ERROR(options.obstacle);  // there is nobody to tell
  }
  std::unique_ptr<Bootstrap> bootstrap(new Bootstrap);
  RINGPIPE_ASSIGN_OR_RETURN(bootstrap->session_, Session::Create(options));
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
