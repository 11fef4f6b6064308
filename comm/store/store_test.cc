#include "lockstep/comm/store/store.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/store/internal/c10d_stores.h"
#include "lockstep/comm/store/internal/guarded_store.h"
#include "lockstep/comm/store/internal/listen_socket.h"

namespace lockstep::comm {
namespace {

using internal::C10dStore;
using ::testing::HasSubstr;

StoreOptions Rank(int rank) {
  StoreOptions options;
  options.rank = rank;
  options.timeout = absl::Seconds(20);
  return options;
}

absl::Time In(absl::Duration duration) { return absl::Now() + duration; }

// Two handles of one store.
struct Pair {
  Store first, second;
};

Pair OfOneProcess() {
  const Store store = Store::InProcess(Rank(0));
  return {store, store};
}

Pair OverTcp() {
  const Store server = Store::ServeTcp("127.0.0.1", 0, Rank(0)).value();
  return {server, Store::ConnectTcp("127.0.0.1", server.port(), Rank(1)).value()};
}

Pair InAFile() {
  static int files = 0;
  const std::string path = absl::StrCat(::testing::TempDir(), "/store_", getpid(), "_", files++);
  return {Store::OpenFile(path, 2, Rank(0)).value(), Store::OpenFile(path, 2, Rank(1)).value()};
}

struct Kind {
  std::string name;
  Pair (*open)();
};

class EveryStore : public ::testing::TestWithParam<Kind> {
 protected:
  const Pair pair_ = GetParam().open();
  const Store& a_ = pair_.first;
  const Store& b_ = pair_.second;
};

INSTANTIATE_TEST_SUITE_P(Kinds, EveryStore,
                         ::testing::Values(Kind{"InProcess", OfOneProcess}, Kind{"Tcp", OverTcp},
                                           Kind{"File", InAFile}),
                         [](const auto& info) { return info.param.name; });

TEST_P(EveryStore, GivesTheOthersWhatOneHasSet) {
  const std::string bytes("a\0b\xff\n", 5);
  EXPECT_EQ(a_.Set("key", bytes), absl::OkStatus());
  EXPECT_EQ(b_.Get("key", In(absl::Seconds(20))).value(), bytes);
  EXPECT_EQ(b_.Get("key").value(), bytes);
  EXPECT_TRUE(b_.Check({"key"}).value());
  EXPECT_FALSE(b_.Check({"key", "other"}).value());
}

TEST_P(EveryStore, CountsTogether) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 25; ++j) EXPECT_TRUE((i % 2 ? a_ : b_).Add("sum", i % 2 ? 2 : 1).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(a_.Add("sum", 0).value(), 150);
  EXPECT_EQ(b_.Get("sum").value(), "150");
}

TEST_P(EveryStore, WaitsForEveryKey) {
  std::thread other([&] {
    EXPECT_EQ(b_.Set("x", "1"), absl::OkStatus());
    EXPECT_EQ(b_.Set("y", "1"), absl::OkStatus());
  });
  EXPECT_EQ(a_.Wait({"x", "y"}, In(absl::Seconds(20))), absl::OkStatus());
  other.join();
}

TEST_P(EveryStore, AWaitHoldsUpNoOtherThread) {
  std::thread waits([&] { EXPECT_EQ(a_.Get("late", In(absl::Seconds(20))).value(), "now"); });
  EXPECT_EQ(a_.Set("late", "now"), absl::OkStatus());
  waits.join();
}

TEST_P(EveryStore, ComparesBeforeItSets) {
  EXPECT_EQ(a_.CompareSet("owner", "", "a").value(), "a");
  EXPECT_EQ(b_.CompareSet("owner", "", "b").value(), "a");
  EXPECT_EQ(b_.CompareSet("owner", "a", "b").value(), "b");
}

TEST_P(EveryStore, DeletesAKeyOnce) {
  ASSERT_EQ(a_.Set("gone", "1"), absl::OkStatus());
  EXPECT_TRUE(a_.Delete("gone").value());
  EXPECT_FALSE(b_.Delete("gone").value());
  EXPECT_FALSE(b_.Check({"gone"}).value());
}

TEST_P(EveryStore, KeepsPrefixesApart) {
  EXPECT_EQ(a_.WithPrefix("p").WithPrefix("q").Set("key", "1"), absl::OkStatus());
  EXPECT_EQ(b_.WithPrefix("p").WithPrefix("q").Get("key", In(absl::Seconds(20))).value(), "1");
  EXPECT_EQ(b_.Get("key").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(EveryStore, NamesTheRankTheStoreAndTheKeyThatIsMissing) {
  const std::string place = GetParam().name == "Tcp"    ? absl::StrCat("rank 0: store at 127.0.0.1:", a_.port())
                            : GetParam().name == "File" ? "rank 0: file store /"
                                                        : "rank 0: in-process store";
  absl::Status status = a_.Get("absent").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(place));
  EXPECT_THAT(status.message(), HasSubstr(": get \"absent\": no such key"));
  ASSERT_EQ(a_.Set("here", "1"), absl::OkStatus());
  status = a_.Wait({"here", "absent"}, In(absl::Milliseconds(50)));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(place));
  EXPECT_THAT(status.message(), HasSubstr(": wait: not set by the deadline: \"absent\""));
}

// Silent: the error says all, and LibTorch's own client would log a stack for each call.
TEST(TcpStore, GoesWithTheHandleThatServesIt) {
  ::testing::internal::CaptureStderr();
  auto server = std::make_unique<Store>(Store::ServeTcp("127.0.0.1", 0, Rank(0)).value());
  const int port = server->port();
  const Store client = Store::ConnectTcp("127.0.0.1", port, Rank(1)).value();
  absl::Status status;
  std::thread waits([&] { status = client.Get("never", In(absl::Minutes(5))).status(); });
  server.reset();
  waits.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("rank 1: store at 127.0.0.1:", port, ": get \"never\": ")));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(TcpStore, NamesTheAddressThatCannotBeHad) {
  const Store server = Store::ServeTcp("127.0.0.1", 0, Rank(0)).value();
  EXPECT_THAT(
      Store::ServeTcp("127.0.0.1", server.port(), Rank(2)).status().message(),
      HasSubstr(absl::StrCat("rank 2: cannot listen on 127.0.0.1:", server.port(), ": Address already in use")));
  StoreOptions hasty = Rank(3);
  hasty.timeout = absl::Seconds(1);
  const absl::Status elsewhere = Store::ConnectTcp("127.0.0.2", server.port(), hasty).status();
  EXPECT_EQ(elsewhere.code(), absl::StatusCode::kDeadlineExceeded) << elsewhere;
  EXPECT_THAT(elsewhere.message(), HasSubstr(absl::StrCat("rank 3: connecting to the store at 127.0.0.2:",
                                                          server.port(), ": nobody has answered after 1s")));
}

