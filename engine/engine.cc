#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <new>
#include <string_view>
#include <utility>

#include "auth/byte_stream.h"
#include "base/name_filter.h"
#include "engine/agreement.h"
#include "engine/algorithms.h"
#include "engine/culprit.h"
#include "engine/registration_cost.h"
#include "pipeline/host/host_transport.h"
#include "pipeline/host/region_memory.h"
#include "pipeline/host_accelerator.h"
#include "pipeline/rails/rail_transport.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe {
namespace {

// How long rank 0 may take to say where all ranks are; it waits 250 ms for
// them.
constexpr std::chrono::milliseconds kAnswerPatience(400);
// Whether an error is this rank's own business, so that others have to be told
// whose it is.
bool IsOfOneRank(StatusCode code) {
  return code == StatusCode::kInvalidArgument ||
         code == StatusCode::kUnavailable ||
         code == StatusCode::kResourceExhausted ||
         code == StatusCode::kPermissionDenied ||
         code == StatusCode::kDeviceError || code == StatusCode::kInternal;
}

// Whether another rank has told it: "rank 3: no power".
bool HasTeller(std::string_view message) {
  constexpr std::string_view kRank = "rank ";
  const std::size_t end = message.find_first_not_of("0123456789", kRank.size());
  return message.starts_with(kRank) && end > kRank.size() &&
         message.substr(std::min(end, message.size())).starts_with(": ");
}

}  // namespace

Engine::Engine(const Environment& environment, const Launch& launch,
               const Logger& logger, const Parts& parts)
    : environment_(environment),
      launch_(launch),
      logger_(logger),
      host_(CreateHostAccelerator()),
      accelerator_(parts.accelerator),
      transport_(parts.transport),
      check_(launch.rank, &Describe) {}

Result<std::unique_ptr<Engine>> Engine::Create(const Environment& environment,
                                               const Launch& launch,
                                               const Logger& logger,
                                               const Parts& parts) {
  std::unique_ptr<Engine> engine(
      new Engine(environment, launch, logger, parts));
  const Deadline deadline =
      Deadline::After(std::chrono::milliseconds(environment.join_timeout_ms));
  RINGPIPE_ASSIGN_OR_RETURN(engine->abort_, AbortSignal::Create());
  RINGPIPE_RETURN_IF_ERROR(engine->Join(deadline));
  Status status = OutOfMemory();
  try {
    status = engine->SetUp(deadline);
  } catch (const std::bad_alloc&) {
    // The others have to hear of that.
  }
  if (status.ok()) {
    return engine;
  }
  if (status.code() == StatusCode::kPeerLost) {
    engine->abort_->AwaitReason();
  }
  engine->Fail(status);
  return IsOfOneRank(status.code()) ? status : engine->failure();
}

Status Engine::SetUp(Deadline deadline) {
  RINGPIPE_RETURN_IF_ERROR(MeetNeighbours(deadline));
  RINGPIPE_RETURN_IF_ERROR(OpenDevices());
  RINGPIPE_RETURN_IF_ERROR(CreateExecutor());
  FindAccelerator();
  RINGPIPE_RETURN_IF_ERROR(Agree(deadline));
  // Its barrier comes last: from then on nothing fails on one rank alone.
  RINGPIPE_RETURN_IF_ERROR(ConnectAll(deadline));
  CreatePlanner();
  return Status::Ok();
}

Status Engine::Join(Deadline deadline) {
  Bootstrap::Options options;
  options.launch = launch_;
  options.secret = environment_.secret;
  RINGPIPE_ASSIGN_OR_RETURN(options.interfaces,
                            NameFilter::Parse(environment_.socket_interfaces,
                                              NameFilter::Ports::kNone));
  options.deadline = deadline;
  options.logger = logger_;
  options.on_failure = [abort = abort_.get(),
                        logger = logger_](const Status& reason) {
    if (abort->Raise(reason).message() == reason.message()) {
      logger.Info("the communicator has failed: " + reason.ToString());
    }
  };
  options.reply = [this] { return Answer::From(whereabouts_.now()).Encode(); };
  RINGPIPE_ASSIGN_OR_RETURN(bootstrap_, Bootstrap::Join(options));
  return Status::Ok();
}

