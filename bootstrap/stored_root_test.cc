#include "bootstrap/stored_root.h"

#include <condition_variable>
#include <map>
#include <mutex>

#include "base/while_waiting.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/test_job.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;

// In the memory of the test.
class TestStore {
 public:
  Store Functions() {
    return {[this](const std::string& key, const std::string& value) {
              const std::lock_guard<std::mutex> lock(mutex_);
              values_[key] = value;
              changed_.notify_all();
              return put_result;
            },
            [this](const std::string& key,
                   milliseconds timeout) -> Result<std::optional<std::string>> {
              std::unique_lock<std::mutex> lock(mutex_);
              RINGPIPE_RETURN_IF_ERROR(get_result);
              ++gets;
              changed_.wait_for(lock, timeout,
                                [&] { return values_.contains(key); });
              return values_.contains(key) ? std::optional(values_[key])
                                           : std::nullopt;
            }};
  }
  std::map<std::string, std::string> values() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return values_;
  }

  Status put_result, get_result;
  int gets = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

std::vector<Bootstrap::Options> JobWith(const Store& store,
                                        const std::string& root, int size) {
  std::vector<Bootstrap::Options> all;
  for (int rank = 0; rank < size; ++rank) {
    all.push_back(MakeOptions(root, rank, size));
    all.back().store = &store;
  }
  return all;
}

// Joins, and gathers once.
void ExpectTheyMeet(const std::vector<Bootstrap::Options>& all) {
  auto ranks = JoinAll(all);
  OnAll(&ranks, [&](Bootstrap* rank) {
    const auto gathered = rank->AllGather(std::to_string(rank->rank()), Soon());
    ASSERT_TRUE(gathered.ok()) << gathered.status().ToString();
    EXPECT_EQ(gathered->back(), std::to_string(all.size() - 1));
  });
}

TEST(StoreTest, RanksMeetByNothingElse) {
  TestStore place;
  const Store store = place.Functions();
  ExpectTheyMeet(JobWith(store, kAnyAddress, 3));
  const auto values = place.values();
  ASSERT_EQ(values.size(), 1U);
  EXPECT_EQ(values.begin()->first, "ringpipe/job");
  const auto root = StoredRoot::Decode(values.begin()->second);
  ASSERT_TRUE(root.ok()) << root.status().ToString();
  EXPECT_EQ(root->secret.size(), 64U);
  ASSERT_FALSE(root->addresses.empty());
  for (const std::string& address : root->addresses) {
    EXPECT_FALSE(address.ends_with(":0")) << address;
  }
}

TEST(StoreTest, RankZeroListensWhereItsRootSays) {
  for (const std::string root : {"127.0.0.1:0", "localhost:0", "unix:@"}) {
    TestStore place;
    const Store store = place.Functions();
    const bool is_unix = root.starts_with("unix");
    ExpectTheyMeet(JobWith(store, is_unix ? root + UniqueName() : root, 2));
    const auto stored = StoredRoot::Decode(place.values().begin()->second);
    ASSERT_TRUE(stored.ok());
    EXPECT_TRUE(stored->addresses[0].starts_with(is_unix ? root
                                                 : root == "localhost:0"
                                                     ? ""
                                                     : "127.0.0.1:"))
        << stored->addresses[0];
  }
}

TEST(StoreTest, OnlyInterfacesThatAreAdmittedAreTold) {
  TestStore place;
  const Store store = place.Functions();
  auto all = JobWith(store, kAnyAddress, 2);
  for (Bootstrap::Options& options : all) {
    options.interfaces = *NameFilter::Parse("=lo", NameFilter::Ports::kNone);
  }
  ExpectTheyMeet(all);
  const auto root = StoredRoot::Decode(place.values().begin()->second);
  ASSERT_TRUE(root.ok());
  for (const std::string& address : root->addresses) {
    EXPECT_TRUE(address.starts_with("127.") || address.starts_with("[::1]"))
        << address;
  }
}

TEST(StoreTest, ASecretThatIsGivenStaysOutOfIt) {
  TestStore place;
  const Store store = place.Functions();
  auto all = JobWith(store, kAnyAddress, 2);
  for (Bootstrap::Options& options : all) {
    options.secret = "a given secret";
  }
  ExpectTheyMeet(all);
  const std::string value = place.values().begin()->second;
  EXPECT_EQ(value.find("a given secret"), std::string::npos);
  EXPECT_EQ(StoredRoot::Decode(value)->secret, "");
}