// Stands between one client and a store, and can stop to pass bytes on, as a cut network does.
class Wire {
 public:
  explicit Wire(int port) : near_(internal::BindListenSocket("127.0.0.1", 0).value()), far_port_(port) {
    thread_ = std::thread([this] { Forward(); });
  }
  ~Wire() {
    ended_ = true;
    thread_.join();
  }
  int port() const { return internal::BoundPort(near_.get()).value(); }
  void Cut() { cut_ = true; }

 private:
  void Forward() {
    const UniqueFd near(accept4(near_.get(), nullptr, nullptr, SOCK_CLOEXEC)), far = ConnectTo(far_port_);
    pollfd ends[2] = {{near.get(), POLLIN, 0}, {far.get(), POLLIN, 0}};
    while (!ended_) {
      if (poll(ends, 2, /*milliseconds=*/5) <= 0 || cut_) continue;
      for (const int from : {0, 1}) {
        char buffer[4096];
        const ssize_t count = ends[from].revents ? recv(ends[from].fd, buffer, sizeof(buffer), MSG_DONTWAIT) : 0;
        if (count > 0) send(ends[1 - from].fd, buffer, count, MSG_NOSIGNAL);
      }
    }
  }
  static UniqueFd ConnectTo(int port);

  const UniqueFd near_;
  const int far_port_;
  std::atomic<bool> cut_{false}, ended_{false};
  std::thread thread_;
};

