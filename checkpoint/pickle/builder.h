// Creates the entries of a PickleGraph within a budget: constants, containers, and the results of calls of allowed
// objects.

#ifndef LOCKSTEP_CHECKPOINT_PICKLE_BUILDER_H_
#define LOCKSTEP_CHECKPOINT_PICKLE_BUILDER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/pickle/globals.h"
#include "lockstep/checkpoint/pickle/graph.h"

namespace lockstep::checkpoint::pickle {

// The result of a call of a refused object is that object. A list, a call or a dict that gets it as an argument does
// not report another error.
class PickleBuilder {
 public:
  // `classes` are allowed besides the objects of globals.h, and become objects; they must outlive the builder.
  PickleBuilder(size_t memory_limit, const PickleClasses& classes) : left_(memory_limit), classes_(classes) {}

  PickleGraph& graph() { return graph_; }

  // ResourceExhausted once the budget is spent.
  absl::Status Charge(size_t bytes);

  // `text` must outlive the graph.
  absl::StatusOr<PickleNode> String(absl::string_view text, PickleKind kind = PickleKind::kString);
  absl::StatusOr<PickleNode> OwnedString(std::string text, PickleKind kind = PickleKind::kString);
  // An int of any size, little-endian in two's complement, as a str of decimal digits.
  absl::StatusOr<PickleNode> Digits(absl::string_view bytes);
  absl::StatusOr<PickleNode> Sequence(PickleKind kind, std::vector<PickleNode> items);
  absl::StatusOr<PickleNode> Dict(PickleDictKind kind);
  absl::StatusOr<PickleNode> Global(absl::string_view module, absl::string_view name);

  absl::Status Append(PickleNode list, PickleNode item);
  absl::Status SetItem(PickleNode dict, PickleNode key, PickleNode value);
  // `object`.__dict__.update(`state`) for an OrderedDict; the state of an object, and of an old tensor or Parameter.
  absl::Status SetState(PickleNode object, PickleNode state);

  // `callable`(*`arguments`).
  absl::StatusOr<PickleNode> Call(PickleNode callable, PickleNode arguments);
  // `type`.__new__(`type`, *`arguments`).
  absl::StatusOr<PickleNode> New(PickleNode type, PickleNode arguments);
  // The storage that a persistent id ("storage", type, key, location, count) means.
  absl::StatusOr<PickleNode> Storage(PickleNode id);

 private:
  using Arguments = std::vector<PickleNode>;

  PickleNode RefusedIn(PickleNode callable, PickleNode arguments) const;
  bool IsGlobal(PickleNode node, PickleGlobal global) const;
  absl::StatusOr<absl::string_view> Text(PickleNode node) const;
  absl::StatusOr<std::vector<int64_t>> Ints(PickleNode tuple);
  absl::StatusOr<PickleNode> AddTensor(PickleTensor tensor);
  absl::Status ReadMetadata(PickleNode metadata, PickleTensor& tensor) const;
  absl::Status ReadState(PickleNode state, PickleTensor& tensor) const;

  absl::StatusOr<PickleNode> Counter(const Arguments& arguments);
  absl::StatusOr<PickleNode> OldTensor(const Arguments& arguments);
  absl::Status SetOldTensor(PickleTensor& tensor, const Arguments& state);
  absl::StatusOr<PickleNode> Tensor(const Arguments& arguments, bool names_dtype);
  absl::StatusOr<PickleNode> Parameter(const Arguments& arguments, bool has_state);
  absl::StatusOr<PickleNode> FromType(const Arguments& arguments);
  absl::StatusOr<PickleNode> Encode(const Arguments& arguments);
  absl::StatusOr<PickleNode> ByteArray(const Arguments& arguments);
  absl::StatusOr<PickleNode> Set(const Arguments& arguments);
  absl::StatusOr<PickleNode> Device(const Arguments& arguments);
  absl::StatusOr<PickleNode> Size(const Arguments& arguments);

  absl::StatusOr<PickleNode> NewOldTensor(bool parameter, PickleNode arguments);
  absl::Status ChargeBytes(PickleNode node);
  absl::StatusOr<PickleNode> Object(PickleNode callable, PickleNode arguments);

  struct GlobalRef {
    PickleGlobal global;
    absl::string_view module;
    absl::string_view name;
  };

  size_t left_;
  const PickleClasses& classes_;
  PickleGraph graph_;
  std::vector<GlobalRef> globals_;
};

}  // namespace lockstep::checkpoint::pickle

#endif  // LOCKSTEP_CHECKPOINT_PICKLE_BUILDER_H_
