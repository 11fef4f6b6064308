#include "lockstep/comm/rendezvous/roster.h"

#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lockstep::comm {
namespace {

// The texts of a roster, each of which is written once. A rank's line refers to it by its number.
class Texts {
 public:
  size_t NumberOf(const std::string& text) {
    const auto [found, is_new] = numbers_.emplace(text, numbers_.size());
    if (is_new) absl::StrAppend(&written_, text.size(), ":", text);
    return found->second;
  }
  std::string Encode() const { return absl::StrCat(numbers_.size(), "\n", written_); }

 private:
  std::map<std::string, size_t> numbers_;
  std::string written_;
};

// Takes what ends with `end` off the front.
bool ConsumeUntil(char end, absl::string_view& text, absl::string_view& taken) {
  const size_t position = text.find(end);
  if (position == absl::string_view::npos) return false;
  taken = text.substr(0, position);
  text.remove_prefix(position + 1);
  return true;
}

template <typename Number>
bool ConsumeNumber(char end, absl::string_view& text, Number& number) {
  absl::string_view digits;
  return ConsumeUntil(end, text, digits) && absl::SimpleAtoi(digits, &number);
}

bool ConsumeTexts(absl::string_view& text, std::vector<std::string>& texts) {
  size_t count = 0;
  if (!ConsumeNumber('\n', text, count)) return false;
  for (size_t i = 0; i < count; ++i) {
    size_t size = 0;
    if (!ConsumeNumber(':', text, size) || size > text.size()) return false;
    texts.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return true;
}

// The fields that ranks of a host share.
std::string EncodePlace(const RankIdentity& identity) {
  RankIdentity place = identity;
  place.rank = place.pid = 0;
  place.start_time = 0;
  return EncodeIdentity(place);
}

using Places = std::vector<RankIdentity>;

bool DecodePlaces(const std::vector<std::string>& texts, Places& places) {
  for (const std::string& text : texts) {
    absl::StatusOr<RankIdentity> place = DecodeIdentity(text);
    if (!place.ok()) return false;
    places.push_back(*std::move(place));
  }
  return true;
}

// A rank's line: token, pid, start time, place, facts. Empty for a Python rank.
bool DecodeLine(absl::string_view line, int rank, const Places& places, const std::vector<std::string>& facts,
                std::optional<Member>& member) {
  if (line.empty()) return true;
  absl::string_view token;
  int pid = 0;
  uint64_t start_time = 0;
  size_t place = 0, fact = 0;
  if (!ConsumeUntil(' ', line, token) || !ConsumeNumber(' ', line, pid) || !ConsumeNumber(' ', line, start_time) ||
      !ConsumeNumber(' ', line, place) || !absl::SimpleAtoi(line, &fact) || place >= places.size() ||
      fact >= facts.size()) {
    return false;
  }
  member = Member{std::string(token), places[place], facts[fact]};
  member->identity.rank = rank;
  member->identity.pid = pid;
  member->identity.start_time = start_time;
  return true;
}

bool Decode(absl::string_view text, Roster& roster) {
  std::vector<std::string> place_texts, facts;
  Places places;
  size_t ranks = 0;
  if (!ConsumeTexts(text, place_texts) || !DecodePlaces(place_texts, places) || !ConsumeTexts(text, facts) ||
      !ConsumeNumber('\n', text, ranks) || ranks > text.size()) {
    return false;
  }
  roster.reserve(ranks);  // at most the length of the text
  for (size_t rank = 0; rank < ranks; ++rank) {
    absl::string_view line;
    std::optional<Member> member;
    if (!ConsumeUntil('\n', text, line) || !DecodeLine(line, static_cast<int>(rank), places, facts, member)) {
      return false;
    }
    roster.push_back(std::move(member));
  }
  return text.empty();
}

}  // namespace

std::string EncodeMember(const Member& member) {
  return absl::StrCat(member.token, "\n", EncodeIdentity(member.identity), "\n", member.facts);
}

absl::StatusOr<Member> DecodeMember(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('\n', 2));
  if (parts.size() != 3) return absl::InvalidArgumentError("expected a token, an identity and facts");
  absl::StatusOr<RankIdentity> identity = DecodeIdentity(parts[1]);
  if (!identity.ok()) return identity.status();
  return Member{std::string(parts[0]), *std::move(identity), std::string(parts[2])};
}

std::string EncodeRoster(const Roster& roster) {
  Texts places, facts;
  std::string lines;
  for (const std::optional<Member>& member : roster) {
    if (member) {
      absl::StrAppend(&lines, member->token, " ", member->identity.pid, " ", member->identity.start_time, " ",
                      places.NumberOf(EncodePlace(member->identity)), " ", facts.NumberOf(member->facts));
    }
    lines += '\n';
  }
  return absl::StrCat(places.Encode(), facts.Encode(), roster.size(), "\n", lines);
}

absl::StatusOr<Roster> DecodeRoster(absl::string_view text) {
  Roster roster;
  if (Decode(text, roster)) return roster;
  return absl::InvalidArgumentError("expected the announcements of all ranks");
}

}  // namespace lockstep::comm
