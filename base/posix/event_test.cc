#include "lockstep/base/posix/event.h"

#include <fcntl.h>
#include <poll.h>

#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing/few_descriptors.h"

namespace lockstep {
namespace {

using ::testing::StartsWith;

TEST(Event, IsReadableFromSetToClear) {
  const Event event = *Event::Create("test");
  pollfd waited = {event.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&waited, 1, 0), 0);
  std::thread thread([&] { event.Set(); });
  EXPECT_EQ(poll(&waited, 1, 20000), 1);
  thread.join();
  event.Set();
  event.Clear();
  EXPECT_EQ(poll(&waited, 1, 0), 0);
  event.Clear();  // does not block
  EXPECT_EQ(fcntl(event.fd(), F_GETFD), FD_CLOEXEC);
}

TEST(Event, NamesTheLimitIfNoDescriptorIsFree) {
  const testing::FewDescriptors none(0);
  const absl::Status status = Event::Create("launch: no eventfd").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              StartsWith("launch: no eventfd: Too many open files (the soft limit of open files is "));
}

}  // namespace
}  // namespace lockstep
