#include "lockstep/launch/output/event_log.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::ReadFile;

class EventLogTest : public ::testing::Test {
 protected:
  EventLogTest() {
    options_.event_log = testing::NewFolder() + "events";
    options_.on_notice = [this](const std::string& notice) { notices_.push_back(notice); };
  }
  std::unique_ptr<EventLog> Open() { return *EventLog::Create(options_); }

  LaunchOptions options_;
  std::vector<std::string> notices_;
};

// Returns the text after the times and the host, which begin each line.
std::string Rest(const std::string& line) {
  const std::string host = "\"host\":\"";
  const size_t end = line.find('"', line.find(host) + host.size());
  return end == std::string::npos ? line : line.substr(end + 1);
}

TEST_F(EventLogTest, IsOneObjectALine) {
  options_.run_id = "a \"b\"\n\xff";
  options_.nproc_per_node = 2;
  RankFailure rank;
  rank.local_rank = 1;
  rank.rank = 3;
  rank.pid = 4711;
  Outcome killed, exited;
  killed.end = exited.end = rank;
  killed.end.signal = SIGKILL;
  killed.told_to_end = true;
  exited.end.exit_code = 3;
  exited.end.message = "no file \"x\"";
  const std::unique_ptr<EventLog> log = Open();
  log->AttemptStarted(1, 2, 1);
  log->RankStarted(1, rank);
  log->RankEnded(1, killed, MonotonicNanos());
  log->RankEnded(1, exited, MonotonicNanos());
  log->FirstCause(1, absl::OkStatus());
  log->FirstCause(1, FailureStatus(exited, {exited}, absl::ZeroDuration()));
  log->Restart(2, "host b was lost", absl::Milliseconds(100));
  log->Generation(3, 4, "host b was lost");
  log->End(absl::CancelledError("stopped"));
  const std::string text = ReadFile(options_.event_log);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_EQ(lines.size(), 9) << text;
  EXPECT_THAT(lines[0], MatchesRegex("\\{\"time\":\"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]+\\+00:00\","
                                     "\"monotonic_ns\":[0-9]+,\"event\":\"attempt_started\",\"host\":\"[^\"]+\",.*"));
  EXPECT_EQ(Rest(lines[0]),
            ",\"attempt\":1,\"run_id\":\"a \\\"b\\\"\\\\n\\\\xff\",\"nnodes\":2,\"node_rank\":1,\"nproc_per_node\":2}");
  EXPECT_EQ(Rest(lines[1]), ",\"attempt\":1,\"rank\":3,\"local_rank\":1,\"pid\":4711}");
  EXPECT_THAT(Rest(lines[2]), MatchesRegex(",\"attempt\":1,\"rank\":3,\"local_rank\":1,\"pid\":4711,\"signal\":9,"
                                           "\"signal_name\":\"SIGKILL\",\"seconds\":[0-9.]+,\"told_to_end\":true\\}"));
  EXPECT_THAT(Rest(lines[3]),
              MatchesRegex(".*,\"exit_code\":3,\"seconds\":[0-9.]+,\"report\":\"no file \\\\\"x\\\\\"\"\\}"));
  EXPECT_THAT(lines[4], HasSubstr("\"event\":\"first_cause\""));
  EXPECT_THAT(lines[4], HasSubstr("\"message\":\"rank 3 (local rank 1, pid 4711) exited with code 3: no file "));
  EXPECT_EQ(Rest(lines[5]), ",\"attempt\":2,\"reason\":\"host b was lost\",\"pause\":0.100000}");
  EXPECT_EQ(Rest(lines[6]), ",\"generation\":3,\"world_size\":4,\"reason\":\"host b was lost\"}");
  EXPECT_EQ(Rest(lines[7]), ",\"code\":\"CANCELLED\",\"message\":\"stopped\"}");
  EXPECT_EQ(lines[8], "");
  EXPECT_THAT(notices_, ElementsAre());
}

TEST_F(EventLogTest, GoesOnInAFileThatIsThere) {
  Open()->Restart(1, "rank 1 failed", absl::ZeroDuration());
  Open()->Restart(2, "rank 1 failed", absl::ZeroDuration());
  const std::vector<std::string> lines = absl::StrSplit(ReadFile(options_.event_log), '\n');
  EXPECT_EQ(lines.size(), 3);
}

TEST_F(EventLogTest, SaysOnceThatTheDiskIsFull) {
  options_.event_log = "/dev/full";
  const std::unique_ptr<EventLog> log = Open();
  for (int i = 0; i < 3; ++i) log->Restart(i, "rank 1 failed", absl::ZeroDuration());
  EXPECT_THAT(notices_, ElementsAre("event log /dev/full lacks events from here on: No space left on device"));
}

TEST_F(EventLogTest, DoesNotWaitForAReader) {
  ASSERT_EQ(mkfifo(options_.event_log.c_str(), 0600), 0);
  const UniqueFd reader(open(options_.event_log.c_str(), O_RDONLY | O_NONBLOCK));
  const std::unique_ptr<EventLog> log = Open();
  for (int i = 0; i < 10000; ++i) log->Restart(i, "rank 1 failed", absl::ZeroDuration());  // 1 MB; a pipe holds 64 KiB
  ASSERT_EQ(notices_.size(), 1);
  EXPECT_THAT(notices_[0], HasSubstr(" lacks events from here on: "));
}

TEST_F(EventLogTest, NamesAFileThatCannotBeOpened) {
  options_.event_log = "/nowhere/events";
  const absl::Status status = EventLog::Create(options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "launch: event log /nowhere/events cannot be opened: No such file or directory");
}

TEST_F(EventLogTest, DoesNothingWithoutAFile) {
  options_.event_log.clear();
  Open()->Restart(1, "rank 1 failed", absl::ZeroDuration());
  EXPECT_THAT(notices_, ElementsAre());
}

}  // namespace
}  // namespace lockstep::launch
