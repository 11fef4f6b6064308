#include "lockstep/checkpoint/pickle/reader.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/pickle/machine.h"
#include "lockstep/checkpoint/pickle/ops.h"
#include "lockstep/checkpoint/pickle/refusals.h"

namespace lockstep::checkpoint::pickle {
namespace {

absl::Status Malformed(absl::string_view what) { return absl::DataLossError(what); }

// Decodes a pickle's opcodes and their arguments, and passes them to the machine.
class Reader {
 public:
  Reader(absl::string_view pickle, size_t memory_limit, const PickleClasses& classes)
      : pickle_(pickle), machine_(pickle.size(), memory_limit, classes) {}

  absl::Status Run();
  // After Run.
  PickleGraph Finish() { return machine_.Finish(); }
  size_t position() const { return position_; }
  // Returns whether Run has ended because the pickle does.
  bool is_cut() const { return is_cut_; }

 private:
  using Handler = absl::Status (Reader::*)();
  using Operation = absl::Status (PickleMachine::*)();
  static const std::array<Handler, 256>& Handlers();

  absl::Status Step();
  absl::StatusOr<absl::string_view> Take(size_t count);
  absl::StatusOr<absl::string_view> TakeLine();
  template <typename T>
  absl::StatusOr<T> TakeInt();

  // Opcodes without arguments.
  template <Operation operation>
  absl::Status Plain() {
    return (machine_.*operation)();
  }
  template <bool value>
  absl::Status Bool() {
    return machine_.Bool(value);
  }
  template <int count>
  absl::Status TupleOf() {
    return machine_.TupleOf(count);
  }
  absl::Status Stop();

  // Opcodes with arguments. T: the type of the number in the pickle.
  template <typename T>
  absl::Status Int();
  template <typename T>
  absl::Status Put();
  template <typename T>
  absl::Status Get();
  template <typename T, PickleKind kind>
  absl::Status Text();
  template <typename T>
  absl::Status Long();
  absl::Status Proto();
  absl::Status Frame() { return Take(8).status(); }
  absl::Status Float();
  absl::Status Global();

  absl::string_view pickle_;
  size_t position_ = 0;
  bool stopped_ = false;
  bool is_cut_ = false;
  PickleMachine machine_;
};

absl::StatusOr<absl::string_view> Reader::Take(size_t count) {
  if (count > pickle_.size() - position_) {
    is_cut_ = true;
    return Malformed("the pickle ends in the middle");
  }
  const absl::string_view taken = pickle_.substr(position_, count);
  position_ += count;
  return taken;
}

absl::StatusOr<absl::string_view> Reader::TakeLine() {
  const size_t end = pickle_.find('\n', position_);
  if (end == absl::string_view::npos) return Take(pickle_.size() + 1);
  const absl::string_view line = pickle_.substr(position_, end - position_);
  position_ = end + 1;
  return line;
}

template <typename T>
absl::StatusOr<T> Reader::TakeInt() {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view bytes, Take(sizeof(T)));
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

template <typename T>
absl::Status Reader::Int() {
  LOCKSTEP_ASSIGN_OR_RETURN(const T value, TakeInt<T>());
  return machine_.Int(value);
}

template <typename T>
absl::Status Reader::Put() {
  LOCKSTEP_ASSIGN_OR_RETURN(const T number, TakeInt<T>());
  return machine_.Put(number);
}

template <typename T>
absl::Status Reader::Get() {
  LOCKSTEP_ASSIGN_OR_RETURN(const T number, TakeInt<T>());
  return machine_.Get(number);
}

template <typename T, PickleKind kind>
absl::Status Reader::Text() {
  LOCKSTEP_ASSIGN_OR_RETURN(const T size, TakeInt<T>());
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view text, Take(size));
  return machine_.Text(text, kind);
}

template <typename T>
absl::Status Reader::Long() {
  LOCKSTEP_ASSIGN_OR_RETURN(const T size, TakeInt<T>());
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view bytes, Take(size));
  return machine_.Long(bytes);
}

absl::Status Reader::Proto() {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint8_t protocol, TakeInt<uint8_t>());
  if (protocol < 2 || protocol > 5)
    return absl::UnimplementedError(absl::StrCat("pickle protocol ", protocol, " is not supported"));
  return absl::OkStatus();
}

absl::Status Reader::Stop() {
  LOCKSTEP_RETURN_IF_ERROR(machine_.Stop());
  stopped_ = true;
  return absl::OkStatus();
}

absl::Status Reader::Float() {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t bits, TakeInt<uint64_t>());
  const uint64_t swapped = __builtin_bswap64(bits);
  double value;
  std::memcpy(&value, &swapped, sizeof(swapped));
  return machine_.Float(value);
}

absl::Status Reader::Global() {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view module, TakeLine());
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view name, TakeLine());
  return machine_.Global(module, name);
}

