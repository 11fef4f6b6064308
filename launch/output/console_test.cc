#include "lockstep/launch/output/console.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/launch/output/held_signals.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

std::string NumberedLines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) absl::StrAppend(&lines, "[default0]:line ", i, "\n");
  return lines;
}

std::string ReadWhatIsThere(int fd) {
  std::string text(1 << 20, '\0');
  const ssize_t n = read(fd, text.data(), text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

std::pair<UniqueFd, UniqueFd> NewPipe() {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Writes more than the reader takes, and then reads all of it.
void ExpectNotToBlock(int reader, int writer) {
  Console console(writer);
  const std::string lines = NumberedLines(100000);
  *console.lines() = lines;
  EXPECT_EQ(console.Write(), 0);
  EXPECT_TRUE(console.waiting());
  std::string text;
  while (text.size() < lines.size()) {
    text += ReadWhatIsThere(reader);
    EXPECT_EQ(console.Write(), 0);
  }
  EXPECT_TRUE(text == lines);
  EXPECT_FALSE(console.waiting());
}

TEST(Console, DoesNotWaitForTheReaderOfAPipe) {
  const auto [reader, writer] = NewPipe();
  ExpectNotToBlock(reader.get(), writer.get());
  EXPECT_EQ(fcntl(writer.get(), F_GETFL) & O_NONBLOCK, 0) << "others who share the pipe would get EAGAIN";
}

TEST(Console, DoesNotWaitForTheReaderOfASocket) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  ExpectNotToBlock(reader.get(), writer.get());
}

TEST(Console, WritesWholeLinesAtOnce) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  Console console(writer.get());
  const std::string lines = NumberedLines(1000) + std::string(5000, 'x') + "\n";
  *console.lines() = lines;
  std::string text;
  int cut = 0;  // pieces that end inside a line
  while (text.size() < lines.size()) {
    EXPECT_EQ(console.Write(), 0);
    const std::string piece = ReadWhatIsThere(reader.get());
    EXPECT_LE(piece.size(), 4096);
    cut += piece.back() != '\n';
    text += piece;
  }
  EXPECT_TRUE(text == lines);
  EXPECT_EQ(cut, 1) << "in the line of 5000 bytes";
}

TEST(Console, AppendsToAFile) {
  const std::string path = testing::NewFolder() + "out";
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  Console console(file.get());
  *console.lines() = "one\n";
  EXPECT_EQ(console.Write(), 0);
  ASSERT_EQ(write(file.get(), "two\n", 4), 4);
  *console.lines() = "three\n";
  EXPECT_EQ(console.Write(), 0);
  EXPECT_EQ(testing::ReadFile(path), "one\ntwo\nthree\n") << "the offset is shared with the ranks";
}

TEST(Console, DiscardsLinesAfterAnError) {
  const HeldSignals held;
  auto [reader, writer] = NewPipe();
  Console console(writer.get());
  reader.Close();
  *console.lines() = "one\n";
  EXPECT_EQ(console.Write(), EPIPE);
  EXPECT_FALSE(console.waiting());
  *console.lines() = "two\n";
  EXPECT_EQ(console.Write(), 0) << "the error is returned once";
  EXPECT_FALSE(console.waiting());
}

TEST(Console, DiscardsLinesIfTheStreamIsClosed) {
  Console console(1000);
  *console.lines() = "one\n";
  EXPECT_EQ(console.Write(), 0);
  EXPECT_FALSE(console.waiting());
  EXPECT_FALSE(console.colored());
}

TEST(Console, IsColoredOnATerminal) {
  const UniqueFd terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal.valid() && grantpt(terminal.get()) == 0 && unlockpt(terminal.get()) == 0);
  const UniqueFd line(open(ptsname(terminal.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  unsetenv("NO_COLOR");
  EXPECT_TRUE(Console(line.get()).colored());
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(Console(line.get()).colored());
  unsetenv("NO_COLOR");
  EXPECT_FALSE(Console(NewPipe().second.get()).colored());
}

TEST(HeldSignals, GoWithTheWrites) {
  signal(SIGPIPE, SIG_DFL);  // Bazel ignores it
  auto [reader, writer] = NewPipe();
  reader.Close();
  {
    const HeldSignals held;
    EXPECT_EQ(write(writer.get(), "x", 1), -1);
  }
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGPIPE), 0);
}

}  // namespace
}  // namespace lockstep::launch