Status Engine::OpenDevices() {
  verbs::soft::Options soft = verbs::soft::Options::From(environment_);
  // Different on each rank, all from one seed.
  const auto seed =
      static_cast<std::uint64_t>(environment_.soft_adversary_seed);
  soft.adversary_seed = seed == 0 ? 0 : seed * 1'000'003 + launch_.rank + 1;
  // The job's own, so that devices of different jobs never meet.
  soft.key = bootstrap_->job_key();
  const auto soft_library = verbs::soft::CreateSoftLibrary(soft, logger_);
  RINGPIPE_ASSIGN_OR_RETURN(
      rails_, OpenRails(environment_, rank(), hosts_.of_rank, hosts_.in_memory,
                        verbs::LoadSystemLibrary(), soft_library));
  registers_for_nothing_ = !rails_.devices.empty();
  for (const auto& device : rails_.devices) {
    RINGPIPE_ASSIGN_OR_RETURN(auto domain,
                              verbs::ProtectionDomain::Create(device));
    domains_.push_back(std::move(domain));
    registers_for_nothing_ &= !device->info().pins_memory;
  }
  memory_ = std::make_unique<RegisteredMemory>(domains_, memory_source());
  logger_.Info("devices: " + device());
  if (hosts_.all_in_memory && !environment_.device.empty()) {
    logger_.Info(environment_.device_variable + "=" + environment_.device +
                 " chooses devices between hosts, and is not looked at here");
  }
  return Status::Ok();
}

Status Engine::MeetNeighbours(Deadline deadline) {
  RINGPIPE_ASSIGN_OR_RETURN(const Residence own, Residence::Own(environment_));
  RINGPIPE_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            bootstrap_->AllGather(own.Serialize(), deadline));
  std::vector<Residence> ranks;
  for (const std::string& text : all) {
    RINGPIPE_ASSIGN_OR_RETURN(Residence residence, Residence::Parse(text));
    ranks.push_back(std::move(residence));
  }
  RINGPIPE_ASSIGN_OR_RETURN(hosts_, FindHosts(ranks, rank()));
  if (hosts_.in_memory[rank()]) {
    RINGPIPE_ASSIGN_OR_RETURN(region_,
                              HostTransport::CreateRegion(rank(), size()));
  }
  return Status::Ok();
}

// Memory that ranks of this host can share, where there are such.
std::shared_ptr<MemorySource> Engine::memory_source() const {
  return region_ != nullptr ? std::make_shared<RegionMemory>(region_)
                            : std::shared_ptr<MemorySource>(rails_.allocator());
}

Status Engine::CreateExecutor() {
  depth_ = DepthFor(static_cast<int>(environment_.depth),
                    environment_.subchunk_bytes, size(), hosts_.all_in_memory);
  const int needed = SlotsNeeded(size(), depth_, hosts_.all_in_memory);
  // Twice what a round needs, so that rounds follow each other without a gap.
  int slots = std::max(needed, 4 * depth_ + 2);
  if (environment_.slots > 0) {
    slots = static_cast<int>(environment_.slots);
    if (slots < needed) {
      return {StatusCode::kInvalidArgument,
              "RINGPIPE_SLOTS=" + std::to_string(environment_.slots) + ": " +
                  std::to_string(size()) +
                  " ranks at RINGPIPE_DEPTH=" + std::to_string(depth_) +
                  " need at least " + std::to_string(needed) +
                  " slots, or they could block each other"};
    }
  }
  ChooseRegistration();
  Executor::Options options;
  options.rank = rank();
  options.size = size();
  options.subchunk_bytes = environment_.subchunk_bytes;
  options.slots = slots;
  options.spin = std::chrono::microseconds(environment_.spin_us);
  options.crowded = hosts_.crowded;
  options.abort = abort_.get();
  options.whereabouts = &whereabouts_;
  options.explain_timeout = [this](const Status& timeout) {
    return ExplainTimeout(timeout);
  };
  options.check = &check_;
  options.on_error = [this](const Status& error) { TellOthers(error); };
  options.on_notice = [this](const std::string& notice) {
    logger_.Info(notice);
  };
  RINGPIPE_ASSIGN_OR_RETURN(auto transports, CreateTransports(slots));
  RINGPIPE_ASSIGN_OR_RETURN(executor_,
                            Executor::Create(domains_, *memory_source(),
                                             std::move(transports), options));
  return Status::Ok();
}

