#include "engine/engine.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <string_view>
#include <utility>

#include "auth/byte_stream.h"
#include "base/exception_status.h"
#include "base/name_filter.h"
#include "engine/agreement.h"
#include "engine/algorithms.h"
#include "engine/culprit.h"
#include "engine/lost_rank.h"
#include "engine/pair_counts.h"
#include "engine/reason_for_others.h"
#include "engine/registration_cost.h"
#include "engine/stream_wait.h"
#include "pipeline/host/host_transport.h"
#include "pipeline/host/region_memory.h"
#include "pipeline/rails/rail_transport.h"
#include "verbs/process_limits.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe {
namespace {

// What a rank of a job of several has open itself, and needs in passing; what
// each other rank adds: at rank 0, on this host through host memory (that it
// has died, and to wake it), and at most, where it is the software device.
constexpr int kDescriptorsOfARank = 16;
constexpr int kDescriptorsOfMember = 1;
constexpr int kDescriptorsOfHostPeer = 2;
constexpr int kMostDescriptorsOfAPeer = 6;

// For AbortSignal: every call that can be made is one before it.
constexpr auto kLastCall = std::numeric_limits<std::uint64_t>::max() - 1;

// As many as RINGPIPE_SLOTS admits.
constexpr std::int64_t kMostSlots = 1 << 16;

}  // namespace

Engine::Engine(const Environment& environment, const Launch& launch,
               const Logger& logger, const Parts& parts)
    : environment_(environment),
      launch_(launch),
      logger_(logger),
      aborted_(
          StatusCode::kAborted,
          "rank " + std::to_string(launch.rank) +
              " aborted the communicator; it had no memory left to say why"),
      accelerators_(parts.accelerator, logger_),
      gpu_sharing_(launch.rank, launch.size, logger_),
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
  const Status able = engine->CheckLimits();
  const Status joined = engine->Join(deadline, able, parts.store);
  RINGPIPE_RETURN_IF_ERROR(able);
  RINGPIPE_RETURN_IF_ERROR(joined);
  // Whatever fails, the others have to hear of it.
  const Status status = WithoutExceptions([&]() -> Status {
    RINGPIPE_RETURN_IF_ERROR(engine->accelerators_.Take());
    return engine->SetUp(deadline);
  });
  if (status.ok()) {
    return engine;
  }
  if (status.code() == StatusCode::kPeerLost) {
    engine->abort_->AwaitReason(0,
                                Deadline::After(AbortSignal::kReasonPatience));
  }
  engine->Fail(status);
  return IsOfOneRank(status.code()) ? status : engine->failure();
}

Status Engine::CheckLimits() {
  RINGPIPE_RETURN_IF_ERROR(CheckDescriptors());
  RINGPIPE_ASSIGN_OR_RETURN(abort_, AbortSignal::Create());
  return Status::Ok();
}

// Before all else: to find out in the middle takes the others' time as well.
// What is certain to be needed is too little where ranks of other hosts, or a
// device, turn out to need more. Ranks of one host all ask for what rank 0
// needs: without it they would wait for rank 0.
Status Engine::CheckDescriptors() const {
  const int peers = size() - 1;
  std::string notice;
  if (verbs::RaiseDescriptorLimit(
          kDescriptorsOfARank + kMostDescriptorsOfAPeer * peers, &notice)) {
    logger_.Info(notice);
  }
  const bool one_host =
      launch_.root.starts_with("unix:") && environment_.host_id.empty();
  const bool in_memory = one_host && environment_.shares_host_memory();
  const int each = (in_memory ? kDescriptorsOfHostPeer : 0) +
                   (one_host || rank() == 0 ? kDescriptorsOfMember : 0);
  return verbs::CheckDescriptors(
             peers == 0 ? 0 : kDescriptorsOfARank + each * peers)
      .WithContext("to connect " + std::to_string(size()) + " ranks");
}

