#include "lockstep/comm/watch/internal/frame.h"

#include <random>

#include "gtest/gtest.h"

namespace lockstep::comm::internal {
namespace {

Frame Example() { return {Frame::Type::kTimeout, 3, 4, (int64_t{1} << 40) + 5, -6, "all_reduce"}; }

void ExpectSame(const Frame& a, const Frame& b) {
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.code, b.code);
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.value, b.value);
  EXPECT_EQ(a.text, b.text);
}

TEST(Frame, SurvivesItsBytesHoweverTheyArrive) {
  const std::string bytes = Encode(Example()) + Encode({Frame::Type::kWelcome}) + Encode(Example());
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.Append(bytes.data() + at, std::min(piece, bytes.size() - at));
      for (auto frame = reader.Next().value(); frame; frame = reader.Next().value()) frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 3u);
    ExpectSame(frames[0], Example());
    ExpectSame(frames[1], {Frame::Type::kWelcome});
    ExpectSame(frames[2], Example());
  }
}

TEST(Frame, CutsATextThatIsTooLong) {
  Frame frame = Example();
  frame.text.assign(kMaxFrameText + 5, 'x');
  FrameReader reader;
  const std::string bytes = Encode(frame);
  reader.Append(bytes.data(), bytes.size());
  EXPECT_EQ(reader.Next().value()->text.size(), kMaxFrameText);
}

std::string Refusal(const std::string& bytes, size_t max_text = kMaxFrameText) {
  FrameReader reader(max_text);
  reader.Append(bytes.data(), bytes.size());
  const auto frame = reader.Next();
  return frame.ok() ? "" : std::string(frame.status().message());
}

TEST(FrameReader, RefusesWhatIsNoFrameAtItsFirstBytes) {
  EXPECT_EQ(Refusal("GET / HTTP/1.1\r\n"), "a frame of 542393671 bytes");
  EXPECT_EQ(Refusal(std::string(4, '\0')), "a frame of 0 bytes");
  EXPECT_EQ(Refusal(std::string("\x19\0\0\0\0", 5)), "a frame of type 0");
  EXPECT_EQ(Refusal(std::string("\x19\0\0\0\xff", 5)), "a frame of type 255");
  EXPECT_EQ(Refusal(Encode(Example()), 9), "a frame of 35 bytes");
}

// Nothing that anybody sends may crash it, make it wait with a megabyte in hand, or make it return more than came.
TEST(FrameReader, SurvivesRandomAndDamagedStreams) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    if (i % 2 == 0) {
      bytes.resize(random() % 100);
      for (char& byte : bytes) byte = static_cast<char>(random());
    } else {
      bytes = Encode(Example()) + Encode(Example());
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << (random() % 8));
      bytes.resize(bytes.size() - random() % 5);
    }
    FrameReader reader(64);
    size_t found = 0;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min<size_t>(1 + random() % 40, bytes.size() - at);
      reader.Append(bytes.data() + at, size);
      at += size;
      auto frame = reader.Next();
      for (; frame.ok() && frame->has_value(); frame = reader.Next()) found += 29 + (*frame)->text.size();
      if (!frame.ok()) break;
    }
    ASSERT_LE(found, bytes.size());
  }
}

}  // namespace
}  // namespace lockstep::comm::internal