Result<std::vector<std::unique_ptr<Transport>>> Engine::CreateTransports(
    int slots) {
  std::vector<std::unique_ptr<Transport>> transports;
  RailTransport::Options options;
  options.rank = rank();
  options.size = size();
  options.rails_of_peer = rails_.of_peer;
  options.reasons = rails_.reason;
  if (transport_ != nullptr) {
    transports.push_back(transport_->Create(rank(), check_));
    for (int peer = 0; peer < size(); ++peer) {
      if (transports[0]->connection(peer) != nullptr) {
        options.rails_of_peer[peer].clear();
      }
    }
  }
  if (region_ != nullptr) {
    HostTransport::Options host;
    host.rank = rank();
    host.size = size();
    host.crowded = hosts_.crowded;
    host.job_key = bootstrap_->job_key();
    host.check = &check_;
    for (int peer = 0; peer < size(); ++peer) {
      host.local.push_back(
          hosts_.in_memory[peer] &&
          (transports.empty() || transports[0]->connection(peer) == nullptr));
      if (hosts_.in_memory[peer]) {
        options.rails_of_peer[peer].clear();
      }
    }
    RINGPIPE_ASSIGN_OR_RETURN(auto memory,
                              HostTransport::Create(host, region_));
    transports.push_back(std::move(memory));
  }
  if (domains_.empty()) {
    return transports;
  }
  options.local_peers = region_ == nullptr ? hosts_.ranks_here - 1 : 0;
  options.receives = slots;
  options.timeout = environment_.qp_timeout;
  options.retry_count = environment_.qp_retry;
  options.service_level = static_cast<int>(environment_.service_level);
  options.traffic_class = static_cast<int>(environment_.traffic_class);
  options.check = &check_;
  RINGPIPE_ASSIGN_OR_RETURN(
      auto rails, RailTransport::Create(domains_, rails_.allocator(), options));
  transports.push_back(std::move(rails));
  return transports;
}

void Engine::ChooseRegistration() {
  registered_sends_from_ = environment_.registration == "always"
                               ? 0
                               : std::numeric_limits<std::uint64_t>::max();
  if (environment_.registration != "auto" || registers_for_nothing_ ||
      domains_.empty()) {
    return;
  }
  const auto cost = MeasureRegistrationCost(
      domains_, environment_.subchunk_bytes, 2 * depth_);
  if (!cost.ok()) {
    logger_.Info("sub-chunks of memory that is not registered are copied: " +
                 cost.status().ToString());
    return;
  }
  if (cost->pays()) {
    registered_sends_from_ = environment_.subchunk_bytes;
  }
  logger_.Info("sub-chunks of memory that is not registered are " +
               std::string(cost->pays() ? "registered: " : "copied: ") +
               cost->text);
}

Status Engine::Agree(Deadline deadline) {
  RINGPIPE_ASSIGN_OR_RETURN(
      const std::vector<std::string> introductions,
      bootstrap_->AllGather(Introduce(environment_, rails_).Serialize(),
                            deadline));
  std::vector<Introduction> ranks;
  for (const std::string& text : introductions) {
    RINGPIPE_ASSIGN_OR_RETURN(Introduction introduction,
                              Introduction::Parse(text));
    ranks.push_back(std::move(introduction));
  }
  return CheckAgreement(ranks);
}

// For each way by which this rank reaches others: its name, and the address for
// each rank.
std::string Engine::Addresses() const {
  ByteWriter addresses;
  for (const auto& transport : executor_->transports()) {
    addresses.String(transport->way());
    for (int peer = 0; peer < size(); ++peer) {
      addresses.String(transport->AddressFor(peer));
    }
  }
  return addresses.Take();
}

