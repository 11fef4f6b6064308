// The pickle machine: a stack, marks in it, and a memo of numbered objects. Each opcode of a pickle is a call of one
// operation here; reader.h decodes them from bytes.
//
// Operations return the error that ends the reading. An object that is refused is not such an error: a node of kind
// kRefused takes its place.

#ifndef LOCKSTEP_CHECKPOINT_PICKLE_MACHINE_H_
#define LOCKSTEP_CHECKPOINT_PICKLE_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/pickle/builder.h"
#include "lockstep/checkpoint/pickle/globals.h"
#include "lockstep/checkpoint/pickle/graph.h"

namespace lockstep::checkpoint::pickle {

class PickleMachine {
 public:
  // `size`: the pickle's, in bytes. A memo number must be below it, since a pickler numbers in order. `classes` must
  // outlive the machine.
  PickleMachine(size_t size, size_t memory_limit, const PickleClasses& classes)
      : size_(size), builder_(memory_limit, classes) {}

  // The position of the next opcode, for errors.
  void set_byte(size_t byte) { byte_ = byte; }

  // Constants, and objects from their description in the pickle.
  absl::Status None() { return Push(PickleNode()); }
  absl::Status Bool(bool value) { return Push(BoolNode(value)); }
  absl::Status Int(int64_t value) { return Push(IntNode(value)); }
  absl::Status Float(double value);
  absl::Status Text(absl::string_view text, PickleKind kind) { return Push(builder_.String(text, kind)); }
  absl::Status Global(absl::string_view module, absl::string_view name) { return Push(builder_.Global(module, name)); }
  absl::Status StackGlobal();
  absl::Status PersistentId();
  // Little-endian two's complement of any length. More than 64 bits become a str of decimal digits.
  absl::Status Long(absl::string_view bytes);

  // Containers.
  absl::Status List() { return Push(builder_.Sequence(PickleKind::kList, {})); }
  absl::Status Dict() { return Push(builder_.Dict(PickleDictKind::kDict)); }
  absl::Status Tuple();
  absl::Status TupleOf(size_t count);
  absl::Status Append();
  absl::Status Appends();
  absl::Status SetItem();
  absl::Status SetItems();
  // A set and a frozenset are lists of their items.
  absl::Status FrozenSet();
  absl::Status AddItems() { return Appends(); }

  // Calls of allowed objects, which only describe the result.
  absl::Status Reduce() { return Make(&PickleBuilder::Call); }
  absl::Status NewObject() { return Make(&PickleBuilder::New); }
  absl::Status NewObjectEx();
  absl::Status Build();

  // The stack and the memo.
  absl::Status Mark();
  absl::Status Pop() { return Take().status(); }
  absl::Status PopMark() { return TakeToMark().status(); }
  absl::Status Duplicate();
  absl::Status Put(size_t number);
  absl::Status Get(size_t number);
  absl::Status Memoize() { return Put(memo_.size()); }

  // The top of the stack becomes the root. DataLoss: the stack has more.
  absl::Status Stop();

  // The error of a reading that `error` ended. Damage behind a refused object may come of that, so the refusal goes
  // first.
  absl::Status Failure(const absl::Status& error);

  // The graph after Stop. Call it once, last.
  PickleGraph Finish() { return std::move(builder_.graph()); }

 private:
  using Maker = absl::StatusOr<PickleNode> (PickleBuilder::*)(PickleNode callable, PickleNode arguments);

  absl::Status ChargeDepth();
  absl::StatusOr<PickleNode> Refuse(const absl::Status& status);
  absl::Status Push(absl::StatusOr<PickleNode> node);
  absl::StatusOr<PickleNode> Take();
  absl::StatusOr<PickleNode> Top() const;
  absl::StatusOr<std::vector<PickleNode>> TakeToMark();
  absl::Status Set(PickleNode dict, PickleNode key, PickleNode value);
  absl::Status Make(Maker maker);

  const size_t size_;
  size_t byte_ = 0;
  uint32_t nans_ = 0;
  PickleBuilder builder_;
  std::vector<PickleNode> stack_;
  std::vector<size_t> marks_;
  std::vector<PickleNode> memo_;
  size_t deepest_ = 0;
};

}  // namespace lockstep::checkpoint::pickle

#endif  // LOCKSTEP_CHECKPOINT_PICKLE_MACHINE_H_
