// The launcher that serves 1,000 others, or that strangers connect to. Those are connections of the test.

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/crypto/job_secret.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/job_json.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/node/testing/nodes.h"
#include "lockstep/launch/rendezvous/tcp/protocol.h"
#include "lockstep/launch/rendezvous/tcp/sealed_stream.h"
#include "lockstep/launch/testing/processes.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOCKSTEP_WITH_SANITIZER 1
#endif
#endif

namespace lockstep::launch {
namespace {

using testing::KibibytesIn;
using testing::OpenDescriptors;

#ifdef LOCKSTEP_WITH_SANITIZER
constexpr int kGuests = 100;
constexpr int64_t kMostKibibytes = 1 << 20;  // a sanitizer needs most of it
#else
constexpr int kGuests = 1000;
constexpr int64_t kMostKibibytes = 48 << 10;
#endif
constexpr int kStrangers = 600;
constexpr int kMostStrangers = 256;  // that the launcher keeps at once
constexpr int kConnectAtOnce = 50;   // the launcher closes connections of strangers if there are more than 256
constexpr absl::Duration kLimit = absl::Seconds(100);
// Longer than the test, whose connections send no beats.
constexpr char kTimeToLive[] = "ttl=200";

// Not valid if nobody listens.
UniqueFd Connected(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? std::move(fd)
                                                                                              : UniqueFd();
}

// All get the same decision, and to read 100 KB takes the longest.
const JobState& Decoded(const std::string& text) {
  static std::string last;
  static JobState job;
  if (text == last) return job;
  last = text;
  const absl::StatusOr<JobState> decoded = DecodeJob(text);
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  if (decoded.ok()) job = *decoded;
  return job;
}

// One launcher's messages to the one that serves.
class Guest {
 public:
  Guest(int port, const crypto::JobSecret& secret, int number)
      : id_(absl::StrCat("guest", number)), stream_(Connected(port), SealedStream::Role::kGuest, secret) {
    stream_.set_max_message(kMaxDecision);
    state_.host = absl::StrCat("host", number, ".cluster.example");
    state_.address = absl::StrCat("10.0.", number / 256, ".", number % 256);
    state_.port = 30000 + number;
  }

  const SealedStream& stream() const { return stream_; }
  bool welcome() const { return welcome_; }
  bool runs() const { return state_.phase == AgentState::Phase::kRunning; }
  bool done() const { return done_; }

  void Serve() {
    for (const std::string& message : stream_.Serve()) Take(message);
    if (!stream_.open() || hello_sent_) return;
    hello_sent_ = true;
    stream_.Send(absl::StrCat(std::string(1, kHello), "none\n", id_));
    stream_.Serve();
  }

  void Leave() {
    stream_.Send(absl::string_view(&kFarewell, 1));
    stream_.Serve();
  }

  void Post(AgentState::Phase phase) {
    state_.phase = phase;
    stream_.Send(absl::StrCat(std::string(1, kPost), EncodeAgent(state_, MonotonicNanos())));
    stream_.Serve();
  }

 private:
  void Take(const std::string& message) {
    if (message[0] == kWelcome) {
      welcome_ = true;
      Post(AgentState::Phase::kReady);
    } else if (message[0] == kDecision) {
      const JobState& job = Decoded(message.substr(1));
      done_ = job.phase == JobState::Phase::kDone;
      if (job.phase != JobState::Phase::kRunning || state_.start == job.start) return;
      EXPECT_EQ(job.members.size(), kGuests + 1);
      state_.start = job.start;
      Post(AgentState::Phase::kRunning);
    }
  }