const std::array<Reader::Handler, 256>& Reader::Handlers() {
  static const std::array<Handler, 256> handlers = [] {
    std::array<Handler, 256> table{};
    table[kOpProto] = &Reader::Proto;
    table[kOpFrame] = &Reader::Frame;
    table[kOpStop] = &Reader::Stop;
    table[kOpPop] = &Reader::Plain<&PickleMachine::Pop>;
    table[kOpPopMark] = &Reader::Plain<&PickleMachine::PopMark>;
    table[kOpDup] = &Reader::Plain<&PickleMachine::Duplicate>;
    table[kOpMark] = &Reader::Plain<&PickleMachine::Mark>;
    table[kOpNone] = &Reader::Plain<&PickleMachine::None>;
    table[kOpNewTrue] = &Reader::Bool<true>;
    table[kOpNewFalse] = &Reader::Bool<false>;
    table[kOpBinInt] = &Reader::Int<int32_t>;
    table[kOpBinInt1] = &Reader::Int<uint8_t>;
    table[kOpBinInt2] = &Reader::Int<uint16_t>;
    table[kOpLong1] = &Reader::Long<uint8_t>;
    table[kOpLong4] = &Reader::Long<uint32_t>;
    table[kOpBinFloat] = &Reader::Float;
    // A Python 2 str is text, as torch.load reads it.
    table[kOpBinString] = &Reader::Text<uint32_t, PickleKind::kString>;
    table[kOpShortBinString] = &Reader::Text<uint8_t, PickleKind::kString>;
    table[kOpBinUnicode] = &Reader::Text<uint32_t, PickleKind::kString>;
    table[kOpShortBinUnicode] = &Reader::Text<uint8_t, PickleKind::kString>;
    table[kOpBinUnicode8] = &Reader::Text<uint64_t, PickleKind::kString>;
    table[kOpBinBytes8] = &Reader::Text<uint64_t, PickleKind::kBytes>;
    table[kOpByteArray8] = &Reader::Text<uint64_t, PickleKind::kBytes>;
    table[kOpBinBytes] = &Reader::Text<uint32_t, PickleKind::kBytes>;
    table[kOpShortBinBytes] = &Reader::Text<uint8_t, PickleKind::kBytes>;
    table[kOpEmptyList] = table[kOpEmptySet] = &Reader::Plain<&PickleMachine::List>;
    table[kOpEmptyDict] = &Reader::Plain<&PickleMachine::Dict>;
    table[kOpEmptyTuple] = &Reader::TupleOf<0>;
    table[kOpTuple1] = &Reader::TupleOf<1>;
    table[kOpTuple2] = &Reader::TupleOf<2>;
    table[kOpTuple3] = &Reader::TupleOf<3>;
    table[kOpTuple] = &Reader::Plain<&PickleMachine::Tuple>;
    table[kOpAppend] = &Reader::Plain<&PickleMachine::Append>;
    table[kOpAppends] = &Reader::Plain<&PickleMachine::Appends>;
    table[kOpSetItem] = &Reader::Plain<&PickleMachine::SetItem>;
    table[kOpSetItems] = &Reader::Plain<&PickleMachine::SetItems>;
    table[kOpGlobal] = &Reader::Global;
    table[kOpStackGlobal] = &Reader::Plain<&PickleMachine::StackGlobal>;
    table[kOpReduce] = &Reader::Plain<&PickleMachine::Reduce>;
    table[kOpNewObj] = &Reader::Plain<&PickleMachine::NewObject>;
    table[kOpNewObjEx] = &Reader::Plain<&PickleMachine::NewObjectEx>;
    table[kOpBuild] = &Reader::Plain<&PickleMachine::Build>;
    table[kOpBinPersId] = &Reader::Plain<&PickleMachine::PersistentId>;
    table[kOpBinPut] = &Reader::Put<uint8_t>;
    table[kOpLongBinPut] = &Reader::Put<uint32_t>;
    table[kOpBinGet] = &Reader::Get<uint8_t>;
    table[kOpLongBinGet] = &Reader::Get<uint32_t>;
    table[kOpMemoize] = &Reader::Plain<&PickleMachine::Memoize>;
    table[kOpFrozenSet] = &Reader::Plain<&PickleMachine::FrozenSet>;
    table[kOpAddItems] = &Reader::Plain<&PickleMachine::AddItems>;
    return table;
  }();
  return handlers;
}

absl::Status Reader::Step() {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint8_t op, TakeInt<uint8_t>());
  const Handler handler = Handlers()[op];
  if (handler) return (this->*handler)();
  return absl::InvalidArgumentError(absl::StrFormat("the pickle opcode 0x%02x is not allowed", op));
}

absl::Status Reader::Run() {
  while (!stopped_) {
    machine_.set_byte(position_);
    const absl::Status step = Step();
    if (!step.ok()) return machine_.Failure(step);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PickleGraph> ReadPickle(absl::string_view pickle, size_t memory_limit, const PickleClasses& classes) {
  LOCKSTEP_ASSIGN_OR_RETURN(PickleGraph graph, ReadPickleParts(pickle, memory_limit, classes));
  if (graph.refused.empty()) return graph;
  LOCKSTEP_RETURN_IF_ERROR(CheckRefused(graph));
  return FirstRefusal(graph);
}

absl::StatusOr<PickleGraph> ReadPickleParts(absl::string_view pickle, size_t memory_limit,
                                            const PickleClasses& classes) {
  absl::StatusOr<FirstPickle> read = ReadFirstPickle(pickle, memory_limit, classes);
  if (absl::IsOutOfRange(read.status())) return absl::DataLossError(read.status().message());
  LOCKSTEP_ASSIGN_OR_RETURN(FirstPickle first, std::move(read));
  if (first.size == pickle.size()) return std::move(first.graph);
  return absl::DataLossError(absl::StrCat("byte ", first.size - 1, ": the pickle ends before its record"));
}

absl::StatusOr<FirstPickle> ReadFirstPickle(absl::string_view bytes, size_t memory_limit,
                                            const PickleClasses& classes) {
  Reader reader(bytes, memory_limit, classes);
  const absl::Status status = reader.Run();
  if (reader.is_cut()) return absl::OutOfRangeError(status.message());
  LOCKSTEP_RETURN_IF_ERROR(status);
  return FirstPickle{reader.Finish(), reader.position()};
}

}  // namespace lockstep::checkpoint::pickle
