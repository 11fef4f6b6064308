#include "lockstep/ddp/internal/parting_note.h"

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/comm/internal/group_access.h"

namespace lockstep::ddp::internal {
namespace {

// The time that an error waits for the note of the rank that may have caused it.
constexpr absl::Duration kPatience = absl::Seconds(1);

}  // namespace

PartingNote::PartingNote(comm::ProcessGroup* group)
    : group_(*group), key_(comm::internal::GroupAccess::NextKey(*group, "ddp_no_gradient")) {}

absl::Status PartingNote::Leave(const std::string& text) {
  if (!comm::internal::GroupAccess::OnlyLockstepRanks(group_)) return absl::OkStatus();
  const auto leave = [key = key_, text](c10d::Store& store) {
    store.set(key, text);
    return absl::OkStatus();
  };
  return group_.CallStore(absl::Now() + group_.timeout(), leave);
}

absl::Status PartingNote::Explain(const absl::Status& error) const {
  if (!comm::internal::GroupAccess::OnlyLockstepRanks(group_)) return error;
  // After a timeout the store may be on a stopped rank, which would not answer, and the note is not worth the wait. If
  // the rank that served the store is gone, `error` is returned alone.
  if (!absl::IsUnavailable(error) && !absl::IsAborted(error)) return error;
  const auto note = std::make_shared<std::string>();
  const auto read = [key = key_, note](c10d::Store& store) {
    if (store.check({key})) *note = store.get_to_str(key);
    return absl::OkStatus();
  };
  if (!group_.CallStore(absl::Now() + kPatience, read).ok() || note->empty()) return error;
  return absl::Status(error.code(), absl::StrCat(error.message(), "; before that, ", *note));
}

}  // namespace lockstep::ddp::internal
