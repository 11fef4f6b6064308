#include "lockstep/ddp/internal/gather_texts.h"

#include <algorithm>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/group_access.h"

namespace lockstep::ddp::internal {
namespace {

// The most keys of one request. A request has at most 64 KiB of keys.
constexpr int kMostKeys = 128;

}  // namespace

absl::StatusOr<std::vector<std::string>> GatherTexts(comm::ProcessGroup& group, absl::string_view purpose,
                                                     const std::string& mine, absl::string_view doing) {
  const std::string prefix = comm::internal::GroupAccess::NextKey(group, purpose);
  const auto texts = std::make_shared<std::vector<std::string>>();
  const auto gather = [=, own = group.rank(), size = group.size()](c10d::Store& store) {
    const auto key = [&](int rank) { return absl::StrCat(prefix, "/", rank); };
    store.set(key(own), mine);
    for (int begin = 0; begin < size; begin += kMostKeys) {
      std::vector<std::string> keys;
      for (int rank = begin; rank < std::min(size, begin + kMostKeys); ++rank) keys.push_back(key(rank));
      for (const auto& bytes : store.multiGet(keys)) texts->emplace_back(bytes.begin(), bytes.end());
    }
    return absl::OkStatus();
  };
  const absl::Status status = group.CallStore(absl::Now() + group.timeout(), gather);
  if (!status.ok()) return Annotate(status, doing);
  return *texts;
}

}  // namespace lockstep::ddp::internal
