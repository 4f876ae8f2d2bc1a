#include "verbs/device_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ringpipe::verbs {
namespace {

constexpr char kAbsence[] = "libibverbs.so.1: cannot open";

Result<DeviceChoice> Choose(const std::string& text,
                            const std::vector<PortView>& ports) {
  const auto request = DeviceRequest::Parse(text);
  EXPECT_TRUE(request.ok());
  return ChooseDevices(request.value(), ports, kAbsence);
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// "mlx5_0:1 mlx5_1:2"
std::string Names(const std::vector<PortReason>& ports) {
  std::string names;
  for (const PortReason& port : ports) {
    names += (names.empty() ? "" : " ") + port.device + ":" +
             std::to_string(port.port);
  }
  return names;
}

PortView Active(const std::string& device, int port,
                Transport transport = Transport::kInfiniBand,
                double gigabits_per_second = 100) {
  return {device,   port,      PortState::kActive,
          Status(), transport, gigabits_per_second};
}

PortView Down(const std::string& device) {
  return {device, 1, PortState::kDown, Status()};
}

PortView Locked(const std::string& device) {
  return {device, 1, PortState::kActive,
          Status(StatusCode::kPermissionDenied, device + " is locked")};
}

TEST(DeviceRequestTest, EveryFormIsTakenApart) {
  using Kind = DeviceRequest::Kind;
  const auto kind = [](const std::string& text) {
    const auto request = DeviceRequest::Parse(text);
    EXPECT_TRUE(request.ok()) << text;
    return request->kind;
  };
  EXPECT_EQ(kind(""), Kind::kAutomatic);
  EXPECT_EQ(kind("soft"), Kind::kSoftware);
  EXPECT_EQ(kind("mlx5_0"), Kind::kNamed);
  EXPECT_EQ(kind("=mlx5_0,mlx5_1:2"), Kind::kNamed);
  EXPECT_EQ(kind("^mlx5_0"), Kind::kExcluded);
  EXPECT_EQ(kind("^=mlx5_0,soft"), Kind::kExcluded);
  EXPECT_TRUE(DeviceRequest::Parse("^=mlx5_0,soft")->software_excluded);
  EXPECT_FALSE(DeviceRequest::Parse("^mlx5_0")->software_excluded);
}

TEST(DeviceRequestTest, AnythingElseIsRefusedWithTheFormsThatAreAllowed) {
  for (const char* text :
       {"^", ":1", "mlx5_0:", "mlx5_0:0", "mlx5_0:256", "mlx5_0:1x",
        "mlx5_0:-1", "a b", "soft:1", "soft,mlx5_0", "../soft"}) {
    const auto request = DeviceRequest::Parse(text);
    ASSERT_FALSE(request.ok()) << text;
    EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(Has(request.status().message(), "mlx5_0:1")) << text;
  }
}

TEST(DeviceRequestTest, InNcclsVariableSoftIsANameLikeAnyOther) {
  const auto request = DeviceRequest::Parse("soft", "NCCL_IB_HCA");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->kind, DeviceRequest::Kind::kNamed);
  const auto bad = DeviceRequest::Parse("^", "NCCL_IB_HCA");
  ASSERT_FALSE(bad.ok());
  EXPECT_TRUE(Has(bad.status().message(), "NCCL_IB_HCA='^'"));
}

TEST(DeviceChoiceTest, WithoutADeviceTheSoftwareDeviceIsChosenAndSaysWhy) {
  const auto choice = Choose("", {});
  ASSERT_TRUE(choice.ok());
  EXPECT_TRUE(choice->software);
  EXPECT_TRUE(Has(choice->reason, kAbsence)) << choice->reason;
}

TEST(DeviceChoiceTest, OnlyPortsThatAreDownMeanTheSoftwareDeviceAndAreNamed) {
  const auto choice = Choose("", {{"mlx5_0", 1, PortState::kDown, Status()},
                                  {"mlx5_1", 1, PortState::kDown, Status()}});
  ASSERT_TRUE(choice.ok());
  EXPECT_TRUE(choice->software);
  EXPECT_TRUE(Has(choice->reason, "mlx5_0 port 1 is down")) << choice->reason;
  EXPECT_TRUE(Has(choice->reason, "mlx5_1 port 1 is down")) << choice->reason;
}

TEST(DeviceChoiceTest, AllActivePortsAreChosenTheFastestFirst) {
  const auto choice =
      Choose("", {Down("mlx5_0"), Active("mlx5_0", 2),
                  Active("mlx5_1", 1, Transport::kInfiniBand, 400),
                  Active("mlx5_2", 1)});
  ASSERT_TRUE(choice.ok());
  EXPECT_FALSE(choice->software);
  EXPECT_EQ(Names(choice->ports), "mlx5_1:1 mlx5_0:2 mlx5_2:1");
  EXPECT_EQ(choice->reason, "mlx5_1 port 1 is active (InfiniBand, 400 Gbit/s)");
  EXPECT_EQ(choice->ports[1].reason,
            "mlx5_0 port 2 is active (InfiniBand, 100 Gbit/s), of the same "
            "transport as mlx5_1 port 1");
  EXPECT_EQ(choice->LeftOutText(), "mlx5_0 port 1: is down");
}

TEST(DeviceChoiceTest, TransportsAreNotMixedAndTheFastestPortDecides) {
  const auto choice =
      Choose("", {Active("mlx5_0", 1, Transport::kInfiniBand, 100),
                  Active("mlx5_1", 1, Transport::kRoce, 200),
                  Active("mlx5_2", 1, Transport::kRoce, 25),
                  Active("siw0", 1, Transport::kIwarp, 10)});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(Names(choice->ports), "mlx5_1:1 mlx5_2:1");
  EXPECT_EQ(Names(choice->left_out), "mlx5_0:1 siw0:1");
  EXPECT_TRUE(Has(choice->left_out[0].reason,
                  "is of InfiniBand, which is not mixed with the RoCE of "
                  "mlx5_1 port 1"))
      << choice->left_out[0].reason;
}

TEST(DeviceChoiceTest, AnActivePortThatCannotBeUsedIsAnErrorNotAFallback) {
  const auto choice = Choose("", {Locked("mlx5_0")});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(Has(choice.status().message(), "mlx5_0 is locked"));
  EXPECT_TRUE(Has(choice.status().message(), "RINGPIPE_DEVICE=^=mlx5_0"));
}

TEST(DeviceChoiceTest, ALinkWithoutASubnetManagerIsAnErrorNotAFallback) {
  const auto choice =
      Choose("", {{"mlx5_0", 1, PortState::kNotReady, Status()}});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(choice.status().message(), "subnet manager"));
}