Status Engine::SetUp(Deadline deadline) {
  RINGPIPE_RETURN_IF_ERROR(MeetNeighbours(deadline));
  RINGPIPE_RETURN_IF_ERROR(OpenDevices(deadline));
  RINGPIPE_RETURN_IF_ERROR(Agree(deadline));
  RINGPIPE_RETURN_IF_ERROR(CreateExecutor());
  accelerators_.Find();
  // Its barrier comes last: from then on nothing fails on one rank alone.
  RINGPIPE_RETURN_IF_ERROR(ConnectAll(deadline));
  CreatePlanner();
  goodbye_.emplace(Goodbye::Job{rank(), size(), &logger_, abort_.get(),
                                &whereabouts_, bootstrap_.get(),
                                executor_.get()});
  return Status::Ok();
}

// With a status that is not ok, only to tell the others why.
Status Engine::Join(Deadline deadline, const Status& able, const Store* store) {
  Bootstrap::Options options;
  options.store = store;
  options.launch = launch_;
  options.secret = environment_.secret;
  RINGPIPE_ASSIGN_OR_RETURN(options.interfaces,
                            NameFilter::Parse(environment_.socket_interfaces,
                                              NameFilter::Ports::kNone));
  options.deadline = deadline;
  options.obstacle = able.WithContext("rank " + std::to_string(rank()));
  options.tcp_timeout = std::chrono::milliseconds(environment_.tcp_timeout_ms);
  options.logger = logger_;
  if (able.ok()) {
    options.on_failure = [abort = abort_.get(),
                          logger = logger_](const Status& reason) {
      if (abort->Raise(reason).message() == reason.message()) {
        logger.Info("the communicator has failed: " + reason.ToString());
      }
    };
    options.on_exit = [abort = abort_.get(), logger = logger_](
                          const Status& reason, std::uint64_t calls) {
      static_cast<void>(abort->Raise(reason, calls));
      logger.Info(reason.message() + ", after " + std::to_string(calls) +
                  " calls");
    };
  }
  options.reply = [this] { return Answer::From(whereabouts_.now()).Encode(); };
  RINGPIPE_ASSIGN_OR_RETURN(bootstrap_, Bootstrap::Join(options));
  return Status::Ok();
}

Status Engine::OpenDevices(Deadline deadline) {
  verbs::soft::Options soft = verbs::soft::Options::From(environment_);
  // Different on each rank, all from one seed.
  const auto seed =
      static_cast<std::uint64_t>(environment_.soft_adversary_seed);
  soft.adversary_seed = seed == 0 ? 0 : seed * 1'000'003 + launch_.rank + 1;
  // The job's own, so that devices of different jobs never meet.
  soft.key = bootstrap_->job_key();
  soft.tcp_timeout = std::chrono::milliseconds(environment_.tcp_timeout_ms);
  soft.connect_by = deadline.when();
  const auto soft_library = verbs::soft::CreateSoftLibrary(soft, logger_);
  RINGPIPE_ASSIGN_OR_RETURN(
      rails_, OpenRails(environment_, rank(), hosts_.of_rank, hosts_.in_memory,
                        verbs::LoadSystemLibrary(), soft_library,
                        bootstrap_->address()));
  registers_for_nothing_ = !rails_.devices.empty();
  for (const auto& device : rails_.devices) {
    RINGPIPE_ASSIGN_OR_RETURN(auto domain,
                              verbs::ProtectionDomain::Create(device));
    domains_.push_back(std::move(domain));
    registers_for_nothing_ &= !device->info().pins_memory;
  }
  memory_ = std::make_shared<RegisteredMemory>(domains_, memory_source());
  logger_.Info("devices: " + device());
  if (hosts_.all_in_memory && !environment_.device.empty()) {
    logger_.Info(environment_.device_variable + "=" + environment_.device +
                 " has no effect: it chooses devices between hosts, and all "
                 "ranks share the memory of this one");
  }
  return Status::Ok();
}

