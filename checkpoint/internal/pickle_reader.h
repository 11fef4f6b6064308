// A restricted unpickler: builds plain data and descriptions of tensors, runs nothing, and knows only the objects of
// pickle_globals.h.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const PickleGraph graph, ReadPickle(bytes, 64 << 20));
//
// It reads protocols 2 to 5, never recurses, and stops when what it has read would need more than `memory_limit` bytes
// (ResourceExhausted); that counts the values later made of the graph, but not tensors' data. `pickle` must outlive the
// graph, which refers to it. Errors are DataLoss (damaged), which names the byte, InvalidArgument (an object that is
// not allowed) and Unimplemented (one that is not supported). These two name the path to the object, as
// ["optimizer"]["lr"], or the byte if the pickle cannot be read to its end.
//
// With `classes` it also takes objects of these, as descriptions (PickleObject) that the caller makes sense of; they
// too may be keys of dicts. Ordinary .pt files are read with none.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_PICKLE_READER_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_PICKLE_READER_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/internal/pickle_globals.h"
#include "lockstep/checkpoint/internal/pickle_graph.h"

namespace lockstep::checkpoint::internal {

absl::StatusOr<PickleGraph> ReadPickle(absl::string_view pickle, size_t memory_limit,
                                       const PickleClasses& classes = {});

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_PICKLE_READER_H_
