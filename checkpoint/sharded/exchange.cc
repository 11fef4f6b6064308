#include "lockstep/checkpoint/sharded/exchange.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::internal {
namespace {

// The status's code as one byte, then its message or the value.
std::string Packed(const absl::StatusOr<std::string>& mine) {
  const auto code = static_cast<char>(mine.status().raw_code());
  return absl::StrCat(absl::string_view(&code, 1), mine.ok() ? absl::string_view(*mine) : mine.status().message());
}

absl::StatusOr<std::string> Unpacked(const std::string& packed) {
  if (packed.empty()) return absl::InternalError("it sent no status");
  const auto code = static_cast<absl::StatusCode>(packed.front());
  if (code == absl::StatusCode::kOk) return packed.substr(1);
  return absl::Status(code, absl::string_view(packed).substr(1));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Exchange(comm::ProcessGroup* group, const absl::StatusOr<std::string>& mine) {
  if (group == nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(mine.status());
    return std::vector<std::string>{*mine};
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<std::string> all, group->AllGatherBytes(Packed(mine)));
  const bool shared = std::all_of(all.begin(), all.end(), [&](const std::string& one) { return one == all.front(); });
  if (shared) LOCKSTEP_RETURN_IF_ERROR(mine.status());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    absl::StatusOr<std::string> one = Unpacked(all[rank]);
    LOCKSTEP_RETURN_IF_ERROR(Annotate(one.status(), absl::StrCat("rank ", rank)));
    all[rank] = *std::move(one);
  }
  return all;
}

absl::Status Agree(comm::ProcessGroup* group, const absl::Status& mine) {
  return Exchange(group, mine.ok() ? absl::StatusOr<std::string>(std::string()) : mine).status();
}

}  // namespace lockstep::checkpoint::internal
