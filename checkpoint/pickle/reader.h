// A restricted unpickler: creates plain data and descriptions of tensors, executes nothing, and accepts only the
// objects of globals.h.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const PickleGraph graph, ReadPickle(bytes, 64 << 20));
//
// It reads protocols 2 to 5, never recurses, and stops with ResourceExhausted if the data would need more than
// `memory_limit` bytes. This includes the values later created from the graph, but not the data of tensors. `pickle`
// must outlive the graph, which refers to it. Errors: DataLoss (damaged), which names the byte; InvalidArgument (an
// object is not allowed); Unimplemented (an object is not supported). The latter two name the path to the object, such
// as ["optimizer"]["lr"], or the byte if the pickle cannot be read to its end.
//
// With `classes` it also accepts objects of these, as descriptions (PickleObject) for the caller to interpret. They may
// also be keys of dicts. Ordinary .pt files are read without classes.

#ifndef LOCKSTEP_CHECKPOINT_PICKLE_READER_H_
#define LOCKSTEP_CHECKPOINT_PICKLE_READER_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/pickle/globals.h"
#include "lockstep/checkpoint/pickle/graph.h"

namespace lockstep::checkpoint::pickle {

// The memory to allow for each byte of a pickle, besides a limit that does not depend on its size. A tensor takes about
// 120 bytes of a pickle and up to 5 KiB once it is read; a part of a tensor in a sharded checkpoint's .metadata 200
// bytes and 6 KiB.
constexpr size_t kPickleMemoryPerByte = 64;

absl::StatusOr<PickleGraph> ReadPickle(absl::string_view pickle, size_t memory_limit,
                                       const PickleClasses& classes = {});

// Reads the same pickles, but objects that are refused stay in the graph, as nodes of kind kRefused. The caller chooses
// the part of the value that it needs as the graph's root, and calls CheckRefused().
absl::StatusOr<PickleGraph> ReadPickleParts(absl::string_view pickle, size_t memory_limit,
                                            const PickleClasses& classes = {});

// The error of the first refused object below the root, with its path; OK if there is none. Takes time and memory in
// proportion to the graph.
absl::Status CheckRefused(const PickleGraph& graph);

struct FirstPickle {
  PickleGraph graph;
  size_t size = 0;
};

// ReadPickleParts() of the pickle with which `bytes` begins. OutOfRange: `bytes` ends before the pickle does.
absl::StatusOr<FirstPickle> ReadFirstPickle(absl::string_view bytes, size_t memory_limit,
                                            const PickleClasses& classes = {});

}  // namespace lockstep::checkpoint::pickle

#endif  // LOCKSTEP_CHECKPOINT_PICKLE_READER_H_
