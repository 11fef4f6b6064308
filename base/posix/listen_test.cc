#include "lockstep/base/posix/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/testing/few_descriptors.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// Returns 0 or the errno.
int ConnectTo(const SocketAddress& address) {
  const UniqueFd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(fd.get(), address.get(), address.size) == 0 ? 0 : errno;
}

SocketAddress Loopback(int port = 0) { return Resolve("127.0.0.1", port)->front(); }

TEST(ListenAt, TakesConnectionsAtThePortThatTheSystemChose) {
  const UniqueFd listener = ListenAt(Loopback());
  ASSERT_TRUE(listener.valid());
  EXPECT_GT(BoundAddress(listener.get()).port(), 0);
  EXPECT_EQ(ConnectTo(BoundAddress(listener.get())), 0);
  EXPECT_TRUE(UniqueFd(accept(listener.get(), nullptr, nullptr)).valid());
  EXPECT_EQ(fcntl(listener.get(), F_GETFD), FD_CLOEXEC);
}

TEST(ListenAt, BlocksInAcceptOnlyIfAsked) {
  EXPECT_TRUE(fcntl(ListenAt(Loopback()).get(), F_GETFL) & O_NONBLOCK);
  EXPECT_FALSE(fcntl(ListenAt(Loopback(), {.blocks = true}).get(), F_GETFL) & O_NONBLOCK);
}

TEST(ListenAt, FailsAtAPortThatListensAlready) {
  const UniqueFd listener = ListenAt(Loopback());
  const SocketAddress taken = BoundAddress(listener.get());
  for (const bool reuses_port : {false, true}) {
    EXPECT_FALSE(ListenAt(taken, {.reuses_port = reuses_port}).valid());
    EXPECT_EQ(errno, EADDRINUSE);
  }
}

TEST(ListenAt, ReusesAPortThatIsHeldAndDoesNotListen) {
  const UniqueFd held = Bind(Loopback(), {.reuses_port = true});
  const SocketAddress address = BoundAddress(held.get());
  EXPECT_EQ(ConnectTo(address), ECONNREFUSED);
  EXPECT_FALSE(ListenAt(address).valid());
  EXPECT_TRUE(ListenAt(address, {.reuses_port = true}).valid());
}

TEST(ListenAt, TheSocketsOfAnAbstractAddressMeet) {
  const std::string name = absl::StrCat("lockstep-listen-test-", getpid(), "-");
  const SocketAddress address = AbstractAddress(name + "a");
  EXPECT_EQ(ConnectTo(address), ECONNREFUSED);
  {
    const UniqueFd listener = ListenAt(address);
    ASSERT_TRUE(listener.valid());
    EXPECT_EQ(ConnectTo(address), 0);
    EXPECT_EQ(ConnectTo(AbstractAddress(name + "b")), ECONNREFUSED);
    EXPECT_EQ(BoundAddress(listener.get()).port(), -1);
  }
  EXPECT_EQ(ConnectTo(address), ECONNREFUSED);
}

TEST(ListenAt, TheSocketsOfAPathMeet) {
  const std::string path = absl::StrCat("/proc/self/cwd/listen-test-", getpid());
  const UniqueFd listener = ListenAt(PathAddress(path));
  ASSERT_TRUE(listener.valid());
  EXPECT_EQ(ConnectTo(PathAddress(path)), 0);
  unlink(path.c_str());
  EXPECT_EQ(ConnectTo(PathAddress(path)), ENOENT);
}

TEST(PathAddress, TellsThatAPathIsTooLong) {
  EXPECT_GT(PathAddress(std::string(107, 'a')).size, 0);
  EXPECT_EQ(PathAddress(std::string(108, 'a')).size, 0);
  EXPECT_EQ(errno, ENAMETOOLONG);
}

TEST(ListenOn, ListensOnTheInterfaceOfTheHostAlone) {
  const absl::StatusOr<UniqueFd> listener = ListenOn("127.0.0.2", 0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const int port = BoundAddress(listener->get()).port();
  EXPECT_EQ(ConnectTo(Resolve("127.0.0.2", port)->front()), 0);
  EXPECT_EQ(ConnectTo(Loopback(port)), ECONNREFUSED);
}

TEST(ListenOn, ListensOnEveryInterfaceIfTheAddressIsNotOneOfThisHost) {
  const absl::StatusOr<UniqueFd> listener = ListenOn("192.0.2.1", 0);  // of the range for documentation
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(ConnectTo(Loopback(BoundAddress(listener->get()).port())), 0);
}

TEST(ListenOn, SaysThatAPortIsInUse) {
  const UniqueFd listener = ListenAt(Loopback());
  const int port = BoundAddress(listener.get()).port();
  EXPECT_EQ(ListenOn("127.0.0.1", port).status(),
            absl::AlreadyExistsError(absl::StrCat("cannot listen on 127.0.0.1:", port, ": Address already in use")));
}

TEST(ListenOn, NamesTheLimitIfNoDescriptorIsFree) {
  const testing::FewDescriptors none(0);
  const absl::Status status = ListenOn("127.0.0.1", 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), StartsWith("cannot listen on 127.0.0.1: Too many open files (the soft "));
}

TEST(Resolve, FindsAddressesWithThePort) {
  EXPECT_EQ(Resolve("127.0.0.1", 4711)->front().port(), 4711);
  EXPECT_EQ(Resolve("::1", 4711)->front().port(), 4711);
  EXPECT_EQ(Resolve("::1", 4711)->front().family(), AF_INET6);
}

TEST(Resolve, WithoutAHostMeansEveryInterface) {
  const UniqueFd listener = ListenAt(Resolve("", 0)->front());
  EXPECT_EQ(ConnectTo(Loopback(BoundAddress(listener.get()).port())), 0);
}

TEST(Resolve, OfAnUnknownHostGivesTheReason) {
  const absl::Status reason = Resolve("no-such-host.invalid", 1).status();
  EXPECT_EQ(reason.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(reason.message()), Not(IsEmpty()));
  EXPECT_EQ(ResolveHost("no-such-host.invalid", 1).status(),
            absl::NotFoundError(absl::StrCat("host \"no-such-host.invalid\" is unknown: ", reason.message())));
}

}  // namespace
}  // namespace lockstep