TEST(StoreTest, ASecretThatOnlyOneRankIsGivenIsAnError) {
  for (const int rank : {0, 1}) {
    TestStore place;
    const Store store = place.Functions();
    auto all = JobWith(store, kAnyAddress, 2);
    for (Bootstrap::Options& options : all) {
      options.deadline = Deadline::After(2 * kTimeToConnect);
    }
    all[rank].secret = "its own";
    const auto ranks = JoinAll(all);
    ExpectSays(ranks[1].status(),
               rank == 0 ? StatusCode::kInvalidArgument : StatusCode::kMismatch,
               {"rank 1", "RINGPIPE_SECRET", "give all ranks the same one"});
    EXPECT_FALSE(ranks[0].ok());
    if (rank == 1) {
      ExpectSays(ranks[0].status(), StatusCode::kMismatch, {"rank 1"});
    }
  }
}

TEST(StoreTest, ItsErrorsAreThoseOfTheJoin) {
  TestStore place;
  const Store store = place.Functions();
  auto all = JobWith(store, kAnyAddress, 2);
  place.put_result = {StatusCode::kUnavailable, "it is full"};
  ExpectSays(Bootstrap::Join(all[0]).status(), StatusCode::kUnavailable,
             {"rank 0", "it is full"});
  place.get_result = {StatusCode::kUnavailable, "it is away"};
  ExpectSays(Bootstrap::Join(all[1]).status(), StatusCode::kUnavailable,
             {"rank 1", "it is away"});
  const Store none;
  all[1].store = &none;
  ExpectSays(Bootstrap::Join(all[1]).status(), StatusCode::kInvalidArgument,
             {"no function get"});
}

TEST(StoreTest, WhatIsNoRootIsSaidToBeNone) {
  TestStore place;
  const Store store = place.Functions();
  ASSERT_TRUE(store.put("ringpipe/job", "garbage").ok());
  ExpectSays(Bootstrap::Join(JobWith(store, kAnyAddress, 2)[1]).status(),
             StatusCode::kMismatch, {"what the store has for this job"});
  const std::string whole = StoredRoot{{"10.0.0.1:1"}, "secret"}.Encode();
  EXPECT_TRUE(StoredRoot::Decode(whole).ok());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(StoredRoot::Decode(whole.substr(0, bytes)).ok()) << bytes;
  }
  EXPECT_FALSE(StoredRoot::Decode(whole + "x").ok());
  EXPECT_FALSE(StoredRoot::Decode(StoredRoot().Encode()).ok());
}

TEST(StoreTest, ARankWaitsForRankZeroUntilItsDeadline) {
  TestStore place;
  const Store store = place.Functions();
  auto options = JobWith(store, kAnyAddress, 2)[1];
  options.deadline = Deadline::After(milliseconds(30));
  ExpectSays(Bootstrap::Join(options).status(), StatusCode::kTimeout,
             {"rank 1", "rank 0 has put nothing", "ringpipe/job"});
}

TEST(StoreTest, TheFunctionOfTheCallerIsCalledBetweenTwoGets) {
  TestStore place;
  const Store store = place.Functions();
  int calls = 0;
  const WhileWaiting hook = {[&] { return ++calls == 3; }, milliseconds(1)};
  const BlockingCall call(hook);
  ExpectSays(Bootstrap::Join(JobWith(store, kAnyAddress, 2)[1]).status(),
             StatusCode::kAborted, {"rank 1's function while_waiting"});
  EXPECT_EQ(calls, 3);
  EXPECT_GE(place.gets, 3);
}

TEST(StoreTest, ARankThatCannotTakePartTellsTheOthers) {
  for (const int rank : {0, 1}) {
    TestStore place;
    const Store store = place.Functions();
    auto all = JobWith(store, kAnyAddress, 2);
    all[rank].obstacle = {StatusCode::kResourceExhausted, "no descriptors"};
    const auto ranks = JoinAll(all);
    for (const auto& joined : ranks) {
      ExpectSays(joined.status(), StatusCode::kResourceExhausted,
                 {"no descriptors"});
    }
  }
}

TEST(StoreTest, AJobOfOneRankNeedsNone) {
  TestStore place;
  const Store store = place.Functions();
  ExpectTheyMeet(JobWith(store, kAnyAddress, 1));
  EXPECT_TRUE(place.values().empty());
}

}  // namespace
}  // namespace ringpipe