// Of what a peer's Addresses said: that for this rank by `way`; empty: none.
std::string Engine::AddressIn(const std::string& addresses,
                              std::string_view way) const {
  ByteReader reader(addresses);
  std::string own;
  while (reader.ok() && !reader.finished()) {
    const bool found = reader.String(addresses.size()) == way;
    for (int rank = 0; rank < size(); ++rank) {
      const std::string_view address = reader.String(addresses.size());
      if (found && rank == launch_.rank) {
        own = address;
      }
    }
  }
  return own;
}

Status Engine::ConnectAll(Deadline deadline) {
  RINGPIPE_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            bootstrap_->AllGather(Addresses(), deadline));
  for (const auto& transport : executor_->transports()) {
    std::vector<std::string> addresses;
    for (const std::string& text : all) {
      addresses.push_back(AddressIn(text, transport->way()));
    }
    RINGPIPE_RETURN_IF_ERROR(
        transport->Connect(addresses, deadline, abort_->fd()));
  }
  // Nobody sends before every receiver is ready.
  RINGPIPE_RETURN_IF_ERROR(bootstrap_->Barrier(deadline));
  for (const auto& transport : executor_->transports()) {
    for (int peer = 0; peer < size(); ++peer) {
      if (transport->connection(peer) != nullptr) {
        logger_.Info("rank " + std::to_string(peer) + " by way of " +
                     transport->DescribeRoute(peer));
      }
    }
  }
  return Status::Ok();
}

void Engine::CreatePlanner() {
  Planner::Job job;
  job.rank = rank();
  job.size = size();
  job.one_host = hosts_.all_in_memory;
  job.ranks_here = hosts_.ranks_here;
  job.crowded = hosts_.crowded;
  job.subchunk_bytes = environment_.subchunk_bytes;
  job.depth = depth_;
  job.abilities = executor_->abilities();
  job.host = host_.get();
  job.rails = domains_;
  job.memory = memory_.get();
  job.region = region_.get();
  job.registered_sends_from = registered_sends_from_;
  if (environment_.registration != "never") {
    job.registers_for_nothing = registers_for_nothing_;
    job.reaches_private =
        std::any_of(executor_->transports().begin(),
                    executor_->transports().end(), [](const auto& transport) {
                      return transport->ReachesPrivateMemory();
                    });
    job.always_reaches_private = environment_.registration == "always";
  }
  planner_.emplace(job);
}

void Engine::FindAccelerator() {
  if (accelerator_ != nullptr) {
    return;
  }
  auto cuda = CreateCudaAccelerator();
  if (cuda.ok()) {
    accelerator_ = std::move(cuda).value();
  } else {
    logger_.Debug("host memory only: " + cuda.status().ToString());
  }
}

Status Engine::Prepare(Accelerator& accelerator) {
  if (accelerator_prepared_ || &accelerator != accelerator_.get()) {
    return Status::Ok();
  }
  const SlotPool& pool = executor_->pool();
  const Status prepared =
      accelerator.PrepareSlots(pool.memory(), pool.memory_bytes());
  if (!prepared.ok()) {
    // Not copied through memory that is not pinned: the reductions work on the
    // slots where they are.
    return prepared.WithContext("device memory cannot be used");
  }
  accelerator_prepared_ = true;
  logger_.Info("device memory: " + accelerator.name());
  return Status::Ok();
}

Engine::~Engine() {
  try {
    LeaveTogether();
  } catch (const std::bad_alloc&) {
    // Then alone.
  }
  if (accelerator_prepared_) {
    accelerator_->ReleaseSlots(executor_->pool().memory());
  }
  executor_.reset();
}

// Peers may still be in their last call, acknowledge, or tell grants. Late by
// more than a call's timeout, they are not waited for.
void Engine::LeaveTogether() {
  if (executor_ == nullptr || bootstrap_ == nullptr || !failure().ok()) {
    return;
  }
  whereabouts_.Move(Whereabouts::Place::kLeaving, CoarseNow());
  const Status together = bootstrap_->LeaveTogether(
      Deadline::After(std::chrono::milliseconds(environment_.timeout_ms)));
  if (!together.ok()) {
    logger_.Debug("leaving alone: " + together.ToString());
  }
}

