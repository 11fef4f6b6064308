#include "lockstep/launch/report/report_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/launch/report/report.h"

namespace lockstep::launch {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// The environment of a rank whose reports go to `file`.
class ReportTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv(kErrorFileVariable, ReportPath(file_).c_str(), 1); }
  void TearDown() override {
    unsetenv(kErrorFileVariable);
    unsetenv(kTorchErrorFileVariable);
  }
  const UniqueFd file_ = *CreateReportFile();
};

TEST_F(ReportTest, ComesBackWithCodeTimeAndMessage) {
  EXPECT_FALSE(ReadReport(file_).has_value());
  const int64_t before = MonotonicNanos();
  EXPECT_TRUE(ReportError(absl::DataLossError("record 7 is damaged")));
  const std::optional<Report> report = ReadReport(file_);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->code, absl::StatusCode::kDataLoss);
  EXPECT_EQ(report->message, "record 7 is damaged");
  EXPECT_GE(report->time_ns, before);
  EXPECT_LE(report->time_ns, MonotonicNanos());
}

TEST_F(ReportTest, TheFirstOneCounts) {
  EXPECT_TRUE(ReportError(absl::DataLossError("the cause")));
  EXPECT_FALSE(ReportError(absl::InternalError("a consequence")));
  EXPECT_EQ(ReadReport(file_)->message, "the cause");
}

TEST_F(ReportTest, AnOkStatusIsNoError) {
  EXPECT_FALSE(ReportError(absl::OkStatus()));
  EXPECT_FALSE(ReadReport(file_).has_value());
}

TEST_F(ReportTest, WithoutALauncherNothingIsWritten) {
  unsetenv(kErrorFileVariable);
  EXPECT_FALSE(ReportError(absl::InternalError("nobody listens")));
  EXPECT_FALSE(ReadReport(file_).has_value());
}

TEST_F(ReportTest, UnderTorchrunItIsTorchrunsJson) {
  unsetenv(kErrorFileVariable);
  setenv(kTorchErrorFileVariable, ReportPath(file_).c_str(), 1);
  EXPECT_TRUE(ReportError(absl::InternalError("a \"quoted\" \\ message")));
  std::string text(1000, '\0');
  text.resize(pread(file_.get(), text.data(), text.size(), 0));
  EXPECT_THAT(text, StartsWith(R"({"message": {"message": "a \"quoted\" \\ message", "extraInfo": {"py_callstack": )"));
  EXPECT_EQ(ReadReport(file_)->message, "a \"quoted\" \\ message");
}

TEST(ParseReport, ReadsWhatPythonsRecordWrites) {
  // json.dump of torch.distributed.elastic.multiprocessing.errors.ErrorHandler.record_exception, shortened.
  const std::optional<Report> report = ParseReport(
      R"({"message": {"message": "RuntimeError: caf\u00e9 \"x\"\nline 2", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1"}}})");
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->message, "RuntimeError: caf\xC3\xA9 \"x\" line 2");
  EXPECT_EQ(report->code, absl::StatusCode::kUnknown);
  EXPECT_EQ(report->time_ns, 0);
  EXPECT_EQ(ParseReport(R"({"message": "plain", "timestamp": 1})")->message, "plain");
}

TEST(ParseReport, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"", "{", "{}", "{\"message\":", "{\"message\": \"\\u12", "{\"message\": \"\\", "LOCKSTEP1 ",
                           "LOCKSTEP1 \n", "LOCKSTEP1 99 1 1\nx", "LOCKSTEP1 -1 1 1\nx", "LOCKSTEP1 1 1\nx",
                           "LOCKSTEP1 1 1 -1\nx", "Segmentation fault\n"}) {
    EXPECT_FALSE(ParseReport(text).has_value()) << text;
  }
  EXPECT_EQ(ParseReport("LOCKSTEP1 13 1 400\nshort")->message, "short");
}

TEST_F(ReportTest, TellsAnErrorFromOneThatAnotherRankCaused) {
  EXPECT_FALSE(WasTold(file_));
  EXPECT_TRUE(ReportError(absl::DataLossError("record 7")));
  EXPECT_FALSE(ReadReport(file_)->consequence);
  RecordFailureOfAnotherRank();
  EXPECT_EQ(ReadReport(file_)->message, "record 7");
  EXPECT_FALSE(ReadReport(file_)->consequence) << "it was told afterwards";
  EXPECT_TRUE(WasTold(file_));
}

TEST_F(ReportTest, IsWrittenAfterANoteToo) {
  RecordFailureOfAnotherRank();
  EXPECT_FALSE(ReadReport(file_).has_value());
  EXPECT_TRUE(ReportError(absl::UnavailableError("rank 0 left")));
  EXPECT_FALSE(ReportError(absl::InternalError("a consequence")));
  EXPECT_EQ(ReadReport(file_)->message, "rank 0 left");
  EXPECT_TRUE(ReadReport(file_)->consequence);
}

TEST_F(ReportTest, KnowsAnErrorAgainThatAnotherRankHad) {
  for (int i = 0; i < 10000; ++i) RecordErrorOfAnotherRank(absl::DataLossError("rank 0: record 7\nis damaged"));
  EXPECT_TRUE(ReportError(absl::DataLossError("rank 1: loading: rank 0: record 7\nis damaged")));
  EXPECT_TRUE(ReadReport(file_)->consequence);
  EXPECT_FALSE(WasTold(file_));
}

TEST_F(ReportTest, AnErrorOfItsOwnStaysItsOwnThoughItHeardOfAnother) {
  RecordErrorOfAnotherRank(absl::DataLossError("rank 0: record 7"));
  EXPECT_TRUE(ReportError(absl::DataLossError("record 8")));
  EXPECT_FALSE(ReadReport(file_)->consequence);
  EXPECT_EQ(ReadReport(file_)->message, "record 8");
}

TEST_F(ReportTest, AProcessThatContinuesFailsForItself) {
  RecordFailureOfAnotherRank();
  RecordErrorOfAnotherRank(absl::DataLossError("record 7"));
  ForgetFailuresOfOtherRanks();
  EXPECT_FALSE(WasTold(file_));
  EXPECT_TRUE(ReportError(absl::DataLossError("record 7")));
  EXPECT_FALSE(ReadReport(file_)->consequence);
}

TEST_F(ReportTest, WhatAProcessHasReportedStays) {
  RecordFailureOfAnotherRank();
  EXPECT_TRUE(ReportError(absl::DataLossError("record 7")));
  ForgetFailuresOfOtherRanks();
  EXPECT_TRUE(ReadReport(file_)->consequence);
}

TEST(OneLine, JoinsLinesAndEscapesWhatATerminalWouldObey) {
  EXPECT_EQ(OneLine("  first\r\n\n\tsecond\x1b[2Jthird\n"), "first second\\x1b[2Jthird");
}

TEST(OneLine, CutsWhatIsTooLongBetweenCharacters) {
  const std::string cut = OneLine(std::string(10000, 'x'));
  EXPECT_THAT(cut, SizeIs(kMaxMessage));
  EXPECT_THAT(cut, EndsWith("xxx ... (10000 bytes)"));
  std::string accents;
  for (int i = 0; i < 50; ++i) accents += "\xC3\xA9";
  EXPECT_THAT(OneLine(accents, 40), HasSubstr("\xC3\xA9 ... (100 bytes)"));
  EXPECT_THAT(OneLine(accents, 41), HasSubstr("\xC3\xA9 ... (100 bytes)"));
}

}  // namespace
}  // namespace lockstep::launch
