// Why kControlReceives is the number that it is: a model of the two ends of a
// control queue pair, call after call, in which every interleaving of what they
// may do is tried.
//
// What the model leaves out only holds an end back: the order in which a
// schedule has its transfers, room for sends. An end that sleeps may be woken
// for another peer's sake at any time, so sleeping is no state of its own.
#include "pipeline/rails/message.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

// Breaks of the rules, to see that the model finds what they do; and what the
// ends may do without.
struct Rules {
  bool sleeps_unanswered = false;   // SLEEP while another is not answered
  bool wakes_unasked = false;       // WAKE with every credit
  bool ends_without_first = false;  // a call, before the peer's kCall
  bool ends_without_eager = false;  // a call, before the peer's payload
  bool never_sends_alone = false;   // a kCall without its payload
  bool never_sleeps = false;
};

// What a call has to send: messages from either end, of which the first each
// way may be eager.
struct Call {
  bool eager = false;
  std::array<std::int8_t, 2> messages = {};
};

// One message of data at most, after the eager one. (Two need as many receives,
// and have ten times as many states.)
std::vector<Call> AllCalls() {
  constexpr std::int8_t kMostData = 1;
  std::vector<Call> calls;
  for (const bool eager : {false, true}) {
    const auto most = static_cast<std::int8_t>(kMostData + (eager ? 1 : 0));
    for (std::int8_t a = 0; a <= most; ++a) {
      for (std::int8_t b = 0; b <= most; ++b) {
        calls.push_back({eager, {a, b}});
      }
    }
  }
  return calls;
}

// Numbers are relative: calls to the last that both ends have begun, credits to
// the messages that have arrived. What is older is kOld.
constexpr std::int8_t kOld = -1;

struct Message {
  enum class Kind : std::int8_t {
    kNone,
    kCall,
    kCallWithPayload,
    kSleep,
    kWake,
    kCredit,  // the WRITE of a credit word, which needs no receive
  };
  Kind kind = Kind::kNone;
  std::int8_t call = kOld;     // kCall
  std::int8_t credits = kOld;  // kCall, kCredit: posted; kSleep: seen

  bool operator==(const Message&) const = default;
};

template <int kCapacity>
struct Messages {
  std::array<Message, kCapacity> items = {};
  std::int8_t size = 0;

  void Progress(const Message& message) {
    if (size == kCapacity) {
      std::abort();  // the model is wrong
    }
    items[size++] = message;
  }
  Message Take(int index) {
    const Message message = items[index];
    std::copy(items.begin() + index + 1, items.begin() + size,
              items.begin() + index);
    items[--size] = {};
    return message;
  }
  auto begin() { return items.begin(); }
  auto end() { return items.begin() + size; }
  bool operator==(const Messages&) const = default;
};

// One end: of RailConnection what bears on control messages, by its names.
struct End {
  std::int8_t call = 0;  // the last that it has begun
  bool running = false;  // has not ended yet
  // Of the running call.
  bool call_sent = false;
  bool agreed = false;
  bool sends_eagerly = false;
  bool expects_eager = false;
  bool takes_eager = false;
  bool expected = false;  // the eager message has a target
  bool eager = false;     // and a buffer
  std::int8_t to_send = 0;
  std::int8_t to_expect = 0;
  std::int8_t to_arrive = 0;
  // As a sender of data.
  std::int8_t sent = 0;
  std::int8_t seen_credits = 0;
  bool asleep = false;
  // As a receiver.
  std::int8_t arrived = 0;
  std::int8_t credits = 0;
  std::int8_t credits_told = 0;
  bool peer_asleep = false;

  // kCall that came too soon.
  Messages<kControlReceives + 2> early;
  // On the wire to this end, or in buffers that it has not looked at. A kCredit
  // takes effect when all before it have landed, looked at or not.
  Messages<2 * kControlReceives> inbox;

  bool operator==(const End&) const = default;
};

struct State {
  std::array<End, 2> ends;
  // Which the calls are that one end has begun and the other has not.
  std::array<std::int8_t, 8> next_calls = {};

  bool operator==(const State&) const = default;
};
static_assert(std::has_unique_object_representations_v<State>);

struct HashOfState {
  std::size_t operator()(const State& state) const {
    return std::hash<std::string_view>()(
        {reinterpret_cast<const char*>(&state), sizeof state});
  }
};