Status Engine::MeetNeighbours(Deadline deadline) {
  RINGPIPE_ASSIGN_OR_RETURN(const Residence own, Residence::Own(environment_));
  RINGPIPE_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            bootstrap_->AllGather(own.Serialize(), deadline));
  RINGPIPE_ASSIGN_OR_RETURN(hosts_, ParseHosts(all, rank()));
  if (hosts_.in_memory[rank()]) {
    RINGPIPE_RETURN_IF_ERROR(
        verbs::CheckDescriptors(kDescriptorsOfHostPeer *
                                (hosts_.ranks_here - 1))
            .WithContext("to share memory with " +
                         std::to_string(hosts_.ranks_here - 1) +
                         " ranks of this host"));
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
  const Member self = {rank(), size(), 0, hosts_.numbers};
  RINGPIPE_ASSIGN_OR_RETURN(
      algorithms_, AlgorithmChoice::Parse(environment_.algorithm, self,
                                          environment_.subchunk_bytes));
  depth_ =
      algorithms_.DepthFor(static_cast<int>(environment_.depth),
                           environment_.subchunk_bytes, self, hosts_.common());
  // Of each sub-chunk of a step an operand may be copied into one.
  const int for_operands = environment_.gpu_reduce == "auto" ? 0 : depth_;
  const int needed =
      algorithms_.SlotsNeeded(self, depth_, hosts_.common()) + for_operands;
  int slots = algorithms_.Slots(self, depth_, hosts_.common()) + for_operands;
  if (environment_.slots > 0) {
    slots = static_cast<int>(std::min(environment_.slots, kMostSlots));
    if (environment_.slots > kMostSlots) {
      return {StatusCode::kInvalidArgument, std::to_string(environment_.slots) +
                                                " slots: a rank has at most " +
                                                std::to_string(kMostSlots)};
    }
    if (slots < needed) {
      const std::string reducer =
          for_operands == 0
              ? ""
              : " and RINGPIPE_GPU_REDUCE=" + environment_.gpu_reduce;
      return {StatusCode::kInvalidArgument,
              "RINGPIPE_SLOTS=" + std::to_string(environment_.slots) + ": " +
                  std::to_string(size()) +
                  " ranks at RINGPIPE_DEPTH=" + std::to_string(depth_) +
                  reducer + " need at least " + std::to_string(needed) +
                  " slots, or they could block each other"};
    }
  }
  Executor::Options options;
  options.rank = rank();
  options.size = size();
  options.trace = trace_ == nullptr ? nullptr : &trace_->trace();
  options.spin = std::chrono::microseconds(environment_.spin_us);
  options.oversubscribed = hosts_.oversubscribed();
  options.abort = abort_.get();
  options.whereabouts = &whereabouts_;
  options.explain_timeout = [this](const Status& timeout) {
    return ExplainTimeout(timeout);
  };
  options.check = &check_;
  options.on_error = [this](const Status& error, std::uint64_t first) {
    TellOthers(error, first);
  };
  options.on_notice = [this](const std::string& notice) {
    logger_.Info(notice);
  };
  RINGPIPE_ASSIGN_OR_RETURN(auto transports, CreateTransports(slots));
  RINGPIPE_ASSIGN_OR_RETURN(
      auto pool, SlotPool::Create(domains_, *memory_source(),
                                  environment_.subchunk_bytes, slots));
  executor_ = std::make_unique<Executor>(std::move(pool), std::move(transports),
                                         options);
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
  options.memory = memory_.get();
  options.registers_buffers =
      registers_for_nothing_ && environment_.registration != "never";
  options.registered_sends_from = RegisteredSendsFrom();
  RINGPIPE_ASSIGN_OR_RETURN(
      auto rails, RailTransport::Create(domains_, rails_.allocator(), options));
  transports.push_back(std::move(rails));
  return transports;
}

std::uint64_t Engine::RegisteredSendsFrom() const {
  constexpr auto kNever = std::numeric_limits<std::uint64_t>::max();
  if (environment_.registration == "always") {
    return 0;
  }
  if (environment_.registration == "never" || registers_for_nothing_) {
    return kNever;
  }
  const auto cost = MeasureRegistrationCost(
      domains_, environment_.subchunk_bytes, 2 * depth_);
  if (!cost.ok()) {
    logger_.Info(
        "buffers that are not registered are copied into slots: what "
        "registration costs could not be measured: " +
        cost.status().ToString());
    return kNever;
  }
  logger_.Info(std::string(cost->pays
                               ? "buffers that are not registered are "
                                 "registered piece by piece for each send: "
                               : "buffers that are not registered are copied "
                                 "into slots: ") +
               cost->text);
  return cost->pays ? environment_.subchunk_bytes : kNever;
}

