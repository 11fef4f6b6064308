#include "lockstep/fsdp/internal/unit_order.h"

#include <ATen/ops/empty.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::fsdp::internal {

absl::StatusOr<UnitOrder::Event> UnitOrder::Agree(Act act, size_t unit) const {
  const Event own{act, static_cast<int64_t>(unit), step_};
  if (group_->size() == 1) return own;
  const at::Tensor mine = at::empty({3}, at::kLong), all = at::empty({group_->size(), 3}, at::kLong);
  *reinterpret_cast<Event*>(mine.mutable_data_ptr()) = own;
  LOCKSTEP_RETURN_IF_ERROR(group_->AllGatherIntoTensor(all, mine));
  const Event* const events = reinterpret_cast<const Event*>(all.const_data_ptr());
  int first = 0;
  while (first + 1 < group_->size() && events[first].act == Act::kFollow) ++first;
  for (int rank = first + 1; rank < group_->size(); ++rank) {
    if (events[rank].act == Act::kFollow || events[rank] == events[first]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", group_->rank(), ": fully sharded training: the ranks use units in different orders: rank ", first, " ",
        TextOf(events[first]), ", rank ", rank, " ", TextOf(events[rank])));
  }
  return events[first];
}

std::string UnitOrder::TextOf(const Event& event) const {
  const std::string in_step = absl::StrCat(" in step ", event.step);
  if (event.act == Act::kFull) return absl::StrCat("opens FullParameters()", in_step);
  const bool known = event.unit >= 0 && event.unit < static_cast<int64_t>(names_.size());
  return absl::StrCat(event.act == Act::kGather ? "gathers" : "reduces", " the unit of ",
                      known ? names_[event.unit] : absl::StrCat("number ", event.unit), in_step);
}

}  // namespace lockstep::fsdp::internal