  const std::string id_;
  SealedStream stream_;
  AgentState state_;
  bool hello_sent_ = false, welcome_ = false, done_ = false;
};

int64_t ResidentKibibytes(pid_t pid) {
  const std::string status = testing::ReadFile(absl::StrCat("/proc/", pid, "/status"));
  const size_t line = status.find("VmRSS:");
  return line == std::string::npos ? 0 : std::stoll(status.substr(line + 6));
}

// One that says nothing, one that says something else, and one that stops in the middle of a message.
UniqueFd Stranger(int port, int number) {
  UniqueFd fd = Connected(port);
  const std::string bytes[] = {"", std::string(8000, 'x'), std::string("\xa0\x0f\0\0", 4) + std::string(3999, 'x')};
  const std::string& text = bytes[number % 3];
  send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
  return fd;
}

bool IsClosed(const UniqueFd& fd) {
  char bytes[100];
  ssize_t got;
  while ((got = recv(fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) continue;
  return got == 0 || errno != EAGAIN;
}

class ManyNodesTest : public testing::NodesTest {
 protected:
  ManyNodesTest() : port_(*FreePort()), key_(*crypto::JobSecret::FromText(secret_)) {
    rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, std::max(2 * kGuests, 2 * kStrangers) + 100);
    setrlimit(RLIMIT_NOFILE, &files);
  }

  int64_t Count(bool (Guest::*has)() const) const {
    return std::count_if(guests_.begin(), guests_.end(), [&](const auto& guest) { return (guest.get()->*has)(); });
  }

  // Adds guests as fast as the launcher welcomes them.
  void AddGuests() {
    const int64_t welcome = Count(&Guest::welcome);
    for (int number = static_cast<int>(guests_.size()); number < std::min<int64_t>(kGuests, welcome + kConnectAtOnce);
         ++number) {
      guests_.push_back(std::make_unique<Guest>(port_, key_, number));
    }
  }

  bool ServeUntil(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + kLimit;
    while (!condition() && absl::Now() < deadline) {
      AddGuests();
      std::vector<pollfd> fds;
      for (const auto& guest : guests_) fds.push_back({guest->stream().fd(), guest->stream().events(), 0});
      poll(fds.data(), fds.size(), 100);
      for (size_t i = 0; i < fds.size(); ++i) {
        if (fds[i].revents != 0) guests_[i]->Serve();
        if (!guests_[i]->stream().end().ok()) return false;
      }
    }
    return condition();
  }

  const int port_;
  const crypto::JobSecret key_;
  std::vector<std::unique_ptr<Guest>> guests_;
};

TEST_F(ManyNodesTest, TheLauncherThatServesAThousandNeedsLittleMemory) {
  const std::string script = R"(echo 1 > $D/started; until [ -e $D/all ]; do sleep 0.05; done
      grep VmHWM /proc/$PPID/status > $D/memory; grep VmRSS /proc/$PPID/status > $D/now)";
  Start("leader", {absl::StrCat("--nnodes=", kGuests + 1), "--rdzv_backend=tcp",
                   absl::StrCat("--rdzv_endpoint=127.0.0.1:", port_), absl::StrCat("--rdzv_conf=", kTimeToLive), "bash",
                   "-c", script});
  ASSERT_TRUE(testing::Eventually([&] { return Connected(port_).valid(); }, kLimit)) << Err("leader");
  ASSERT_TRUE(ServeUntil([&] { return Count(&Guest::runs) == kGuests; })) << Err("leader");
  std::ofstream(folder_ + "all") << "all";
  ASSERT_TRUE(ServeUntil([&] { return KibibytesIn(folder_ + "now") > 0; })) << Err("leader");
  const int64_t most = KibibytesIn(folder_ + "memory");
  std::cout << "VmHWM of the launcher that serves " << kGuests << " others: " << most << " KiB; VmRSS "
            << KibibytesIn(folder_ + "now") << " KiB\n";
  EXPECT_LT(most, kMostKibibytes);
  for (const auto& guest : guests_) guest->Post(AgentState::Phase::kSucceeded);
  EXPECT_TRUE(ServeUntil([&] { return Count(&Guest::done) == kGuests; })) << Err("leader");
  for (const auto& guest : guests_) guest->Leave();
  EXPECT_EQ(Wait("leader"), 0) << Err("leader");
}

TEST_F(ManyNodesTest, StrangersChangeNothingAndCostLittle) {
  const std::vector<std::string> args = {"--nnodes=2", "--rdzv_backend=tcp",
                                         absl::StrCat("--rdzv_endpoint=127.0.0.1:", port_), "true"};
  Start("serves", args);
  ASSERT_TRUE(testing::Eventually([&] { return Connected(port_).valid(); }, kLimit)) << Err("serves");
  const pid_t launcher = ProcessesOf("serves")[2];
  const int descriptors = OpenDescriptors(launcher);
  [[maybe_unused]] const int64_t memory = ResidentKibibytes(launcher);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < kStrangers; ++i) strangers.push_back(Stranger(port_, i));
  EXPECT_TRUE(testing::Eventually([&] { return IsClosed(strangers[0]); })) << "another one takes its place";
  EXPECT_FALSE(IsClosed(strangers[kStrangers - 3])) << "it may be a slow launcher";
  constexpr int kOthers = 16;  // that the launcher has opened meanwhile, and of strangers whose end it has not seen
  EXPECT_LE(OpenDescriptors(launcher), descriptors + kMostStrangers + kOthers);
#ifndef LOCKSTEP_WITH_SANITIZER
  EXPECT_LT(ResidentKibibytes(launcher), memory + (8 << 10));
#endif
  // Others come while the second node does.
  std::atomic<bool> ended = false;
  std::thread crowd([&] {
    for (int i = 0; !ended; ++i) {
      strangers[i % kStrangers] = Stranger(port_, i);
      absl::SleepFor(absl::Milliseconds(1));
    }
  });
  const absl::Time began = absl::Now();
  Start("comes", args);
  EXPECT_EQ(Wait("serves"), 0) << Err("serves");
  EXPECT_EQ(Wait("comes"), 0) << Err("comes");
  EXPECT_LT(absl::Now() - began, absl::Seconds(5));
  ended = true;
  crowd.join();
}

}  // namespace
}  // namespace lockstep::launch
