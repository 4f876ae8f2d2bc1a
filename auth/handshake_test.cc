#include "auth/handshake.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace ringpipe {
namespace {

using Role = Handshake::Role;

Handshake::Options JobOptions(const std::string& secret = "secret",
                              const std::string& job_id = "job") {
  return {secret, "test", job_id, 7};
}

// Both sides and the messages that passed; `status` is the first error.
struct Outcome {
  Handshake connector;
  Handshake acceptor;
  std::vector<std::string> messages;
  Status status;
};

Outcome Shake(const Handshake::Options& connector,
              const Handshake::Options& acceptor) {
  Outcome outcome{Handshake::Create(Role::kConnector, connector).value(),
                  Handshake::Create(Role::kAcceptor, acceptor).value(),
                  {},
                  {}};
  outcome.messages.push_back(outcome.connector.Start());
  for (bool to_acceptor = true;; to_acceptor = !to_acceptor) {
    Result<std::string> answer =
        (to_acceptor ? outcome.acceptor : outcome.connector)
            .Receive(outcome.messages.back());
    outcome.status = answer.status();
    if (!answer.ok() || answer->empty()) {
      return outcome;
    }
    outcome.messages.push_back(answer.value());
  }
}

TEST(HandshakeTest, SameSecretAndJobAgreeOnKeysAndVersions) {
  Handshake::Options newer = JobOptions();
  newer.version = 9;
  Outcome outcome = Shake(JobOptions(), newer);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  ASSERT_TRUE(outcome.connector.done());
  ASSERT_TRUE(outcome.acceptor.done());
  EXPECT_EQ(outcome.connector.peer_version(), 9u);
  EXPECT_EQ(outcome.acceptor.peer_version(), 7u);
  FrameSealer sealer = outcome.connector.Sealer().value();
  FrameOpener opener = outcome.acceptor.Opener().value();
  const Seal seal = sealer.SealPayload("hi").value();
  EXPECT_TRUE(opener.Open("hi" + std::string(AsBytes(seal.mac))).ok());
}

TEST(HandshakeTest, DirectionsAndSessionsHaveKeysOfTheirOwn) {
  const Outcome one = Shake(JobOptions(), JobOptions());
  const Outcome two = Shake(JobOptions(), JobOptions());
  const auto mac_of = [](Result<FrameSealer> sealer) {
    return sealer->SealPayload("x")->mac;
  };
  EXPECT_NE(mac_of(one.connector.Sealer()), mac_of(one.acceptor.Sealer()));
  EXPECT_NE(mac_of(one.connector.Sealer()), mac_of(two.connector.Sealer()));
}

TEST(HandshakeTest, EmptySecretsMeet) {
  EXPECT_TRUE(Shake(JobOptions(""), JobOptions("")).status.ok());
}

TEST(HandshakeTest, AnotherSecretIsRefusedBeforeTheAcceptorProvesAnything) {
  for (const auto& [left, right] :
       {std::pair("one", "two"), {"one", ""}, {"", "two"}}) {
    const Outcome outcome = Shake(JobOptions(left), JobOptions(right));
    EXPECT_EQ(outcome.status.code(), StatusCode::kPermissionDenied);
    EXPECT_EQ(outcome.messages.size(), 3u);
    EXPECT_FALSE(outcome.acceptor.done());
    EXPECT_FALSE(outcome.connector.done());
  }
}

TEST(HandshakeTest, AnotherJobOrPurposeIsRefusedAtTheFirstMessage) {
  const Outcome job = Shake(JobOptions("s", "a"), JobOptions("s", "b"));
  EXPECT_EQ(job.status.code(), StatusCode::kMismatch);
  EXPECT_EQ(job.messages.size(), 1u);
  Handshake::Options other = JobOptions();
  other.purpose = "else";
  EXPECT_EQ(Shake(other, JobOptions()).status.code(), StatusCode::kMismatch);
}

TEST(HandshakeTest, LongestNamesFit) {
  Handshake::Options options = JobOptions("s", std::string(1000, 'j'));
  options.purpose = std::string(1000, 'p');
  const Outcome outcome = Shake(options, options);
  EXPECT_TRUE(outcome.status.ok());
  for (const std::string& message : outcome.messages) {
    EXPECT_LE(message.size(), Handshake::kMostMessageBytes);
  }
}

TEST(HandshakeTest, ReflectedProofIsRefused) {
  Handshake connector =
      Handshake::Create(Role::kConnector, JobOptions()).value();
  Handshake acceptor = Handshake::Create(Role::kAcceptor, JobOptions()).value();
  const std::string challenge = acceptor.Receive(connector.Start()).value();
  const std::string proof = connector.Receive(challenge).value();
  EXPECT_EQ(connector.Receive(proof).status().code(),
            StatusCode::kPermissionDenied);
}

TEST(HandshakeTest, RecordedSessionCannotBeReplayed) {
  const Outcome recorded = Shake(JobOptions(), JobOptions());
  Handshake acceptor = Handshake::Create(Role::kAcceptor, JobOptions()).value();
  EXPECT_TRUE(acceptor.Receive(recorded.messages[0]).ok());
  EXPECT_EQ(acceptor.Receive(recorded.messages[2]).status().code(),
            StatusCode::kPermissionDenied);
}

TEST(HandshakeTest, EveryChangedBitOfEveryMessageIsRefusedBySomebody) {
  const Nonce nonce = {5};
  for (int victim = 0; victim < 4; ++victim) {
    const size_t bytes =
        Shake(JobOptions(), JobOptions()).messages[victim].size();
    for (size_t at = 0; at < bytes; ++at) {
      Handshake connector(Role::kConnector, JobOptions(), nonce);
      Handshake acceptor(Role::kAcceptor, JobOptions(), nonce);
      std::string message = connector.Start();
      bool refused = false;
      for (int i = 0; i < 4 && !refused; ++i) {
        if (i == victim) {
          message[at] ^= 1;
        }
        Result<std::string> answer =
            (i % 2 == 0 ? acceptor : connector).Receive(message);
        refused = !answer.ok();
        message = refused ? "" : answer.value();
      }
      EXPECT_TRUE(refused) << "message " << victim << ", byte " << at;
    }
  }
}

TEST(HandshakeTest, GarbageIsRefusedAndNothingIsTakenAfterAnError) {
  std::mt19937 random(1);
  for (int run = 0; run < 5000; ++run) {
    const Role role = run % 2 == 0 ? Role::kAcceptor : Role::kConnector;
    Handshake handshake(role, JobOptions(), Nonce{});
    std::string message = handshake.Start();
    if (role == Role::kAcceptor && run % 4 == 0) {
      // A true hello, cut or changed.
      message = Handshake(Role::kConnector, JobOptions(), Nonce{}).Start();
      message.resize(random() % message.size());
    } else {
      message.assign(random() % 200, static_cast<char>(random()));
    }
    EXPECT_EQ(handshake.Receive(message).status().code(),
              StatusCode::kInvalidArgument);
    const std::string hello =
        Handshake(Role::kConnector, JobOptions(), Nonce{}).Start();
    EXPECT_FALSE(handshake.Receive(hello).ok());
  }
}

}  // namespace
}  // namespace ringpipe