// What ends may do, each a step that nothing interrupts. A step returns whether
// it was possible.
class Steps {
 public:
  explicit Steps(const Rules& rules) : rules_(rules), calls_(AllCalls()) {}

  // Calls visit(name, end, state) for each state that may follow.
  template <typename Visit>
  void Next(const State& from, Visit visit) const {
    using Step = bool (Steps::*)(State&, int) const;
    static constexpr std::pair<const char*, Step> kSteps[] = {
        {"ends its call", &Steps::EndCall},
        {"sends kCall alone", &Steps::Announce},
        {"sends its eager message", &Steps::SendEagerly},
        {"expects a message", &Steps::Expect},
        {"writes its credits", &Steps::Tell},
        {"sends data", &Steps::SendData},
        {"receives data", &Steps::ReceiveData},
        {"sends SLEEP", &Steps::Sleep},
        {"sees credits", &Steps::LandCredit},
        {"takes what came early", &Steps::TakeEarly},
        {"looks at a message", &Steps::Look},
        {"delivers an eager message", &Steps::Deliver},
    };
    for (const int end : {0, 1}) {
      for (const auto& [name, step] : kSteps) {
        State state = from;
        if ((this->*step)(state, end)) {
          visit(name, end, Relative(state));
        }
      }
      for (std::size_t call = 0; call < calls_.size(); ++call) {
        State state = from;
        if (Begin(state, end, static_cast<std::int8_t>(call))) {
          visit("begins call", end, Relative(state));
        }
      }
    }
  }

 private:
  using Kind = Message::Kind;

  // Both ends make the same calls: the first to begin one says which it is.
  bool Begin(State& state, int end, std::int8_t call) const {
    End& self = state.ends[end];
    if (self.running) {
      return false;
    }
    const int ahead = self.call++ - state.ends[1 - end].call;
    if (ahead >= 0) {
      state.next_calls.at(ahead) = call;
    } else if (state.next_calls[0] != call) {
      return false;
    }
    const auto& [eager, messages] = calls_[call];
    self.running = true;
    self.sends_eagerly = eager && messages[end] > 0;
    self.expects_eager = self.takes_eager = eager && messages[1 - end] > 0;
    self.to_send = static_cast<std::int8_t>(messages[end] - self.sends_eagerly);
    self.to_expect = self.to_arrive =
        static_cast<std::int8_t>(messages[1 - end] - self.expects_eager);
    return true;
  }

  // As Executor::Finished has it.
  bool EndCall(State& state, int end) const {
    End& self = state.ends[end];
    if (!self.running || !self.call_sent || self.sends_eagerly ||
        self.to_send > 0 || self.to_arrive > 0 ||
        !(self.agreed || rules_.ends_without_first)) {
      return false;
    }
    const bool eager_to_come =
        self.expects_eager || self.takes_eager || self.expected;
    if (eager_to_come && (self.eager || !rules_.ends_without_eager)) {
      return false;
    }
    self.running = self.call_sent = self.agreed = false;
    self.expects_eager = self.takes_eager = self.expected = false;
    return true;
  }

  static void SendCall(State& state, int end, Kind kind) {
    End& self = state.ends[end];
    self.call_sent = true;
    self.credits_told = self.credits;
    state.ends[1 - end].inbox.Progress({kind, self.call, self.credits_told});
  }

  bool Announce(State& state, int end) const {
    const End& self = state.ends[end];
    if (!self.running || self.call_sent ||
        (rules_.never_sends_alone && self.sends_eagerly)) {
      return false;
    }
    SendCall(state, end, Kind::kCall);
    return true;
  }

  bool SendEagerly(State& state, int end) const {
    End& self = state.ends[end];
    if (!std::exchange(self.sends_eagerly, false)) {
      return false;
    }
    SendCall(state, end, Kind::kCallWithPayload);
    return true;
  }

  bool Expect(State& state, int end) const {
    End& self = state.ends[end];
    if (std::exchange(self.expects_eager, false)) {
      return self.expected = true;
    }
    if (self.to_expect == 0) {
      return false;
    }
    --self.to_expect;
    ++self.credits;
    return true;
  }

  bool Tell(State& state, int end) const {
    const End& self = state.ends[end];
    if (!self.running || !self.call_sent || self.credits == self.credits_told) {
      return false;
    }
    TellCredits(state, end);
    return true;
  }