Status Engine::Agree(Deadline deadline) {
  if (!environment_.trace.empty()) {
    trace_ =
        std::make_unique<JobTrace>(environment_.trace, rank(), size(), logger_);
  }
  RINGPIPE_ASSIGN_OR_RETURN(
      const std::vector<std::string> introductions,
      bootstrap_->AllGather(Introduce(environment_, rails_,
                                      trace_ == nullptr ? "" : trace_->Claim())
                                .Serialize(),
                            deadline));
  std::vector<Introduction> ranks;
  for (const std::string& text : introductions) {
    RINGPIPE_ASSIGN_OR_RETURN(Introduction introduction,
                              Introduction::Parse(text));
    ranks.push_back(std::move(introduction));
  }
  RINGPIPE_RETURN_IF_ERROR(CheckAgreement(ranks));
  std::vector<std::string> ports;
  for (const Introduction& introduction : ranks) {
    ports.push_back(introduction.ports);
  }
  rails_.PairWith(ports);
  return trace_ == nullptr ? Status::Ok() : trace_->Accept(ranks[0].trace);
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
  job.common_host = hosts_.common();
  job.algorithms = algorithms_;
  job.hosts = hosts_.numbers;
  job.ranks_here = hosts_.ranks_here;
  job.subchunk_bytes = environment_.subchunk_bytes;
  job.depth = depth_;
  job.transports = &executor_->transports();
  job.host = &accelerators_.host();
  if (environment_.gpu_reduce != "auto") {
    job.reducer =
        environment_.gpu_reduce == "gpu" ? Owner::kDevice : Owner::kHost;
  }
  planner_.emplace(job);
}

Engine::~Engine() {
  if (executor_ != nullptr) {
    accelerators_.Release(executor_->pool());
  }
}

void Engine::LeaveTogether() noexcept {
  const bool together = goodbye_->LeaveTogether(CallDeadline());
  if (trace_ == nullptr) {
    return;
  }
  if (together) {
    trace_->WriteTogether(*bootstrap_, CallDeadline());
  } else {
    trace_->WriteAlone(/*logs=*/true);
  }
}

