// The order in which the ranks gather and reduce units, compared before each does.

#ifndef LOCKSTEP_FSDP_INTERNAL_UNIT_ORDER_H_
#define LOCKSTEP_FSDP_INTERNAL_UNIT_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::fsdp::internal {

class UnitOrder {
 public:
  enum class Act : int64_t {
    kFollow,  // this rank does what the others do
    kGather,
    kReduce,
    kFull,  // gathers all units
  };
  struct Event {
    Act act = Act::kFollow;
    int64_t unit = 0;
    int64_t step = 0;
    friend bool operator==(const Event& a, const Event& b) {
      return a.act == b.act && a.unit == b.unit && a.step == b.step;
    }
  };

  // `names` are the units'. `group` is borrowed.
  UnitOrder(comm::ProcessGroup* group, std::vector<std::string> names) : group_(group), names_(std::move(names)) {}

  // Tells the other ranks what this rank does next, and returns what all of them do that do not follow. Every rank must
  // call it. FailedPrecondition, on all ranks: two of them do different things; both are named.
  absl::StatusOr<Event> Agree(Act act, size_t unit = 0) const;

  // A step has ended. Ranks that are in different steps do different things.
  void NextStep() { ++step_; }

 private:
  std::string TextOf(const Event& event) const;

  comm::ProcessGroup* const group_;
  const std::vector<std::string> names_;
  int64_t step_ = 0;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_UNIT_ORDER_H_
