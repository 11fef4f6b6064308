#include "lockstep/launch/status/local_server.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/launch/status/job_client.h"
#include "lockstep/launch/status/status_folder.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kLong = absl::Seconds(60);  // a loaded machine may need so long for anything
constexpr pid_t kNoProcess = 99999999;               // above the largest pid of Linux

std::string Echo(const std::string& line) { return absl::StrCat("you said ", line); }

// A server on its own thread, as a launcher has it in its loop.
class Running {
 public:
  Running(const std::string& folder, pid_t pid, const LocalServer::Answer& answer = Echo) {
    absl::StatusOr<std::unique_ptr<LocalServer>> server = LocalServer::Create(folder, pid, answer);
    EXPECT_TRUE(server.ok()) << server.status();
    if (!server.ok()) return;
    server_ = *std::move(server);
    thread_ = std::thread([this] {
      while (!stop_) {
        pollfd ready = {server_->fd(), POLLIN, 0};
        ++wakes_;
        if (poll(&ready, 1, 100) > 0) server_->Serve();
      }
    });
  }
  ~Running() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int wakes() const { return wakes_; }

 private:
  std::unique_ptr<LocalServer> server_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<int> wakes_{0};
};

class LocalServerTest : public ::testing::Test {
 protected:
  LocalServerTest() : folder_(absl::StrCat(testing::NewFolder(), "lockstep")) {}

  absl::StatusOr<std::string> Ask(const std::string& line) { return AskLauncher(folder_, 1, line, kLong); }

  UniqueFd Connect() {
    const absl::StatusOr<UniqueFd> folder = OpenStatusFolder(folder_, false);
    return folder.ok() ? ConnectTo(PathIn(*folder, SocketName(1))) : UniqueFd();
  }

  std::vector<pid_t> Sockets() {
    const absl::StatusOr<UniqueFd> folder = OpenStatusFolder(folder_, false);
    return folder.ok() ? SocketsIn(*folder) : std::vector<pid_t>{-1};
  }

  const std::string folder_;
};

// All that comes until the other side closes.
std::string ReadToEnd(const UniqueFd& fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    pollfd ready = {fd.get(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(kLong))) <= 0) return "TIMEOUT";
    const ssize_t read = recv(fd.get(), buffer, sizeof(buffer), 0);
    if (read <= 0) return text;
    text.append(buffer, read);
  }
}

TEST_F(LocalServerTest, AnswersALineAndRemovesItsSocket) {
  {
    const Running server(folder_, 1);
    EXPECT_EQ(Ask("hello").value_or(""), "you said hello");
    EXPECT_EQ(Ask("").value_or(""), "you said ");
    EXPECT_THAT(Sockets(), ElementsAre(1));
  }
  EXPECT_THAT(Sockets(), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(Ask("hello").status()));
}

TEST_F(LocalServerTest, TwoHundredClientsThatAskAtOnceAllGetTheirAnswers) {
  const Running server(folder_, 1);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(Connect());
    const std::string line = absl::StrCat(i, "\n");
    ASSERT_EQ(send(clients[i].get(), line.data(), line.size(), MSG_NOSIGNAL), line.size()) << i;
  }
  for (int i = 0; i < 200; ++i) EXPECT_EQ(ReadToEnd(clients[i]), absl::StrCat("you said ", i, "\n"));
}

TEST_F(LocalServerTest, TwoHundredClientsThatSayNothingDoNotStopOthers) {
  const Running server(folder_, 1);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(Connect());
    ASSERT_TRUE(clients.back().valid());
  }
  EXPECT_EQ(Ask("hello").value_or(""), "you said hello");
  for (const UniqueFd& client : clients) EXPECT_EQ(ReadToEnd(client), "");
}

TEST_F(LocalServerTest, OneClientThatSaysNothingIsLeftInTheEndAndCostsNoWakes) {
  const Running server(folder_, 1);
  const UniqueFd client = Connect();
  EXPECT_EQ(Ask("hello").value_or(""), "you said hello");
  const int wakes = server.wakes();
  EXPECT_EQ(ReadToEnd(client), "");
  EXPECT_LT(server.wakes() - wakes, 200) << "5 s have 50 times 100 ms";
}

