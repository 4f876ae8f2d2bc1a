// What rank 0 and the other ranks have in common: the thread, the call that
// waits, the first reason of failure.
#ifndef RINGPIPE_BOOTSTRAP_SESSION_H_
#define RINGPIPE_BOOTSTRAP_SESSION_H_

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>  // before Asio: Boost 1.74 needs it there
#include <vector>

#include "auth/handshake.h"
#include "base/deadline.h"
#include "base/io_loop.h"
#include "base/status.h"
#include "bootstrap/address.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/earliest_timer.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/message.h"
#include "bootstrap/refusals.h"

namespace ringpipe {

// Milliseconds until `deadline`, at least 0; -1 for never.
int64_t LeftMs(Deadline deadline);

// The calling threads and the io thread meet only in the members that mutex_
// guards; all else, and everything in the derived classes, belongs to the io
// thread.
class Session {
 public:
  // RootSession for rank 0, MemberSession for the others. kResourceExhausted
  // where the system has no thread or descriptor left.
  static Result<std::unique_ptr<Session>> Create(
      const Bootstrap::Options& options);

  // After Leave.
  virtual ~Session() = default;

  // From any thread; as Bootstrap's of the same names.
  Status Join();
  Result<std::vector<std::string>> Gather(Gathering gathering,
                                          const std::string& blob,
                                          Deadline deadline);
  std::vector<std::string> AskAll(Deadline deadline);
  Status Abort(const Status& reason);
  Status failure() const;
  std::vector<int> departed() const;
  int refused_connections() const { return refusals_.total(); }

  // Tells the others, closes everything, ends the thread.
  void Leave();
  // Tells the others. Before Leave, or instead. `lives_on`: as in Departure.
  void Exit(uint64_t calls, bool lives_on);

  int rank() const { return options_.launch.rank; }
  int size() const { return options_.launch.size; }
  // After a Join that returned ok.
  const std::string& job_key() const { return job_key_; }
  const std::string& address() const { return address_; }

 protected:
  explicit Session(const Bootstrap::Options& options);

  // What the derived classes do, on the io thread.
  virtual void StartJoin() = 0;  // leads to CompleteJoin or Fail
  virtual void Contribute(Contribution contribution) = 0;
  virtual void Ask() = 0;  // leads to CompleteAsking, or to nothing
  virtual void TellFailure(const Status& reason) = 0;  // to other ranks; once
  // Where there is no memory for that: closes all connections, which needs
  // none. The others take this rank for lost.
  virtual void CutOff() = 0;
  virtual void StartLeaving(const Departure& own) = 0;
  // Whether the system has all that this rank says when it leaves.
  virtual bool HasSentLast() const = 0;
  // Whether nobody is left who has to hear it.
  virtual bool IsAlone() const = 0;
  // Why the deadline of `gathering` passed, as far as this rank knows.
  virtual Status DescribeTimeout(Gathering gathering) = 0;

  // What they use for it. Fail from any thread, the others on the io thread.
  // Fail allocates nothing; the others are told by the io thread.
  void Fail(const Status& reason) noexcept;
  // The status of the loss of a rank whose connection ended for `reason`.
  static Status RankLost(const std::string& who, const Status& reason);
  // Rank 0 has begun to listen; an error of its addresses is that of the join.
  void NoteListening(const Result<std::vector<std::string>>& addresses);
  void CompleteJoin(std::vector<std::string> identities);
  void CompleteCall(Result<std::vector<std::string>> result);
  // What AskAll waits for.
  void CompleteAsking(const std::vector<std::string>& replies);
  std::string OwnReply() const;
  // This rank's end of a connection by which it joins, or another rank.
  void NoteOwnSide(const Endpoint& own_side);
  void NoteDeparture(const Departure& departure);
  // From elsewhere than rank 0, whose word of a gathering that the departed
  // rank took part in may still be on its way.
  void NoteEarlyDeparture(const Departure& departure);
  // After a connection has ended.
  void GoOnLeaving();
  // After a connection has got rid of some of what it sends.
  void NoteSent();
  // Fails the job when `left_ms` have passed, unless DisarmTimeout comes
  // before; the earliest of several counts.
  void ArmTimeout(Gathering gathering, int64_t left_ms);
  void DisarmTimeout() { timeout_.Disarm(); }

