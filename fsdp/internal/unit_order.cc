#include "lockstep/fsdp/internal/unit_order.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::fsdp::internal {

absl::StatusOr<UnitOrder::Event> UnitOrder::Agree(Act act, size_t unit, int64_t ahead, int64_t plan) {
  if (mesh_->shard_group()->size() == 1) return Event{act, static_cast<int64_t>(unit), step_};
  Start(act, unit, ahead, plan);
  return Finish();
}

void UnitOrder::Start(Act act, size_t unit, int64_t ahead, int64_t plan) {
  constexpr int64_t kNumbers = sizeof(Event) / sizeof(int64_t);
  comm::ProcessGroup& group = *mesh_->shard_group();
  const at::Tensor mine = at::empty({kNumbers}, at::kLong);
  all_ = at::empty({group.size(), kNumbers}, at::kLong);
  *reinterpret_cast<Event*>(mine.mutable_data_ptr()) = {act, static_cast<int64_t>(unit), step_, ahead, plan};
  work_ = group.AllGatherIntoTensorAsync(all_, mine);
}

absl::StatusOr<UnitOrder::Event> UnitOrder::Finish() {
  comm::Work work = *std::exchange(work_, std::nullopt);
  LOCKSTEP_RETURN_IF_ERROR(work.Wait());
  const Event* const events = reinterpret_cast<const Event*>(all_.const_data_ptr());
  const int places = mesh_->shard_group()->size();
  int first = 0;  // of the places that do not follow
  while (first + 1 < places && events[first].act == Act::kFollow) ++first;
  Event common = events[first];
  for (int place = first + 1; place < places; ++place) {
    if (events[place].act == Act::kFollow) continue;
    if (events[place].plan != common.plan || events[place].ahead != common.ahead) common.plan = 0;
    if (events[place] == common) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", mesh_->group()->rank(), ": fully sharded training: the ranks use units in different orders: rank ",
        mesh_->RankAt(first), " ", TextOf(common), ", rank ", mesh_->RankAt(place), " ", TextOf(events[place])));
  }
  if (common.plan == 0) common.ahead = -1;
  return common;
}

std::string UnitOrder::TextOf(const Event& event) const {
  const std::string in_step = absl::StrCat(" in step ", event.step);
  if (event.act == Act::kFull) return absl::StrCat("opens FullParameters()", in_step);
  const bool known = event.unit >= 0 && event.unit < static_cast<int64_t>(names_.size());
  const char* const verb = event.act == Act::kGather ? "gathers" : event.act == Act::kReduce ? "reduces" : "uses";
  return absl::StrCat(verb, " the unit of ", known ? names_[event.unit] : absl::StrCat("number ", event.unit), in_step);
}

}  // namespace lockstep::fsdp::internal
