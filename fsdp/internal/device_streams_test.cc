// On a device that exists in this test only: it does nothing, and notes which stream waits for which.

#include "lockstep/fsdp/internal/device_streams.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::fsdp::internal {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
const Device kDevice(kType, 0);

Stream StreamOf(int64_t id) { return Stream(Stream::UNSAFE, kDevice, id); }

struct Noted {
  int64_t current = 0;              // stream
  std::vector<std::string> events;  // "2 waits for 1"
};
Noted noted;

// An event is the stream on which it was recorded.
struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  Device exchangeDevice(Device) const override { return kDevice; }
  Device getDevice() const override { return kDevice; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return StreamOf(noted.current); }
  Stream getStreamFromGlobalPool(Device, bool) const override { return StreamOf(9); }
  Stream exchangeStream(Stream stream) const override { return StreamOf(std::exchange(noted.current, stream.id())); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const Stream& stream, DeviceIndex, c10::EventFlag) const override {
    *event = new int64_t(stream.id());
  }
  void block(void* event, const Stream& stream) const override {
    noted.events.push_back(absl::StrCat(stream.id(), " waits for ", *static_cast<int64_t*>(event)));
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override { delete static_cast<int64_t*>(event); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl);

class DeviceStreams : public ::testing::Test {
 protected:
  void SetUp() override { noted = {}; }
  static void On(int64_t stream) { noted.current = stream; }
};

TEST_F(DeviceStreams, OneStreamWaitsForNothing) {
  StreamUses uses;
  for (int i = 0; i < 3; ++i) uses.Add(kDevice);
  uses.Await();
  AwaitStream(CurrentStream(kDevice));
  EXPECT_THAT(noted.events, IsEmpty());
}

TEST_F(DeviceStreams, AnotherStreamWaitsOnceForTheOneThatWrote) {
  StreamUses uses;
  On(1);
  uses.Add(kDevice);
  On(2);
  uses.Add(kDevice);
  uses.Add(kDevice);
  On(3);
  uses.Add(kDevice);
  EXPECT_THAT(noted.events, ElementsAre("2 waits for 1", "3 waits for 1"));
}

TEST_F(DeviceStreams, MemoryIsFreeAfterAllItsUses) {
  StreamUses uses;
  for (const int64_t stream : {1, 2, 3}) {
    On(stream);
    uses.Add(kDevice);
  }
  noted.events.clear();
  On(2);
  uses.Await();
  EXPECT_THAT(noted.events, ElementsAre("2 waits for 1", "2 waits for 3"));
  uses.Add(kDevice);
  uses.Await();
  EXPECT_EQ(noted.events.size(), 2) << "they are forgotten";
}

TEST_F(DeviceStreams, ASideStreamWaitsForTheOneThatComputesAndIsCurrentWhileEntered) {
  const SideStream side(kDevice);
  On(4);
  {
    const auto guard = side.Enter();
    EXPECT_EQ(noted.current, 9);
    EXPECT_THAT(noted.events, ElementsAre("9 waits for 4"));
    const auto again = side.Enter();
    EXPECT_EQ(noted.events.size(), 1);
  }
  EXPECT_EQ(noted.current, 4);
  side.Await();
  EXPECT_THAT(noted.events, ElementsAre("9 waits for 4", "4 waits for 9"));
}

TEST_F(DeviceStreams, ACpuHasNoStreams) {
  StreamUses uses;
  uses.Add(c10::kCPU);
  const SideStream side(c10::kCPU);
  {
    const auto guard = side.Enter();
    uses.Await();
  }
  side.Await();
  EXPECT_EQ(CurrentStream(c10::kCPU), std::nullopt);
  EXPECT_THAT(noted.events, IsEmpty());
}

}  // namespace
}  // namespace lockstep::fsdp::internal
