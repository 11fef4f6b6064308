// Why a rank gave up, for the ranks that it leaves behind.

#ifndef LOCKSTEP_DDP_INTERNAL_PARTING_NOTE_H_
#define LOCKSTEP_DDP_INTERNAL_PARTING_NOTE_H_

#include <string>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::internal {

// A note in the group's store. A rank whose backward lacked gradients leaves it, in case the rank ends because of that.
// The other ranks then get an error of the group, and add the note to it. In a group with Python ranks it does nothing.
class PartingNote {
 public:
  // All ranks must make one, in the same order as other users of the group's keys.
  explicit PartingNote(comm::ProcessGroup* group);

  // Blocks until the store has the note, for the group's timeout at most. The error is the store's.
  absl::Status Leave(const std::string& text);

  // `error`, followed by the note if there is one and the group failed. Asks the store for at most a second.
  absl::Status Explain(const absl::Status& error) const;

 private:
  comm::ProcessGroup& group_;
  const std::string key_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_PARTING_NOTE_H_