void Engine::Exit(bool idle) noexcept {
  try {
    goodbye_->Exit(idle);
    if (trace_ != nullptr) {
      trace_->WriteAlone(/*logs=*/false);
    }
  } catch (const std::exception&) {
    // Without a word.
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

void Engine::Fail(const Status& reason, std::uint64_t first) noexcept {
  TellOthers(abort_->Raise(reason, first), first);
}

void Engine::Abort(std::string_view what, std::string_view why) noexcept {
  Status reason = aborted_;
  try {
    reason =
        Status(StatusCode::kAborted, "rank " + std::to_string(rank()) + " " +
                                         std::string(what) + std::string(why));
  } catch (const std::exception&) {
    // Without the reason.
  }
  Fail(reason);
}

void Engine::TellOthers(const Status& reason, std::uint64_t first) noexcept {
  Status told = OutOfMemory();
  try {
    told = ReasonForOthers(reason, rank());
  } catch (const std::exception&) {
    // Without the name.
  }
  if (executor_ != nullptr) {
    executor_->TellPeers(told, first);
  }
  // What ends calls only from a later one on is a rank's exit, and that rank
  // has told it over the bootstrap.
  if (first == 0) {
    static_cast<void>(bootstrap_->Abort(told));
  }
}

std::vector<int> Engine::LostRanks() const {
  std::vector<int> ranks = bootstrap_->departed();
  if (abort_->raised()) {
    ranks.push_back(LostRank(abort_->reason(kLastCall)));
  }
  std::erase_if(ranks, [this](int lost) {
    return lost < 0 || lost >= size() || lost == rank();
  });
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::string Engine::device() const {
  const std::string rails = rails_.Describe();
  const std::string memory = accelerators_.Describe();
  return (region_ == nullptr ? rails
          : hosts_.all_in_memory
              ? "host memory: all ranks are on this host"
              : "host memory: ranks of this host; " + rails) +
         (memory.empty() ? "" : "; device memory: " + memory);
}

// --- A call ------------------------------------------------------------------

Result<CheckedCall> Engine::Check(const Call& call) {
  RINGPIPE_RETURN_IF_ERROR(failure());
  CheckedCall checked;
  checked.call = OnlyWhatIsRead(call);
  RINGPIPE_ASSIGN_OR_RETURN(checked.buffers,
                            CheckCall(checked.call, rank(), size()));
  Status chosen = accelerators_.Choose(checked);
  if (chosen.ok() && call.stream) {
    chosen = accelerators_.Mark(*call.stream, checked);
  }
  if (chosen.ok()) {
    return checked;
  }
  const Status status = chosen.WithContext(CollectiveName(call.collective));
  if (status.code() == StatusCode::kDeviceError) {
    // No call can be made on this rank any more: the others must not wait.
    Fail(status);
  }
  return status;
}

Status Engine::Register(void* memory, std::size_t bytes) {
  RINGPIPE_RETURN_IF_ERROR(
      accelerators_.CheckIsOfHost(memory).WithContext("Register"));
  return memory_->Register(memory, bytes);
}

Status Engine::Run(const CheckedCall& checked, const Timing& timing) {
  if (abort_->raised(timing.sequence)) {
    return abort_->reason(timing.sequence);
  }
  Status status = WithoutExceptions([&] { return Execute(checked, timing); });
  if (!status.ok()) {
    executor_->Drop();
    // The other ranks have made this call, or will: they must not wait.
    Fail(status, abort_->FirstOf(timing.sequence));
  }
  return status;
}

// What each rank sends is what the other one receives: else kMismatch on both.
// An all-to-all that other ranks know for this one.
Status Engine::CompareCounts(const CheckedCall& checked, const Timing& timing) {
  struct Counts {
    std::vector<PairCounts> own, others;
  };
  auto counts = std::make_unique<Counts>();
  auto& [own, others] = *counts;
  own = PairCountsOf(checked.buffers);
  others.resize(own.size());
  const Call call = {.collective = Collective::kAllToAll,
                     .send = own.data(),
                     .receive = others.data(),
                     .count = sizeof(PairCounts) / sizeof(std::uint64_t),
                     .type = DataType::kUint64};
  CheckedCall exchange = {call, {}};
  RINGPIPE_ASSIGN_OR_RETURN(exchange.buffers, CheckCall(call, rank(), size()));
  RINGPIPE_ASSIGN_OR_RETURN(const Operation* operation,
                            planner_->Prepare(exchange, timing));
  counts_exchange_ = *operation;
  counts_exchange_.digest.count = 0;
  counts_exchange_.digest.counts = Digest::kOfPairs;
  counts_exchange_.digest.type = static_cast<std::uint16_t>(checked.call.type);
  const Status exchanged = executor_->Run(counts_exchange_);
  if (exchanged.code() == StatusCode::kMemoryHeld) {
    static_cast<void>(counts.release());
  }
  RINGPIPE_RETURN_IF_ERROR(exchanged);
  return ComparePairCounts(rank(), timing.sequence, own, others);
}

Status Engine::Execute(const CheckedCall& checked, const Timing& timing) {
  if (checked.after != nullptr) {
    whereabouts_.AwaitStream(timing.sequence + 1, Clock::now());
    Status passed = AwaitStream(*checked.after, *abort_, rank(), timing)
                        .WithContext(CollectiveName(checked.call.collective));
    if (!passed.ok()) {
      whereabouts_.Move(Whereabouts::Place::kOutside, Clock::now());
      return passed;
    }
  }
  Timing then = timing;
  if (checked.buffers.receive_borders != nullptr) {
    RINGPIPE_RETURN_IF_ERROR(CompareCounts(checked, timing));
    ++then.sequence;
  } else if (const Operation* again = planner_->PrepareAgain(checked, timing)) {
    return executor_->Run(*again);
  }
  if (checked.device != nullptr) {
    RINGPIPE_RETURN_IF_ERROR(accelerators_.Prepare(executor_->pool()));
    gpu_sharing_.Tell(*checked.device, executor_->transports().all());
  }
  RINGPIPE_ASSIGN_OR_RETURN(const Operation* operation,
                            planner_->Prepare(checked, then));
  if (checked.device != nullptr) {
    accelerators_.ReadAtPeers(*operation->plan, executor_->transports());
  }
  RINGPIPE_RETURN_IF_ERROR(executor_->Run(*operation));
  if (checked.device != nullptr) {
    gpu_sharing_.Look(executor_->transports().all());
  }
  return Status::Ok();
}

}  // namespace ringpipe