  // Counts and logs a connection that was no rank's.
  void Refuse(const std::string& reason) {
    refusals_.Note(reason, options_.launch.root, options_.logger);
  }
  std::string DescribeRefused() const { return refusals_.Describe(); }

  bool joined() const { return joined_; }
  bool failed() const { return !failure().ok(); }
  // Whether this rank's own caller has ended it (while_waiting).
  bool was_ended_by_caller() const {
    return failure().message() == ended_by_caller_.message();
  }
  bool leaving() const { return leaving_; }
  bool anybody_departed() const;
  bool HasDeparted(int rank) const;
  bool HasLeftInOrder(int rank) const;
  // "rank 3 (pid 1234 on host x)", once that is known.
  std::string DescribeRank(int rank) const;
  Handshake::Options handshake_options() const;
  const Identity& own_identity() const { return own_identity_; }
  // That rank's, after the join.
  Identity IdentityOf(int rank) const;
  // Where rank 0 is to listen, or listens: several by a store alone.
  // kInvalidArgument where one is no address.
  Result<std::vector<Address>> RootAddresses() const;
  // Why this rank joins only to say that it cannot; ok: it can.
  const Status& obstacle() const { return obstacle_; }

  // Before the members that use it are gone, nothing may run: Leave sees to
  // that.
  IoLoop loop_;
  boost::asio::io_context& io_ = loop_.context();
  const Bootstrap::Options options_;

 private:
  Status StartThread();
  void RunThread();
  Status StatusOf(const std::exception& error) const;
  void TellByStore();
  Status MakeOwnIdentity();
  Status FindObstacle() const;
  Status MakeJobKey(const std::vector<std::string>& identities);
  void LeaveInOrder();
  void BeginLeaving(const Departure& own);
  Result<std::vector<std::string>> WaitForCall(
      Deadline deadline = Deadline::Infinite());
  // Whether the caller of this gathering still waits for its end.
  bool WaitsFor(uint64_t sequence) const;
  // Both with mutex_ held.
  Status DepartedStatus(Gathering gathering) const;
  void EndCallOfTheDeparted();
  void OnFailed(const Status& reason) noexcept;
  // Whether anything can be said to the io thread; if not, the job has failed.
  bool CanPost() noexcept;
  // Whether the system has all that the others are told of the failure.
  void NoteTold();
  // What the io thread does last where its descriptors were closed.
  void OnDescriptorsClosed() noexcept;
  void TellUser(const Status& reason) noexcept;
  void AwaitLeaving(std::unique_lock<std::mutex>& lock, const bool& done);

  // Of this rank, whose number they say.
  const Status out_of_memory_;
  const Status descriptors_closed_;
  const Status ended_by_caller_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type>
      work_;
  EarliestTimer timeout_{io_};
  Identity own_identity_;
  // Set before Join returns, and not changed again.
  std::string job_key_;
  std::string address_;  // as Bootstrap::address; "": not known, so far
  Status obstacle_;
  bool joined_ = false;
  bool failure_told_ = false;
  bool leaving_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // The one call that waits, if any; its result, once there.
  std::optional<Gathering> call_;
  std::optional<Result<std::vector<std::string>>> call_result_;
  std::vector<std::string> listens_at_;  // rank 0's, where there is a store
  uint64_t sequence_ = 0;  // of the latest Gather; the join's is 0
  std::vector<std::string> replies_;
  Status failure_;
  std::map<int, uint64_t> departed_;  // by rank: Departure::calls
  std::vector<Identity> identities_;  // by rank, from the join on
  uint64_t sent_ = 0;  // how often something was, since leaving has begun
  bool asks_ = false;  // AskAll
  bool leaving_has_begun_ = false;
  bool has_sent_last_ = false;
  bool has_told_ = false;  // why the job has failed
  bool left_ = false;

  Refusals refusals_;
  std::atomic<bool> ended_ = false;  // the io thread is to end
  std::thread thread_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_SESSION_H_