TEST_F(LocalServerTest, ALineThatIsTooLongIsNotRead) {
  const Running server(folder_, 1);
  const UniqueFd client = Connect();
  const std::string text(2000, 'x');
  EXPECT_GT(send(client.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
  EXPECT_EQ(ReadToEnd(client), "");
}

TEST_F(LocalServerTest, ALineMayComeInParts) {
  const Running server(folder_, 1);
  const UniqueFd client = Connect();
  for (const char c : {'a', 'b', '\n'}) {
    ASSERT_EQ(send(client.get(), &c, 1, MSG_NOSIGNAL), 1);
    EXPECT_EQ(Ask("hello").value_or(""), "you said hello");
  }
  EXPECT_EQ(ReadToEnd(client), "you said ab\n");
}

TEST_F(LocalServerTest, AClientThatDoesNotReadDoesNotStopOthers) {
  const Running server(folder_, 1,
                       [](const std::string& line) { return std::string(line == "long" ? 8 << 20 : 3, 'x'); });
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(Connect());
    ASSERT_EQ(send(clients.back().get(), "long\n", 5, MSG_NOSIGNAL), 5);
  }
  EXPECT_EQ(Ask("short").value_or(""), "xxx");
  const absl::StatusOr<std::string> answer = Ask("long");
  EXPECT_EQ(answer.value_or("").size(), 8 << 20) << "one that reads gets all of it";
}

TEST_F(LocalServerTest, RemovesSocketsOfLaunchersThatAreGoneAndNoOthers) {
  { const Running makes_the_folder(folder_, 1); }
  const absl::StatusOr<UniqueFd> folder = OpenStatusFolder(folder_, false);
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_TRUE(Bind(PathAddress(PathIn(*folder, SocketName(kNoProcess)))).valid()) << "and is closed at once";
  const Running in_another_container(folder_, kNoProcess + 1);
  EXPECT_THAT(Sockets(), ElementsAre(kNoProcess + 1)) << "its creation has removed the first one";
  const Running server(folder_, 1);
  EXPECT_THAT(Sockets(), ElementsAre(1, kNoProcess + 1));
}

TEST_F(LocalServerTest, ANameThatIsTakenIsAnErrorAndAStaleOneIsNot) {
  {
    const Running server(folder_, 1);
    EXPECT_THAT(LocalServer::Create(folder_, 1, Echo).status().message(), HasSubstr("launch-1.sock already"));
    EXPECT_EQ(Ask("hello").value_or(""), "you said hello");
  }
  const Running again(folder_, 1);
  EXPECT_EQ(Ask("hello").value_or(""), "you said hello");
}

TEST_F(LocalServerTest, TheFolderMustBeThisUsersAndClosed) {
  ASSERT_EQ(mkdir(folder_.c_str(), 0755), 0);
  EXPECT_THAT(LocalServer::Create(folder_, 1, Echo).status().message(), HasSubstr("must have mode 700, but has 755"));
  ASSERT_EQ(rmdir(folder_.c_str()), 0);
  ASSERT_EQ(symlink("/tmp", folder_.c_str()), 0);
  EXPECT_THAT(LocalServer::Create(folder_, 1, Echo).status().message(), HasSubstr("must be a folder and not a link"));
  EXPECT_THAT(LocalServer::Create("/nowhere/x", 1, Echo).status().message(), HasSubstr("/nowhere/x cannot be made"));
  if (geteuid() == 0) return;
  EXPECT_THAT(LocalServer::Create("/usr", 1, Echo).status().message(), HasSubstr("but belongs to 0"));
}

TEST_F(LocalServerTest, ThePathOfTheFolderMayBeLong) {
  std::string folder = folder_;
  for (int i = 0; i < 20; ++i) {
    absl::StrAppend(&folder, i == 0 ? "" : "/", "a_long_name");
    ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  }
  const Running server(folder, 1);
  EXPECT_EQ(AskLauncher(folder, 1, "hello", kLong).value_or(""), "you said hello");
}

// Connects in a child of another user. Its exit code: 0 if it was let in and got no answer.
int AskAsAnotherUser(int folder) {
  const pid_t child = fork();
  if (child == 0) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const char name[] = "launch-1.sock";
    for (size_t i = 0; i < sizeof(name); ++i) address.sun_path[i] = name[i];
    if (fchdir(folder) != 0 || syscall(SYS_setuid, 65534) != 0) _exit(2);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) _exit(3);
    char answer;
    if (send(fd, "hello\n", 6, MSG_NOSIGNAL) < 0) _exit(0);
    _exit(recv(fd, &answer, 1, 0) > 0 ? 4 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(LocalServerTest, AnotherUserGetsNoAnswerEvenIfTheFolderIsOpen) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const Running server(folder_, 1);
  const absl::StatusOr<UniqueFd> folder = OpenStatusFolder(folder_, false);
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(AskAsAnotherUser(folder->get()), 3) << "it cannot even reach the socket";
  ASSERT_EQ(fchmod(folder->get(), 0777), 0);
  ASSERT_EQ(fchmodat(folder->get(), "launch-1.sock", 0777, 0), 0);
  EXPECT_EQ(AskAsAnotherUser(folder->get()), 0);
  ASSERT_EQ(fchmod(folder->get(), 0700), 0);
  EXPECT_EQ(Ask("hello").value_or(""), "you said hello");
}

TEST(StatusFolder, IsTheRuntimeFolderIfThereIsOne) {
  const std::string folder = testing::NewFolder();
  setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
  EXPECT_EQ(StatusFolder(), absl::StrCat(folder, "lockstep"));
  EXPECT_THAT(StatusFolders(), ElementsAre(absl::StrCat(folder, "lockstep")));
  const std::string tmp = absl::StrCat("/tmp/lockstep-", geteuid());
  for (const char* other : {"/nowhere", "relative", "", "/dev/null"}) {
    setenv("XDG_RUNTIME_DIR", other, 1);
    EXPECT_EQ(StatusFolder(), tmp) << other;
    EXPECT_THAT(StatusFolders(), ElementsAre(absl::StrCat("/run/user/", geteuid(), "/lockstep"), tmp)) << other;
  }
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(StatusFolder(), tmp);
}

TEST(StatusFolder, KnowsTheNamesOfItsSockets) {
  EXPECT_EQ(PidOfSocket(SocketName(4711)), 4711);
  for (const char* name : {"launch-.sock", "launch-x.sock", "launch-0.sock", "launch--1.sock", "launch-007.sock",
                           "launch-1.sock2", ".launch-1.sock", "launch-99999999999.sock", ""}) {
    EXPECT_EQ(PidOfSocket(name), 0) << name;
  }
}

}  // namespace
}  // namespace lockstep::launch