UniqueFd Wire::ConnectTo(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress address = Resolve("127.0.0.1", port)->front();
  EXPECT_EQ(connect(fd.get(), address.get(), address.size), 0);
  return fd;
}

TEST(TcpStore, ThatDoesNotAnswerAnyMoreIsAnErrorOnceAndForAll) {
  // A store gives a call 2 s more than its deadline, and its own connection gives up after the timeout.
  for (const absl::Duration timeout : {absl::Seconds(1), absl::Seconds(5)}) {
    const Store server = Store::ServeTcp("127.0.0.1", 0, Rank(0)).value();
    Wire wire(server.port());
    StoreOptions options = Rank(1);
    options.timeout = timeout;
    const Store client = Store::ConnectTcp("127.0.0.1", wire.port(), options).value();
    ASSERT_EQ(client.Set("key", "1"), absl::OkStatus());
    ASSERT_EQ(client.Get("key").value(), "1");
    wire.Cut();
    const absl::Time start = absl::Now();
    const std::string store = absl::StrCat("rank 1: store at 127.0.0.1:", wire.port());
    EXPECT_EQ(client.Get("key").status(), absl::DeadlineExceededError(absl::StrCat(
                                              store,
                                              ": get \"key\": the store does not answer (the process that serves "
                                              "it is stopped, or the network is cut)")));
    EXPECT_LT(absl::Now() - start, absl::Seconds(8));
    EXPECT_EQ(client.WithPrefix("p").Add("n", 1).status(),
              absl::UnavailableError(absl::StrCat(store, ": add \"n\": the store stopped answering before")));
  }
}

// The c10d::Store behind the handle, which backends and the users of a group's store call.

C10dStore Connect(int port, absl::Duration timeout = absl::Seconds(20)) {
  return internal::ConnectTcpStore({"127.0.0.1", port}, /*count_as_worker=*/false, timeout).value();
}

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

TEST(TcpStoreClient, UnderstandsWhatLibTorchsOwnClientHasSetAndTheOtherWayRound) {
  const Store server = Store::ServeTcp("127.0.0.1", 0, Rank(0)).value();
  const C10dStore theirs = server.c10d(), ours = Connect(server.port());
  const std::vector<C10dStore> both = {theirs, ours};
  for (int i = 0; i < 2; ++i) {
    const C10dStore &writer = both[i], &reader = both[1 - i];
    const std::string prefix = absl::StrCat(i, "/"), long_text(100000, 'x');
    writer->multiSet({prefix + "a", prefix + "b"}, {Bytes("1"), Bytes("")});
    writer->append(prefix + "a", Bytes(long_text));
    EXPECT_EQ(reader->multiGet({prefix + "b", prefix + "a"}),
              (std::vector<std::vector<uint8_t>>{Bytes(""), Bytes("1" + long_text)}));
    EXPECT_EQ(writer->compareSet(prefix + "c", "", "new"), "new");
    EXPECT_EQ(reader->compareSet(prefix + "c", "old", "newer"), "new");
    EXPECT_EQ(writer->add(prefix + "n", 40), 40);
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
    EXPECT_EQ(reader->clone()->add(prefix + "n", 2), 42);
#endif
    EXPECT_EQ(ours->getNumKeys(), theirs->getNumKeys());
    EXPECT_TRUE(reader->check({prefix + "a", prefix + "n"}));
    EXPECT_TRUE(reader->deleteKey(prefix + "a"));
    EXPECT_FALSE(writer->check({prefix + "a", prefix + "n"}));
  }
}

