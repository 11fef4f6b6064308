// Emits pickle protocol 2, opcode by opcode; the caller keeps the order that the pickle machine needs.
//
//   PickleWriter pickle;
//   pickle.EmptyDict();
//   pickle.Mark(); pickle.String("epoch"); pickle.Int(3); pickle.SetItems();
//   std::string bytes = std::move(pickle).Finish();

#ifndef LOCKSTEP_CHECKPOINT_PICKLE_WRITER_H_
#define LOCKSTEP_CHECKPOINT_PICKLE_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/pickle/ops.h"

namespace lockstep::checkpoint::pickle {

class PickleWriter {
 public:
  PickleWriter();

  void None() { Op(kOpNone); }
  void Bool(bool value) { Op(value ? kOpNewTrue : kOpNewFalse); }
  void Int(int64_t value);
  void Double(double value);
  // Requires: IsPythonText(text). Written once; later ones refer to it.
  void String(absl::string_view text);
  void Bytes(absl::string_view bytes);
  // The object `name` of Python's `module`.
  void Global(absl::string_view module, absl::string_view name);

  void EmptyList() { Op(kOpEmptyList); }
  void EmptyTuple() { Op(kOpEmptyTuple); }
  void EmptyDict() { Op(kOpEmptyDict); }
  void Mark() { Op(kOpMark); }
  void Appends() { Op(kOpAppends); }    // list, mark, items
  void SetItems() { Op(kOpSetItems); }  // dict, mark, key, value, ...
  void Tuple() { Op(kOpTuple); }        // mark, items
  void Tuple1() { Op(kOpTuple1); }
  void Tuple2() { Op(kOpTuple2); }
  void Tuple3() { Op(kOpTuple3); }
  void Reduce() { Op(kOpReduce); }     // callable, argument tuple
  void NewObject() { Op(kOpNewObj); }  // class, argument tuple
  void Build() { Op(kOpBuild); }       // object, its state
  void PersistentId() { Op(kOpBinPersId); }

  // Assigns a number to the object on top of the stack. Get pushes that object again.
  uint32_t Memoize();
  void Get(uint32_t number);

  std::string Finish() &&;

 private:
  void Op(PickleOp op) { out_.push_back(static_cast<char>(op)); }
  template <typename T>
  void Put(T value);
  void Text(absl::string_view text);

  std::string out_;
  uint32_t memoized_ = 0;
  absl::flat_hash_map<std::string, uint32_t> strings_;
  absl::flat_hash_map<std::string, uint32_t> globals_;
};

}  // namespace lockstep::checkpoint::pickle

#endif  // LOCKSTEP_CHECKPOINT_PICKLE_WRITER_H_
