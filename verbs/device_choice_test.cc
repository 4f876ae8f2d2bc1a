#include "verbs/device_choice.h"

#include <gtest/gtest.h>

namespace ringpipe::verbs {
namespace {

constexpr char kAbsence[] = "libibverbs.so.1: cannot open";

Result<DeviceChoice> Choose(const std::string& text,
                            const std::vector<PortView>& ports) {
  const auto request = DeviceRequest::Parse(text);
  EXPECT_TRUE(request.ok());
  return ChooseDevice(request.value(), ports, kAbsence);
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(DeviceRequestTest, EveryFormIsTakenApart) {
  const auto empty = DeviceRequest::Parse("");
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->kind, DeviceRequest::Kind::kAutomatic);
  const auto soft = DeviceRequest::Parse("soft");
  ASSERT_TRUE(soft.ok());
  EXPECT_EQ(soft->kind, DeviceRequest::Kind::kSoftware);
  const auto named = DeviceRequest::Parse("mlx5_0");
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->kind, DeviceRequest::Kind::kNamed);
  EXPECT_EQ(named->name, "mlx5_0");
  EXPECT_EQ(named->port, 0);
  const auto port = DeviceRequest::Parse("mlx5_0:2");
  ASSERT_TRUE(port.ok());
  EXPECT_EQ(port->name, "mlx5_0");
  EXPECT_EQ(port->port, 2);
  const auto excluded = DeviceRequest::Parse("^mlx5_0");
  ASSERT_TRUE(excluded.ok());
  EXPECT_EQ(excluded->kind, DeviceRequest::Kind::kExcluded);
  EXPECT_EQ(excluded->name, "mlx5_0");
}

TEST(DeviceRequestTest, AnythingElseIsRefusedWithTheFormsThatAreAllowed) {
  for (const char* text : {"^", ":1", "mlx5_0:", "mlx5_0:0", "mlx5_0:256",
                           "mlx5_0:1x", "mlx5_0:-1", "^mlx5_0:1",
                           "mlx5_0,mlx5_1", "a b", "soft:1", "../soft"}) {
    const auto request = DeviceRequest::Parse(text);
    ASSERT_FALSE(request.ok()) << text;
    EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(Has(request.status().message(), "mlx5_0:1")) << text;
  }
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

TEST(DeviceChoiceTest, TheFirstActivePortIsChosen) {
  const auto choice = Choose("", {{"mlx5_0", 1, PortState::kDown, Status()},
                                  {"mlx5_0", 2, PortState::kActive, Status()},
                                  {"mlx5_1", 1, PortState::kActive, Status()}});
  ASSERT_TRUE(choice.ok());
  EXPECT_FALSE(choice->software);
  EXPECT_EQ(choice->name, "mlx5_0");
  EXPECT_EQ(choice->port, 2);
}

TEST(DeviceChoiceTest, AnActivePortThatCannotBeUsedIsAnErrorNotAFallback) {
  const auto choice =
      Choose("", {{"mlx5_0", 1, PortState::kActive,
                   Status(StatusCode::kPermissionDenied, "mlx5_0 is locked")}});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(Has(choice.status().message(), "mlx5_0 is locked"));
  EXPECT_TRUE(Has(choice.status().message(), "RINGPIPE_DEVICE=^mlx5_0"));
}

TEST(DeviceChoiceTest, ALinkWithoutASubnetManagerIsAnErrorNotAFallback) {
  const auto choice =
      Choose("", {{"mlx5_0", 1, PortState::kNotReady, Status()}});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(choice.status().message(), "subnet manager"));
}

TEST(DeviceChoiceTest, APortWithAnObstacleIsPassedOverForOneWithout) {
  const auto choice = Choose("", {{"siw0", 1, PortState::kActive,
                                   Status(StatusCode::kUnavailable, "iWARP")},
                                  {"mlx5_1", 1, PortState::kActive, Status()}});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->name, "mlx5_1");
}

TEST(DeviceChoiceTest, ANamedDeviceThatIsMissingIsAnErrorThatListsWhatThereIs) {
  const auto choice =
      Choose("mlx5_7", {{"mlx5_0", 1, PortState::kActive, Status()}});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(choice.status().message(), "mlx5_7"));
  EXPECT_TRUE(Has(choice.status().message(), "mlx5_0 port 1 is active"));
  EXPECT_TRUE(Has(choice.status().message(), "'soft'"));
}

TEST(DeviceChoiceTest, ANamedDeviceThatIsDownIsAnErrorNotAFallback) {
  const auto choice =
      Choose("mlx5_0", {{"mlx5_0", 1, PortState::kDown, Status()},
                        {"mlx5_1", 1, PortState::kActive, Status()}});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(choice.status().message(), "mlx5_0 port 1 is down"));
  EXPECT_FALSE(Has(choice.status().message(), "no such device"));
}

TEST(DeviceChoiceTest, ANamedPortIsTheOneThatIsUsed) {
  const std::vector<PortView> ports = {
      {"mlx5_0", 1, PortState::kActive, Status()},
      {"mlx5_0", 2, PortState::kActive, Status()}};
  const auto choice = Choose("mlx5_0:2", ports);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->port, 2);
  EXPECT_FALSE(Choose("mlx5_0:3", ports).ok());
}

TEST(DeviceChoiceTest, AnExcludedDeviceIsNeverChosenAndNoObstacle) {
  const PortView broken = {"mlx5_0", 1, PortState::kActive,
                           Status(StatusCode::kPermissionDenied, "locked")};
  const auto other =
      Choose("^mlx5_0", {broken, {"mlx5_1", 1, PortState::kActive, Status()}});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->name, "mlx5_1");
  const auto none = Choose("^mlx5_0", {broken});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->software);
  EXPECT_TRUE(Has(none->reason, "excluded mlx5_0")) << none->reason;
}

TEST(DeviceChoiceTest, ExcludingTheSoftwareDeviceMakesItsNeedAnError) {
  const auto choice = Choose("^soft", {});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kUnavailable);
  const auto real = Choose("^soft", {{"mlx5_0", 1, PortState::kActive, {}}});
  ASSERT_TRUE(real.ok());
  EXPECT_EQ(real->name, "mlx5_0");
}

TEST(DeviceChoiceTest, AskingForTheSoftwareDeviceIgnoresActivePorts) {
  const auto choice = Choose("soft", {{"mlx5_0", 1, PortState::kActive, {}}});
  ASSERT_TRUE(choice.ok());
  EXPECT_TRUE(choice->software);
}

}  // namespace
}  // namespace ringpipe::verbs