Status Engine::ExplainTimeout(const Status& timeout) {
  if (size() == 1) {
    return timeout;
  }
  std::vector<std::optional<Answer>> answers;
  for (const std::string& text :
       bootstrap_->AskAll(Deadline::After(kAnswerPatience))) {
    answers.push_back(Answer::Decode(text));
  }
  // It may have failed meanwhile, by somebody who knows more.
  RINGPIPE_RETURN_IF_ERROR(bootstrap_->failure());
  // Whatever became of the question, this rank knows where it is.
  answers[rank()] = Answer::From(whereabouts_.now());
  return {timeout.code(), timeout.message() + DescribeCulprit(answers, rank())};
}

void Engine::Fail(const Status& reason) noexcept {
  try {
    TellOthers(abort_->Raise(reason));
  } catch (const std::bad_alloc&) {
    if (!abort_->raised()) {
      static_cast<void>(abort_->Raise(OutOfMemory()));
    }
  }
}

void Engine::TellOthers(const Status& reason) {
  Status told = OutOfMemory();
  try {
    told = IsOfOneRank(reason.code()) && !HasTeller(reason.message())
               ? reason.WithContext("rank " + std::to_string(rank()))
               : reason;
  } catch (const std::bad_alloc&) {
    // Without the name.
  }
  if (executor_ != nullptr) {
    executor_->TellPeers(told);
  }
  static_cast<void>(bootstrap_->Abort(told));
}

std::string Engine::device() const {
  const std::string rails = rails_.Describe();
  return region_ == nullptr     ? rails
         : hosts_.all_in_memory ? "host memory: all ranks are on this host"
                                : "host memory: ranks of this host; " + rails;
}

// --- A call ------------------------------------------------------------------

Result<Accelerator*> Engine::ChooseAccelerator(
    const Call& call, const CallBuffers& buffers) const {
  if (accelerator_ == nullptr || call.count == 0) {
    return host_.get();
  }
  const std::string name(CollectiveName(call.collective));
  const auto receive_owned = accelerator_->Owns(call.receive);
  const auto send_owned =
      buffers.reads_send ? accelerator_->Owns(call.send) : receive_owned;
  for (const auto* const owned : {&receive_owned, &send_owned}) {
    if (!owned->ok()) {
      return owned->status().WithContext(name);
    }
  }
  const bool receive = receive_owned.value();
  const bool send = send_owned.value();
  if (send != receive) {
    return Status(StatusCode::kInvalidArgument,
                  name + ": one buffer is memory of " + accelerator_->name() +
                      " and the other is not; use one kind for both");
  }
  return receive ? accelerator_.get() : host_.get();
}

Result<CheckedCall> Engine::Check(const Call& call) const {
  RINGPIPE_RETURN_IF_ERROR(failure());
  CheckedCall checked;
  checked.call = call;
  RINGPIPE_ASSIGN_OR_RETURN(checked.buffers, CheckCall(call, rank(), size()));
  RINGPIPE_ASSIGN_OR_RETURN(checked.accelerator,
                            ChooseAccelerator(call, checked.buffers));
  return checked;
}

Status Engine::Run(const CheckedCall& checked, const Turn& turn) {
  if (abort_->raised()) {
    return abort_->reason();
  }
  Status status;
  try {
    status = Execute(checked, turn);
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
  }
  if (!status.ok()) {
    // The other ranks have made this call, or will: they must not wait.
    Fail(status);
  }
  return status;
}

Status Engine::Execute(const CheckedCall& checked, const Turn& turn) {
  if (const Operation* again = planner_->PrepareAgain(checked, turn)) {
    return executor_->Run(*again);
  }
  RINGPIPE_RETURN_IF_ERROR(Prepare(*checked.accelerator));
  Registration temporary;
  RINGPIPE_ASSIGN_OR_RETURN(const Operation* operation,
                            planner_->Prepare(checked, turn, &temporary));
  const Clock::time_point start = Clock::now();
  RINGPIPE_RETURN_IF_ERROR(executor_->Run(*operation));
  planner_->Ran(Clock::now() - start);
  return Status::Ok();
}

}  // namespace ringpipe
