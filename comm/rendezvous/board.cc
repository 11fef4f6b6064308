#include "lockstep/comm/rendezvous/board.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/secret/job_secret.h"
#include "lockstep/comm/store/internal/c10d_stores.h"

namespace lockstep::comm {
namespace {

// No rank writes more than this. A stranger may, if the store is not sealed.
constexpr size_t kMostMemberBytes = size_t{64} << 10;
constexpr size_t kMostExcerptBytes = 100;

absl::Status CheckOurs(const std::string& key, const std::string& value) {
  if (!IsSealed(value)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("\"", key, "\" was written by a rank with a job secret, and this rank has none"));
}

// Calls the store. Returns PermissionDenied, and throws any other error.
template <typename Call>
auto Ask(const Call& call) {
  auto answer = TorchStatusOr("", call);
  if (!answer.ok() && !absl::IsPermissionDenied(answer.status())) ThrowIfError(answer.status());
  return answer;
}

absl::StatusOr<Member> ToMember(int rank, const std::string& text) {
  absl::StatusOr<Member> member =
      text.size() <= kMostMemberBytes ? DecodeMember(text) : absl::InvalidArgumentError("too long");
  if (member.ok()) return member;
  return absl::InternalError(
      absl::StrCat("\"", MemberKey(rank), "\" does not hold a rank's announcement, but ", Excerpt(text)));
}

}  // namespace

std::string MemberKey(int rank) { return absl::StrCat("lockstep/member/", rank); }
std::string PythonKey(int rank) { return absl::StrCat("default_pg/0//cpu//0/", rank); }

std::string Excerpt(absl::string_view text) {
  const std::string start = absl::CHexEscape(text.substr(0, kMostExcerptBytes));
  if (text.size() <= kMostExcerptBytes) return absl::StrCat("\"", start, "\"");
  return absl::StrCat("\"", start, "...\" (", text.size(), " bytes)");
}

Board::Board(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)), place_(internal::Describe(store_)) {}

bool Board::Has(const std::vector<std::string>& keys) { return store_->check(keys); }

int64_t Board::CountKeys() { return store_->getNumKeys(); }

bool Board::Await(const std::vector<std::string>& keys, absl::Duration patience) {
  const absl::Duration least = absl::Milliseconds(1);
  const absl::Status status =
      TorchStatus("", [&] { store_->wait(keys, absl::ToChronoMilliseconds(std::max(patience, least))); });
  if (!absl::IsDeadlineExceeded(status)) ThrowIfError(status);
  return status.ok();
}

absl::StatusOr<std::string> Board::Read(const std::string& key) {
  absl::StatusOr<std::string> value = Ask([&] { return store_->get_to_str(key); });
  if (value.ok()) LOCKSTEP_RETURN_IF_ERROR(CheckOurs(key, *value));
  return value;
}

absl::StatusOr<std::vector<std::string>> Board::ReadAll(const std::vector<std::string>& keys) {
  const auto bytes = Ask([&] { return store_->multiGet(keys); });
  if (!bytes.ok()) return bytes.status();
  std::vector<std::string> values;
  for (size_t i = 0; i < keys.size(); ++i) {
    values.emplace_back(bytes->at(i).begin(), bytes->at(i).end());
    LOCKSTEP_RETURN_IF_ERROR(CheckOurs(keys[i], values.back()));
  }
  return values;
}

absl::StatusOr<Member> Board::ReadMember(int rank) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, Read(MemberKey(rank)));
  return ToMember(rank, text);
}

absl::StatusOr<std::vector<Member>> Board::ReadMembers(const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(MemberKey(rank));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> texts, ReadAll(keys));
  std::vector<Member> members;
  for (size_t i = 0; i < ranks.size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(Member member, ToMember(ranks[i], texts[i]));
    members.push_back(std::move(member));
  }
  return members;
}

void Board::Put(const std::string& key, const std::string& value) { store_->set(key, value); }

absl::StatusOr<std::string> Board::PutFirst(const std::string& key, const std::string& value) {
  absl::StatusOr<std::string> first = Ask([&] { return store_->compareSet(key, "", value); });
  if (first.ok()) LOCKSTEP_RETURN_IF_ERROR(CheckOurs(key, *first));
  return first;
}

}  // namespace lockstep::comm
