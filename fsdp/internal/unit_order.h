// The order in which the ranks gather and reduce units, compared before each does. What they gather ahead is compared
// with the event before.

#ifndef LOCKSTEP_FSDP_INTERNAL_UNIT_ORDER_H_
#define LOCKSTEP_FSDP_INTERNAL_UNIT_ORDER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/fsdp/internal/mesh.h"

namespace lockstep::fsdp::internal {

class UnitOrder {
 public:
  enum class Act : int64_t {
    kFollow,  // this rank does what the others do
    kGather,
    kReduce,
    kFull,  // gathers all units
    kUse,   // uses a unit that it has gathered ahead
  };
  struct Event {
    Act act = Act::kFollow;
    int64_t unit = 0;
    int64_t step = 0;
    int64_t ahead = -1;  // the unit that is gathered next, before the ranks agree on more; -1: none
    int64_t plan = 0;    // UnitSequence::Fingerprint(). If it differs between the ranks, they gather none ahead
    friend bool operator==(const Event& a, const Event& b) {
      return a.act == b.act && a.unit == b.unit && a.step == b.step;
    }
  };

  // `names` are the units'. `mesh` is borrowed. The ranks of a shard group compare.
  UnitOrder(const Mesh* mesh, std::vector<std::string> names) : mesh_(mesh), names_(std::move(names)) {}

  // Tells the other ranks what this rank does next, and returns what all of them do that do not follow: kFollow if
  // there is none. Every rank must call it. FailedPrecondition, on all ranks: two of them do different things; both are
  // named.
  absl::StatusOr<Event> Agree(Act act, size_t unit = 0, int64_t ahead = -1, int64_t plan = 0);
  // Agree() in two parts, the second of which blocks. Nothing else may be agreed on in between.
  void Start(Act act, size_t unit, int64_t ahead, int64_t plan);
  absl::StatusOr<Event> Finish();
  bool pending() const { return work_.has_value(); }

  // A step has ended. Ranks that are in different steps do different things.
  void NextStep() { ++step_; }

 private:
  std::string TextOf(const Event& event) const;

  const Mesh* const mesh_;
  const std::vector<std::string> names_;
  int64_t step_ = 0;
  at::Tensor all_;  // the ranks' events, while they are exchanged
  std::optional<comm::Work> work_;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_UNIT_ORDER_H_
