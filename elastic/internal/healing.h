// Gives ranks the state of other ranks, from memory to memory.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_HEALING_H_
#define LOCKSTEP_ELASTIC_INTERNAL_HEALING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/elastic/internal/healing_plan.h"
#include "lockstep/elastic/internal/kept_state.h"

namespace lockstep::elastic::internal {

// Decides who gets whose state. All ranks must call it.
//
// InvalidArgument: the ranks keep things of different names. If some ranks have a state, only the ranks that differ
// from them get this error, for which IsUnfit() is true, and the others get Aborted. DataLoss: no rank has a state.
absl::StatusOr<Healing> AgreeOnHealing(comm::ProcessGroup& group, const Progress& progress, const KeptState& kept);

// Does so. All ranks must call it, if there are receivers. `in_place`: a receiver's own state does not count any more,
// and is destroyed. InvalidArgument: a receiver's things differ from the source's; IsUnfit() is true
// if these have completed a step. DataLoss: bytes changed on the way.
//
// Each source sends a part of the large tensors. The number of messages grows with their size, and by one for each
// source: see TransferTensors().
absl::Status Heal(comm::ProcessGroup& group, const Healing& healing, bool in_place, KeptState* kept);

// IsUnfit() returns whether this rank cannot work with the others, since it keeps other things. IsWithUnfit() returns
// whether another rank cannot.
bool IsUnfit(const absl::Status& status);
bool IsWithUnfit(const absl::Status& status);

// Moves the bytes of large tensors. `tensors` are contiguous, on the CPU, and of the same names and sizes on all ranks;
// a rank that neither sends nor receives needs only the sizes. With at most as many receivers as sources, a receiver
// gets one message for each piece of kPieceBytes, and from each source one with the hashes. Otherwise the sources
// broadcast these.
absl::Status TransferTensors(comm::ProcessGroup& group, const Healing& healing,
                             const std::vector<NamedTensor>& tensors);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_HEALING_H_