  void TellCredits(State& state, int end) const {
    End& self = state.ends[end];
    auto& out = state.ends[1 - end].inbox;
    self.credits_told = self.credits;
    out.Progress({Kind::kCredit, kOld, self.credits_told});
    if (std::exchange(self.peer_asleep, false) || rules_.wakes_unasked) {
      out.Progress({Kind::kWake});
    }
  }

  bool SendData(State& state, int end) const {
    End& self = state.ends[end];
    if (!self.agreed || self.sends_eagerly || self.to_send == 0 ||
        self.seen_credits == self.sent) {
      return false;
    }
    --self.to_send;
    ++self.sent;
    return true;
  }

  bool ReceiveData(State& state, int end) const {
    End& self = state.ends[end];
    if (self.arrived == state.ends[1 - end].sent) {
      return false;
    }
    --self.to_arrive;
    ++self.arrived;
    return true;
  }

  bool Sleep(State& state, int end) const {
    End& self = state.ends[end];
    if (!self.agreed || self.sends_eagerly || self.to_send == 0 ||
        self.seen_credits > self.sent || rules_.never_sleeps ||
        (self.asleep && !rules_.sleeps_unanswered)) {
      return false;
    }
    self.asleep = true;
    state.ends[1 - end].inbox.Progress({Kind::kSleep, kOld, self.seen_credits});
    return true;
  }

  bool LandCredit(State& state, int end) const {
    End& self = state.ends[end];
    const auto credit = std::find_if(
        self.inbox.begin(), self.inbox.end(),
        [](const Message& message) { return message.kind == Kind::kCredit; });
    if (credit == self.inbox.end()) {
      return false;
    }
    const auto index = static_cast<int>(credit - self.inbox.begin());
    self.seen_credits =
        std::max(self.seen_credits, self.inbox.Take(index).credits);
    return true;
  }

  bool TakeEarly(State& state, int end) const {
    End& self = state.ends[end];
    bool happened = false;
    while (self.early.size > 0 && self.early.items[0].call <= self.call) {
      const Message message = self.early.Take(0);
      const bool now = message.call == self.call && self.running;
      happened = true;
      if (now) {
        self.agreed = true;
        self.seen_credits = std::max(self.seen_credits, message.credits);
      }
      if (now && message.kind == Kind::kCallWithPayload) {
        self.takes_eager = false;
        self.eager = true;
      }
    }
    return happened;
  }

  bool Look(State& state, int end) const {
    End& self = state.ends[end];
    if (self.inbox.size == 0 || self.inbox.items[0].kind == Kind::kCredit) {
      return false;
    }
    TakeEarly(state, end);
    const Message message = self.inbox.Take(0);
    if (message.kind == Kind::kWake) {
      self.asleep = false;
    } else if (message.kind == Kind::kSleep) {
      self.peer_asleep = true;
      if (self.credits_told != message.credits) {
        TellCredits(state, end);
      }
    } else {
      self.early.Progress(message);
      TakeEarly(state, end);
    }
    return true;
  }

  bool Deliver(State& state, int end) const {
    End& self = state.ends[end];
    if (!self.expected || !self.eager) {
      return false;
    }
    self.expected = self.eager = false;
    return true;
  }

  static State Relative(State state) {
    const std::int8_t call = std::min(state.ends[0].call, state.ends[1].call);
    if (call > 0) {
      std::shift_left(state.next_calls.begin(), state.next_calls.end(), call);
      std::fill(state.next_calls.end() - call, state.next_calls.end(), 0);
    }
    for (const int end : {0, 1}) {
      End& self = state.ends[end];
      End& peer = state.ends[1 - end];
      const std::int8_t arrived = peer.arrived;
      Subtract(call, self.call);
      for (std::int8_t* number : {&self.sent, &self.seen_credits, &peer.arrived,
                                  &peer.credits, &peer.credits_told}) {
        Subtract(arrived, *number);
      }
      for (Message& message : self.early) {
        Subtract(call, message.call);
        Subtract(arrived, message.credits);
      }
      for (Message& message : self.inbox) {
        Subtract(call, message.call);
        if (message.kind != Kind::kSleep) {
          Subtract(arrived, message.credits);
        }
      }
      for (Message& message : peer.inbox) {
        if (message.kind == Kind::kSleep) {
          Subtract(arrived, message.credits);
        }
      }
    }
    return state;
  }

