// The contents of a pickle before any tensor is created: flat tables of strings, containers, objects, storages and
// tensors, and nodes that refer to them.
//
// Two nodes with one kind and index are one Python object, so aliasing is kept. A list may even contain itself.

#ifndef LOCKSTEP_CHECKPOINT_PICKLE_GRAPH_H_
#define LOCKSTEP_CHECKPOINT_PICKLE_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep::checkpoint::pickle {

enum class PickleKind : uint8_t {
  kNone,
  kBool,     // boolean
  kInt,      // integer
  kDouble,   // real
  kString,   // index into strings
  kBytes,    // index into strings
  kList,     // index into sequences
  kTuple,    // index into sequences
  kDict,     // index into dicts
  kTensor,   // index into tensors
  kObject,   // index into objects; only if the reader was given classes
  kStorage,  // index into storages; in a finished value only as an argument of an object
  kGlobal,   // index into the reader's table; in a finished value only as an argument of an object
  kRefused,  // index into refused; never in a value that CheckRefused accepts
  kUnset,    // a hole in the memo; never in a finished value
};

struct PickleNode {
  PickleKind kind = PickleKind::kNone;
  // For a kDouble that is NaN: its number among the pickle's NaN objects. It distinguishes them as keys of a dict.
  uint32_t nan = 0;
  union {
    int64_t integer = 0;
    bool boolean;
    double real;
    uint32_t index;
  };
};

inline PickleNode IntNode(int64_t value) {
  PickleNode node;
  node.kind = PickleKind::kInt;
  node.integer = value;
  return node;
}

inline PickleNode BoolNode(bool value) {
  PickleNode node;
  node.kind = PickleKind::kBool;
  node.boolean = value;
  return node;
}

enum class PickleDictKind : uint8_t { kDict, kOrderedDict, kCounter };

struct PickleDict {
  PickleDictKind kind = PickleDictKind::kDict;
  std::vector<std::pair<PickleNode, PickleNode>> entries;
  PickleNode attributes;  // None or a dict
};

// Describes the object that `module`.`name`(*arguments), followed by setting `state`, would create. Nothing is called.
struct PickleObject {
  absl::string_view module;
  absl::string_view name;
  PickleNode arguments;  // a tuple
  PickleNode state;      // None if it has no state
};

struct PickleStorage {
  absl::string_view type;      // such as "FloatStorage" or "UntypedStorage"
  absl::string_view key;       // record data/`key`
  absl::string_view location;  // such as "cpu" or "cuda:0"
  int64_t count = 0;           // elements of its type; bytes of an UntypedStorage
};

struct PickleTensor {
  // An old tensor gets its storage after its creation, if at all.
  static constexpr uint32_t kNoStorage = UINT32_MAX;
  uint32_t storage = kNoStorage;
  absl::string_view dtype;  // such as "uint16"; empty: determined by the storage's type
  int64_t offset = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  bool requires_grad = false;
  bool parameter = false;
  bool conjugate = false;
  bool negative = false;
  PickleNode attributes;  // None or a dict
};

// Views refer to the pickle's bytes or to `owned`.
struct PickleGraph {
  PickleNode root;
  std::vector<absl::string_view> strings;
  std::vector<std::vector<PickleNode>> sequences;
  std::vector<PickleDict> dicts;
  std::vector<PickleObject> objects;
  std::vector<PickleStorage> storages;
  std::vector<PickleTensor> tensors;
  // Why an object is not allowed or not supported: InvalidArgument or Unimplemented, with its byte.
  std::vector<std::pair<absl::Status, size_t>> refused;
  std::deque<std::string> owned;
};

}  // namespace lockstep::checkpoint::pickle

#endif  // LOCKSTEP_CHECKPOINT_PICKLE_GRAPH_H_