TEST(TcpStoreClient, AnInterruptionEndsTheConnecting) {
  const absl::Time start = absl::Now();
  const auto interruption = [start] {
    return absl::Now() - start > absl::Milliseconds(100) ? absl::CancelledError("rank 0 is dead") : absl::OkStatus();
  };
  // Nobody listens there.
  EXPECT_EQ(
      internal::ConnectTcpStore({"127.0.0.1", 1}, /*count_as_worker=*/false, absl::Minutes(5), nullptr, interruption)
          .status(),
      absl::CancelledError("rank 0 is dead"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

TEST(TcpStoreClient, GoesOnAfterAWaitThatWasInVain) {
  const Store server = Store::ServeTcp("127.0.0.1", 0, Rank(0)).value();
  const C10dStore store = Connect(server.port());
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = TorchStatus("", [&] {
      store->wait({"never", "later"}, std::chrono::milliseconds(20));
    });
    EXPECT_EQ(status, absl::DeadlineExceededError("timed out after 20ms: not set: \"never\", \"later\""));
    store->set("key", std::to_string(i));
    EXPECT_EQ(store->get_to_str("key"), std::to_string(i));
  }
}

TEST(TcpStoreClient, ACallThatNobodyAnswersEndsByTheStoresTimeoutAndLaterOnesAtOnce) {
  const Store server = Store::ServeTcp("127.0.0.1", 0, Rank(0)).value();
  Wire wire(server.port());
  const C10dStore store = Connect(wire.port(), absl::Seconds(1));
  store->set("key", "1");
  ASSERT_EQ(store->get_to_str("key"), "1");
  wire.Cut();
  absl::Time start = absl::Now();
  absl::Status status = TorchStatus("", [&] { store->wait({"key"}, std::chrono::milliseconds(50)); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(900));
  EXPECT_EQ(TorchStatus("", [&] { store->check({"key"}); }),
            absl::DeadlineExceededError(
                "the store does not answer (the process that serves it is stopped, or the network is cut)"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  start = absl::Now();
  status = TorchStatus("", [&] { store->add("n", 1); });
  EXPECT_EQ(status, absl::UnavailableError("the store stopped answering before"));
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(500));
}

TEST(GuardedStore, EndsAWaitAPieceAfterTheFailure) {
  const Store server = Store::ServeTcp("127.0.0.1", 0, Rank(0)).value();
  const absl::Time start = absl::Now();
  int looks = 0;
  const auto failure = [&] { return ++looks < 10 ? absl::OkStatus() : absl::UnavailableError("rank 1 has died"); };
  internal::GuardedStore store("backend/", Connect(server.port()), failure, std::chrono::milliseconds(20));
  EXPECT_EQ(TorchStatus("", [&] { store.get("address"); }), absl::UnavailableError("rank 1 has died"));
  EXPECT_EQ(looks, 10);
  EXPECT_GE(absl::Now() - start, 8 * absl::Milliseconds(20));
  EXPECT_LT(absl::Now() - start, 8 * absl::Milliseconds(250)) << "as in pieces of 250 ms";
  store.set("address", "here");
  EXPECT_EQ(TorchStatus("", [&] { store.get("address"); }), absl::UnavailableError("rank 1 has died"));
}

TEST(GuardedStore, LooksForTheFailureWithoutARequestIfNoKeyIsAskedFor) {
  const Store server = Store::ServeTcp("127.0.0.1", 0, Rank(0)).value();
  absl::Status failure;
  const auto client = Connect(server.port());
  const auto store = c10::make_intrusive<internal::GuardedStore>(
      "backend/", client, [&] { return failure; }, std::chrono::milliseconds(20));
  c10d::PrefixStore part("inward/", store);
  const int64_t before = internal::RequestsSent(client);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(part.check({}));
  EXPECT_EQ(internal::RequestsSent(client), before);
  EXPECT_FALSE(part.check({"address"}));
  EXPECT_EQ(internal::RequestsSent(client), before + 1);
  failure = absl::UnavailableError("rank 1 has died");
  EXPECT_EQ(TorchStatus("", [&] { part.check({}); }), failure);
}

TEST(FileStore, NamesTheFolderThatDoesNotExist) {
  EXPECT_EQ(Store::OpenFile("/no/such/store", 1, Rank(1)).status(),
            absl::NotFoundError("rank 1: file store /no/such/store: folder /no/such/ does not exist"));
  EXPECT_EQ(Store::OpenFile("here", 1, {}).status(),
            absl::InvalidArgumentError("file store \"here\": expected an absolute path"));
}

}  // namespace
}  // namespace lockstep::comm