  static void Subtract(std::int8_t base, std::int8_t& number) {
    number = std::max(static_cast<std::int8_t>(number - base), kOld);
  }

  const Rules rules_;
  const std::vector<Call> calls_;
};

// Receives that messages to an end take up: until they are posted anew.
int ReceivesTaken(const End& end) {
  const auto credits =
      std::count_if(end.inbox.items.begin(), end.inbox.items.end(),
                    [](const Message& message) {
                      return message.kind == Message::Kind::kCredit;
                    });
  return static_cast<int>(end.inbox.size - credits + end.early.size +
                          (end.eager ? 1 : 0));
}

// The most of all states that may be reached; what is beyond kControlReceives
// is not counted any further.
struct Most {
  int receives = 0;
  int calls_ahead = 0;
  std::string how;  // to the most receives, one step a line
};

class Exploration {
 public:
  explicit Exploration(const Rules& rules) : steps_(rules) {}

  Most Run() {
    Visit({}, {});
    while (!to_visit_.empty() && most_.receives <= kControlReceives) {
      const State* const before = to_visit_.front();
      to_visit_.pop();
      steps_.Next(*before, [&](const char* step, int end, const State& state) {
        Visit(state, {before, step, end});
      });
    }
    return most_;
  }

 private:
  struct Origin {
    const State* before = nullptr;
    const char* step = "";
    int end = 0;
  };

  void Visit(const State& state, const Origin& origin) {
    const auto [place, is_new] = origins_.emplace(state, origin);
    if (!is_new) {
      return;
    }
    to_visit_.push(&place->first);
    const auto& [a, b] = state.ends;
    most_.calls_ahead = std::max(most_.calls_ahead, std::abs(a.call - b.call));
    const int receives = std::max(ReceivesTaken(a), ReceivesTaken(b));
    if (receives > most_.receives) {
      most_.receives = receives;
      most_.how = HowTo(origin);
    }
  }

  std::string HowTo(Origin origin) const {
    std::string how;
    for (; origin.before != nullptr; origin = origins_.at(*origin.before)) {
      how = std::to_string(origin.end) + " " + origin.step + "\n" + how;
    }
    return how;
  }

  const Steps steps_;
  std::unordered_map<State, Origin, HashOfState> origins_;
  std::queue<const State*> to_visit_;
  Most most_;
};

Most Explore(const Rules& rules) { return Exploration(rules).Run(); }

TEST(ControlReceivesTest, AreAsManyAsTheWorstInterleavingTakes) {
  const Most most = Explore({});
  EXPECT_EQ(most.receives, kControlReceives) << most.how;
  EXPECT_EQ(most.calls_ahead, 1);
}

TEST(ControlReceivesTest, AreTwoFewerWhereFirstMessagesTakeTheirPayloadsAlong) {
  const Most most = Explore({.never_sends_alone = true});
  EXPECT_EQ(most.receives, kControlReceives - 2) << most.how;
}

TEST(ControlReceivesTest, AreTwoFewerWhereNobodySleeps) {
  const Most most = Explore({.never_sleeps = true});
  EXPECT_EQ(most.receives, kControlReceives - 2) << most.how;
}

// --- The model can fail ------------------------------------------------------

TEST(ControlReceivesTest, AreTooFewWhereASleepDoesNotWaitForTheAnswer) {
  EXPECT_GT(Explore({.sleeps_unanswered = true}).receives, kControlReceives);
}

TEST(ControlReceivesTest, AreTooFewWhereAWakeIsNoAnswer) {
  EXPECT_GT(Explore({.wakes_unasked = true}).receives, kControlReceives);
}

TEST(ControlReceivesTest, AreTooFewWhereACallEndsWithoutThePeersFirstMessage) {
  const Most most = Explore({.ends_without_first = true});
  EXPECT_GT(most.receives, kControlReceives);
  EXPECT_GT(most.calls_ahead, 1);
}

TEST(ControlReceivesTest, AreTooFewWhereACallEndsWithoutThePeersEagerMessage) {
  EXPECT_GT(Explore({.ends_without_eager = true}).receives, kControlReceives);
}

}  // namespace
}  // namespace ringpipe
