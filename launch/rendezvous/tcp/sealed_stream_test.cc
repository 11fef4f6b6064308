// The test stands between the two streams, as a stranger in the network could.

#include "lockstep/launch/rendezvous/tcp/sealed_stream.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/crypto/job_secret.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kLengthBytes = 4;

// A stream, and the other end of its socket, which the test reads and writes.
class Side {
 public:
  Side(SealedStream::Role role, const crypto::JobSecret& secret) : Side(role, secret, SocketPair()) {}

  SealedStream& stream() { return stream_; }

  std::vector<std::string> Get(const std::string& bytes) {
    EXPECT_EQ(write(wire_.get(), bytes.data(), bytes.size()), bytes.size());
    return stream_.Serve();
  }

  // Returns the frames that the stream has sent, with their lengths.
  std::vector<std::string> Frames() {
    stream_.Serve();
    char buffer[1 << 16];
    for (ssize_t n; (n = read(wire_.get(), buffer, sizeof(buffer))) > 0;) sent_.append(buffer, n);
    std::vector<std::string> frames;
    while (sent_.size() >= kLengthBytes) {
      const size_t size =
          kLengthBytes + static_cast<unsigned char>(sent_[0]) + (static_cast<unsigned char>(sent_[1]) << 8);
      frames.push_back(sent_.substr(0, size));
      sent_.erase(0, size);
    }
    return frames;
  }

  std::string Frame() {
    const std::vector<std::string> frames = Frames();
    EXPECT_EQ(frames.size(), 1);
    return frames.empty() ? "" : frames[0];
  }

  void Close() { wire_ = UniqueFd(); }

 private:
  static std::pair<UniqueFd, UniqueFd> SocketPair() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) abort();
    return {UniqueFd(fds[0]), UniqueFd(fds[1])};
  }

  Side(SealedStream::Role role, const crypto::JobSecret& secret, std::pair<UniqueFd, UniqueFd> sockets)
      : stream_(std::move(sockets.first), role, secret), wire_(std::move(sockets.second)) {}

  SealedStream stream_;
  UniqueFd wire_;
  std::string sent_;
};

// Two sides that have exchanged their nonces.
class Connection {
 public:
  Connection()
      : secret(*crypto::JobSecret::FromText("the secret of this job")),
        host(SealedStream::Role::kHost, secret),
        guest(SealedStream::Role::kGuest, secret) {
    guest.Get(host.Frame());
    host.Get(guest.Frame());
    EXPECT_TRUE(host.stream().open() && guest.stream().open());
  }

  // The frames of the guest's messages "0", "1" and so on.
  std::vector<std::string> GuestSays(int messages) {
    for (int i = 0; i < messages; ++i) guest.stream().Send(absl::StrCat(i));
    return guest.Frames();
  }

  const crypto::JobSecret secret;
  Side host, guest;
};

TEST(SealedStream, DeliversMessagesInBothDirections) {
  Connection c;
  const std::vector<std::string> frames = c.GuestSays(2);
  ASSERT_EQ(frames.size(), 2);
  EXPECT_THAT(c.host.Get(frames[0] + frames[1]), ElementsAre("0", "1"));
  c.host.stream().Send("from the host");
  EXPECT_THAT(c.guest.Get(c.host.Frame()), ElementsAre("from the host"));
  EXPECT_TRUE(c.host.stream().end().ok() && c.guest.stream().end().ok());
}

TEST(SealedStream, DeliversAMessageThatComesByteByByte) {
  Connection c;
  const std::string frame = c.GuestSays(1)[0];
  for (size_t i = 0; i + 1 < frame.size(); ++i) EXPECT_THAT(c.host.Get(frame.substr(i, 1)), IsEmpty());
  EXPECT_THAT(c.host.Get(frame.substr(frame.size() - 1)), ElementsAre("0"));
}

TEST(SealedStream, DoesNotShowAMessageToThoseWhoRead) {
  Connection c;
  c.guest.stream().Send("a text that nobody else may read");
  EXPECT_EQ(c.guest.Frame().find("nobody"), std::string::npos);
}

TEST(SealedStream, EndsWhenAMessageIsRepeated) {
  Connection c;
  const std::string frame = c.GuestSays(1)[0];
  EXPECT_THAT(c.host.Get(frame + frame), ElementsAre("0"));
  EXPECT_TRUE(absl::IsPermissionDenied(c.host.stream().end())) << c.host.stream().end();
}

TEST(SealedStream, EndsWhenMessagesAreReorderedOrLeftOut) {
  Connection reordered, left_out;
  std::vector<std::string> frames = reordered.GuestSays(2);
  EXPECT_THAT(reordered.host.Get(frames[1] + frames[0]), IsEmpty());
  EXPECT_TRUE(absl::IsPermissionDenied(reordered.host.stream().end())) << reordered.host.stream().end();
  frames = left_out.GuestSays(3);
  EXPECT_THAT(left_out.host.Get(frames[0] + frames[2]), ElementsAre("0"));
  EXPECT_TRUE(absl::IsPermissionDenied(left_out.host.stream().end())) << left_out.host.stream().end();
}

TEST(SealedStream, EndsWhenAnyBitOfAMessageIsChanged) {
  const size_t bytes = Connection().GuestSays(1)[0].size() - kLengthBytes;
  for (size_t bit = 0; bit < 8 * bytes; ++bit) {
    Connection c;
    std::string frame = c.GuestSays(1)[0];
    frame[kLengthBytes + bit / 8] = static_cast<char>(frame[kLengthBytes + bit / 8] ^ (1 << bit % 8));
    EXPECT_THAT(c.host.Get(frame), IsEmpty()) << bit;
    EXPECT_TRUE(absl::IsPermissionDenied(c.host.stream().end())) << bit;
  }
}

TEST(SealedStream, DoesNotDeliverAMessageThatIsCutShort) {
  Connection c, told;
  std::string frame = c.GuestSays(1)[0];
  EXPECT_THAT(c.host.Get(frame.substr(0, frame.size() - 1)), IsEmpty());
  c.host.Close();
  EXPECT_THAT(c.host.stream().Serve(), IsEmpty());
  EXPECT_TRUE(absl::IsUnavailable(c.host.stream().end())) << c.host.stream().end();
  // The length says the same.
  frame = told.GuestSays(1)[0];
  frame.pop_back();
  --frame[0];
  EXPECT_THAT(told.host.Get(frame), IsEmpty());
  EXPECT_TRUE(absl::IsPermissionDenied(told.host.stream().end())) << told.host.stream().end();
}

TEST(SealedStream, RefusesItsOwnMessagesAndThoseOfAnotherConnection) {
  Connection c, other;
  c.host.stream().Send("from the host");
  EXPECT_THAT(c.host.Get(c.host.Frame()), IsEmpty());
  EXPECT_TRUE(absl::IsPermissionDenied(c.host.stream().end())) << c.host.stream().end();
  EXPECT_THAT(Connection().host.Get(other.GuestSays(1)[0]), IsEmpty());
}

TEST(SealedStream, DoesNotKeepWhatIsTooLong) {
  Connection c;
  EXPECT_THAT(c.host.Get(std::string("\xff\xff\xff\x7f", kLengthBytes) + std::string(1000, 'x')), IsEmpty());
  EXPECT_TRUE(absl::IsInvalidArgument(c.host.stream().end())) << c.host.stream().end();
  EXPECT_THAT(c.host.stream().end().message(), HasSubstr("a message has 2147483647 bytes, more than 4096"));
}

}  // namespace
}  // namespace lockstep::launch