TEST(DeviceChoiceTest, APortWithAnObstacleIsPassedOverForOneWithout) {
  const auto choice = Choose("", {Locked("mlx5_0"), Active("mlx5_1", 1)});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(Names(choice->ports), "mlx5_1:1");
  EXPECT_EQ(choice->LeftOutText(), "mlx5_0 port 1: mlx5_0 is locked");
}

TEST(DeviceChoiceTest, ANamedDeviceThatIsMissingIsAnErrorThatListsWhatThereIs) {
  const auto choice = Choose("mlx5_0,mlx5_7", {Active("mlx5_0", 1)});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kUnavailable);
  for (const char* part : {"RINGPIPE_DEVICE=mlx5_0,mlx5_7", "'mlx5_7'",
                           "mlx5_0 port 1 is active", "RINGPIPE_DEVICE=soft"}) {
    EXPECT_TRUE(Has(choice.status().message(), part))
        << choice.status().message();
  }
}

TEST(DeviceChoiceTest, WhereThereIsNoDeviceANamedOneIsAnErrorThatSaysWhy) {
  const auto choice = Choose("mlx5_0", {});
  ASSERT_FALSE(choice.ok());
  EXPECT_TRUE(Has(choice.status().message(), kAbsence));
}

TEST(DeviceChoiceTest, ANamedDeviceThatIsDownIsAnErrorNotAFallback) {
  for (const char* text : {"mlx5_0", "=mlx5_1,mlx5_0"}) {
    const auto choice = Choose(text, {Down("mlx5_0"), Active("mlx5_1", 1)});
    ASSERT_FALSE(choice.ok()) << text;
    EXPECT_EQ(choice.status().code(), StatusCode::kUnavailable);
    EXPECT_TRUE(Has(choice.status().message(), "mlx5_0 port 1 is down"));
    EXPECT_FALSE(Has(choice.status().message(), "no such device"));
  }
}

TEST(DeviceChoiceTest, ANamedDeviceThatCannotBeUsedHasTheObstaclesStatus) {
  const auto choice = Choose("mlx5_0", {Down("mlx5_00"), Locked("mlx5_0")});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(Has(choice.status().message(), "mlx5_0 is locked"));
}

