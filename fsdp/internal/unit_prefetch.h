// The unit that is gathered ahead: which one, and that all ranks gather it.

#ifndef LOCKSTEP_FSDP_INTERNAL_UNIT_PREFETCH_H_
#define LOCKSTEP_FSDP_INTERNAL_UNIT_PREFETCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/fsdp/internal/mesh.h"
#include "lockstep/fsdp/internal/unit_order.h"
#include "lockstep/fsdp/internal/unit_sequence.h"

namespace lockstep::fsdp::internal {

// All ranks agree on a unit before they gather it ahead, without a wait for that: they do so one use before, or when they
// agree on a reduction. A unit that they have agreed on is gathered by all of them, right before they agree on more, even
// if a rank has seen by then that it needs another. So every rank issues the same calls.
class UnitPrefetch {
 public:
  // Returns whether this rank has the unit, or gathers it already.
  using Has = std::function<bool(size_t unit)>;

  // `mesh` is borrowed. `names` are the units'. If it is not `on`, no unit is gathered ahead.
  UnitPrefetch(const Mesh* mesh, std::vector<std::string> names, bool on)
      : on_(on && mesh->shard_group()->size() > 1), order_(mesh, std::move(names)) {}

  // Each forward that does not train is expected to be as the last such one.
  void BeginForward(bool trains);
  // A step has ended.
  void EndStep();

  // Returns whether operators used another unit before this one.
  bool Switches(size_t unit) const { return on_ && used_ != static_cast<int64_t>(unit); }
  // Operators begin to use the unit; it is about to be reduced.
  void Uses(size_t unit);
  void Reduces(size_t unit) { sequence_->Add({/*reduces=*/true, unit}); }

  // Returns the unit that all ranks gather now, or -1. Must be called before each function that agrees. Blocks until the
  // ranks have compared what they do, and returns the errors of UnitOrder::Agree().
  absl::StatusOr<int64_t> TakeAgreed();

  // The ranks agree to gather a unit, to reduce one, or to do something else.
  absl::Status AgreeToGather(size_t unit, const Has& has);
  absl::Status AgreeToReduce(size_t unit, const Has& has);
  absl::StatusOr<UnitOrder::Event> Agree(UnitOrder::Act act, size_t unit = 0, int64_t ahead = -1);
  // The ranks begin to agree on the unit after the next, if they do not agree on a reduction before that.
  void Plan(size_t unit, const Has& has);

 private:
  int64_t NextToGather(size_t uses, const Has& has) const;

  const bool on_;
  UnitOrder order_;
  UnitSequence training_, evaluation_;
  UnitSequence* sequence_ = &training_;  // that of the last forward
  int64_t used_ = -1;                    // the unit that operators use
  int64_t agreed_ = -1;                  // the unit that is to be gathered ahead
  bool alike_ = false;                   // all ranks expect the same of this forward and its backward
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_UNIT_PREFETCH_H_