TEST(DeviceChoiceTest, EveryActivePortThatANameMatchesIsChosen) {
  const std::vector<PortView> ports = {Active("mlx5_0", 1), Active("mlx5_0", 2),
                                       Active("mlx5_1", 1), Down("mlx5_10"),
                                       Active("rxe0", 1)};
  EXPECT_EQ(Names(Choose("mlx5_0:2", ports)->ports), "mlx5_0:2");
  EXPECT_EQ(Names(Choose("mlx5_0", ports)->ports), "mlx5_0:1 mlx5_0:2");
  EXPECT_EQ(Names(Choose("=mlx5_1,mlx5_0:1", ports)->ports),
            "mlx5_0:1 mlx5_1:1");
  const auto prefix = Choose("mlx5_1", ports);
  ASSERT_TRUE(prefix.ok());
  EXPECT_EQ(Names(prefix->ports), "mlx5_1:1");
  EXPECT_EQ(prefix->reason, "RINGPIPE_DEVICE=mlx5_1 asks for it");
  EXPECT_TRUE(Has(prefix->LeftOutText(), "mlx5_10 port 1: is down"));
  EXPECT_TRUE(Has(prefix->LeftOutText(),
                  "rxe0 port 1: "
                  "RINGPIPE_DEVICE=mlx5_1 does not"));
  EXPECT_FALSE(Choose("mlx5_0:3", ports).ok());
}

TEST(DeviceChoiceTest, NamesOfTwoTransportsAreAnErrorThatNamesBoth) {
  const auto choice =
      Choose("=mlx5_0,siw0",
             {Active("mlx5_0", 1), Active("siw0", 1, Transport::kIwarp, 10)});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Has(choice.status().message(), "mlx5_0 port 1 is of InfiniBand"));
  EXPECT_TRUE(Has(choice.status().message(), "siw0 port 1 of iWARP"));
}

TEST(DeviceChoiceTest, APrefixOfTwoTransportsMeansThoseOfTheFastestPort) {
  const auto choice =
      Choose("mlx5", {Active("mlx5_0", 1, Transport::kRoce, 25),
                      Active("mlx5_1", 1, Transport::kInfiniBand, 400)});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(Names(choice->ports), "mlx5_1:1");
  EXPECT_TRUE(Has(choice->LeftOutText(), "mlx5_0 port 1: is of RoCE"));
}

TEST(DeviceChoiceTest, MessagesNameTheVariableThatWasSet) {
  const auto request = DeviceRequest::Parse("mlx5_7", "NCCL_IB_HCA");
  ASSERT_TRUE(request.ok());
  const auto choice =
      ChooseDevices(request.value(), {Active("mlx5_0", 1)}, kAbsence);
  ASSERT_FALSE(choice.ok());
  EXPECT_TRUE(Has(choice.status().message(), "NCCL_IB_HCA=mlx5_7"));
}

TEST(DeviceChoiceTest, AnExcludedDeviceIsNeverChosenAndNoObstacle) {
  const auto other = Choose("^mlx5_0", {Locked("mlx5_0"), Active("mlx5_1", 1)});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(Names(other->ports), "mlx5_1:1");
  EXPECT_TRUE(Has(other->LeftOutText(), "RINGPIPE_DEVICE=^mlx5_0 excludes"));
  const auto none = Choose("^mlx5_0", {Locked("mlx5_0")});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->software);
  EXPECT_TRUE(Has(none->reason, "RINGPIPE_DEVICE=^mlx5_0 excludes"))
      << none->reason;
}

TEST(DeviceChoiceTest, APortAloneCanBeExcluded) {
  const auto choice =
      Choose("^=mlx5_0:1", {Active("mlx5_0", 1), Active("mlx5_0", 2)});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(Names(choice->ports), "mlx5_0:2");
}

TEST(DeviceChoiceTest, ExcludingTheSoftwareDeviceMakesItsNeedAnError) {
  const auto choice = Choose("^soft", {});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(choice.status().message(), kAbsence));
  const auto real = Choose("^soft", {Active("mlx5_0", 1)});
  ASSERT_TRUE(real.ok());
  EXPECT_EQ(Names(real->ports), "mlx5_0:1");
}

TEST(DeviceChoiceTest, AskingForTheSoftwareDeviceIgnoresActivePorts) {
  const auto choice = Choose("soft", {Active("mlx5_0", 1)});
  ASSERT_TRUE(choice.ok());
  EXPECT_TRUE(choice->software);
  EXPECT_TRUE(Has(choice->LeftOutText(), "asks for the software device"));
}

}  // namespace
}  // namespace ringpipe::verbs
