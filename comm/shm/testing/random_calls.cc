#include "lockstep/comm/shm/testing/random_calls.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::comm::shm::testing {
namespace {

constexpr DType kReducible[] = {DType::kBool,    DType::kUInt8,     DType::kUInt16,    DType::kUInt32,
                                DType::kUInt64,  DType::kInt8,      DType::kInt16,     DType::kInt32,
                                DType::kInt64,   DType::kFloat16,   DType::kBFloat16,  DType::kFloat32,
                                DType::kFloat64, DType::kComplex64, DType::kComplex128};

bool IsInteger(DType dtype) { return dtype >= DType::kUInt8 && dtype <= DType::kInt64; }

// A small whole number in the dtype's own bits, from their definitions.
template <typename T>
void Append(std::vector<char>& to, T value) {
  const char* const bytes = reinterpret_cast<const char*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof(value));
}
uint16_t Half(int value) {
  if (value == 0) return 0;
  int exponent = 0;
  while (value >> (exponent + 1)) ++exponent;
  return static_cast<uint16_t>(((exponent + 15) << 10) | ((value - (1 << exponent)) << (10 - exponent)));
}
uint16_t Brain(int value) {
  const auto number = static_cast<float>(value);
  uint32_t bits;
  memcpy(&bits, &number, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}
void AppendNumber(std::vector<char>& to, DType dtype, int value) {
  switch (dtype) {
    case DType::kFloat16:
      return Append(to, Half(value));
    case DType::kBFloat16:
      return Append(to, Brain(value));
    case DType::kFloat32:
      return Append(to, static_cast<float>(value));
    case DType::kFloat64:
      return Append(to, static_cast<double>(value));
    case DType::kComplex64:
      Append(to, static_cast<float>(value));
      return Append(to, 0.0F);
    case DType::kComplex128:
      Append(to, static_cast<double>(value));
      return Append(to, 0.0);
    default:
      break;
  }
  const int64_t whole = value;  // little-endian: the first bytes are the number in fewer bits
  const char* const bytes = reinterpret_cast<const char*>(&whole);
  to.insert(to.end(), bytes, bytes + SizeOf(dtype));
}

// The input of rank `rank` for `part` at element `i`: numbers whose sums and products over 8 ranks are exact in every
// dtype. For an average all ranks have equal numbers, so that it is exact for any number of ranks.
int InputNumber(const RandomCall& call, int rank, int part, size_t i) {
  const uint64_t mixed = (call.number * 7919 + part * 104729 + i) * 2654435761u + rank * 40503u;
  const int number = static_cast<int>(mixed >> 7 & 3);
  if (call.dtype == DType::kBool) return number & 1;
  if (call.op == Op::kAvg) return static_cast<int>((call.number + part + i) & 3);
  return call.op == Op::kProduct ? 1 + (number & 1 & (rank < 4)) : number;
}

// The factor of a rank's numbers.
int FactorOf(const RandomCall& call, int rank) { return call.op == Op::kPremulSum ? rank % 3 + 1 : 1; }

int Combine(const RandomCall& call, int a, int b) {
  const bool boolean = call.dtype == DType::kBool;
  switch (call.op) {
    case Op::kSum:
    case Op::kPremulSum:
      return boolean ? a | b : a + b;
    case Op::kAvg:
      return a;
    case Op::kProduct:
      return a * b;
    case Op::kMin:
      return std::min(a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kBand:
      return a & b;
    case Op::kBor:
      return a | b;
    case Op::kBxor:
      return a ^ b;
  }
  return 0;
}

bool Makes(DType dtype, Op op) {
  if (op == Op::kAvg) return dtype >= DType::kFloat16;
  if (op == Op::kPremulSum) return dtype == DType::kFloat32 || dtype == DType::kFloat64;
  if (op == Op::kMin || op == Op::kMax) return dtype < DType::kComplex64;
  if (op == Op::kBand || op == Op::kBor || op == Op::kBxor) return dtype == DType::kBool || IsInteger(dtype);
  return true;
}

bool Reduces(Kind kind) { return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter; }

}  // namespace

RandomCall DrawCall(std::mt19937_64& random, int size, size_t most_bytes, uint64_t number) {
  const auto below = [&random](size_t bound) { return static_cast<size_t>(random() % bound); };
  RandomCall call;
  call.number = number;
  constexpr Kind kKinds[] = {Kind::kBarrier,   Kind::kBroadcast,     Kind::kAllReduce, Kind::kAllReduce,
                             Kind::kAllReduce, Kind::kReduce,        Kind::kAllGather, Kind::kGather,
                             Kind::kScatter,   Kind::kReduceScatter, Kind::kAllToAll,  Kind::kSend};
  call.kind = kKinds[below(std::size(kKinds))];
  call.dtype = kReducible[below(std::size(kReducible))];
  do {
    call.op = kOps[below(std::size(kOps))];
  } while (!Makes(call.dtype, call.op));
  if (!Reduces(call.kind)) call.op = Op::kSum;
  call.root = static_cast<int>(below(size));
  call.peer = static_cast<int>(below(size));
  call.tag = static_cast<int64_t>(below(3));
  // As many small calls as large ones: the exponent is uniform.
  const auto count = [&] {
    const size_t bytes = below(5) == 0 ? 0 : std::min(most_bytes, below(size_t{2} << below(28)));
    return bytes / SizeOf(call.dtype);
  };
  call.counts.resize(call.kind == Kind::kAllToAll ? size * size : 1);
  for (size_t& one : call.counts) one = count();
  call.all_shared = below(3) == 0;
  if (!call.all_shared && below(4) == 0) call.shared_rank = static_cast<int>(below(size));
  return call;
}

RankCall::RankCall(const RandomCall& call, Communicator& communicator) : call_(call), communicator_(communicator) {
  request_.kind = call.kind;
  request_.dtype = call.dtype;
  request_.op = call.op;
  request_.factor = FactorOf(call, communicator.rank());
  request_.root = call.root;
  Prepare();
}

std::vector<char> RankCall::Inputs(int rank, int part, size_t count) const {
  std::vector<char> bytes;
  bytes.reserve(count * SizeOf(call_.dtype));
  for (size_t i = 0; i < count; ++i) AppendNumber(bytes, call_.dtype, InputNumber(call_, rank, part, i));
  return bytes;
}

std::vector<char> RankCall::Reduced(int part, size_t count) const {
  std::vector<char> bytes;
  bytes.reserve(count * SizeOf(call_.dtype));
  for (size_t i = 0; i < count; ++i) {
    const auto number_of = [&](int rank) { return InputNumber(call_, rank, part, i) * FactorOf(call_, rank); };
    int number = number_of(0);
    for (int r = 1; r < communicator_.size(); ++r) number = Combine(call_, number, number_of(r));
    AppendNumber(bytes, call_.dtype, number);
  }
  return bytes;
}

// A guard line behind each buffer shows what is written beyond it.
void RankCall::Add(Buffers& buffers, const std::vector<char>& contents, bool shared) {
  constexpr size_t kGuard = 64;
  const size_t bytes = contents.size() + kGuard;
  std::shared_ptr<char> memory = shared ? communicator_.Allocate(bytes) : nullptr;
  if (!memory) memory = std::shared_ptr<char>(new char[bytes], std::default_delete<char[]>());
  std::copy(contents.begin(), contents.end(), memory.get());
  memset(memory.get() + contents.size(), 'G', kGuard);
  buffers.push_back({memory.get(), contents.size()});
  expected_.push_back({{memory.get() + contents.size(), kGuard}, std::vector<char>(kGuard, 'G')});
  memory_.push_back(std::move(memory));
}

void RankCall::Expect(const Buffer& buffer, std::vector<char> contents) {
  expected_.emplace_back(buffer, std::move(contents));
}

void RankCall::Prepare() {
  if (call_.kind == Kind::kBarrier) return;
  if (call_.kind == Kind::kSend) return PrepareMessage();
  return Reduces(call_.kind) ? PrepareReduction() : PrepareMovement();
}

void RankCall::PrepareReduction() {
  const int rank = communicator_.rank(), size = communicator_.size();
  const size_t count = call_.counts[0];
  if (call_.kind == Kind::kAllReduce) {
    Add(request_.buffers, Inputs(rank, 0, count), call_.all_shared || call_.shared_rank == rank);
    Expect(request_.buffers[0], Reduced(0, count));
  } else if (call_.kind == Kind::kReduce) {
    Add(request_.buffers, Inputs(rank, 0, count));
    Expect(request_.buffers[0], Inputs(rank, 0, count));
    if (rank != call_.root) return;
    AddResult(count);
    Expect(request_.results[0], Reduced(0, count));
  } else {
    for (int part = 0; part < size; ++part) {
      Add(request_.buffers, Inputs(rank, part, count));
      Expect(request_.buffers[part], Inputs(rank, part, count));
    }
    AddResult(count);
    Expect(request_.results[0], Reduced(rank, count));
  }
}

void RankCall::PrepareMovement() {
  const int rank = communicator_.rank(), size = communicator_.size();
  const bool root = rank == call_.root;
  const size_t count = call_.counts[0];
  switch (call_.kind) {
    case Kind::kBroadcast:
      Add(request_.buffers, Inputs(rank, 0, count));
      return Expect(request_.buffers[0], Inputs(call_.root, 0, count));
    case Kind::kGather:
    case Kind::kAllGather:
      Add(request_.buffers, Inputs(rank, 0, count));
      for (int r = 0; r < size && (root || call_.kind == Kind::kAllGather); ++r) {
        AddResult(count);
        Expect(request_.results[r], Inputs(r, 0, count));
      }
      return;
    case Kind::kScatter:
      for (int r = 0; r < size && root; ++r) Add(request_.buffers, Inputs(rank, r, count));
      AddResult(count);
      return Expect(request_.results[0], Inputs(call_.root, rank, count));
    default:
      for (int r = 0; r < size; ++r) {
        Add(request_.buffers, Inputs(rank, r, call_.counts[rank * size + r]));
        AddResult(call_.counts[r * size + rank]);
        Expect(request_.results[r], Inputs(r, rank, call_.counts[r * size + rank]));
      }
  }
}

void RankCall::PrepareMessage() {
  if (communicator_.rank() == call_.root) Add(request_.buffers, Inputs(call_.root, 0, call_.counts[0]));
  if (communicator_.rank() == call_.peer) {
    AddResult(call_.counts[0]);
    Expect(request_.results[0], Inputs(call_.root, 0, call_.counts[0]));
  }
}

void RankCall::Start() {
  if (call_.kind != Kind::kSend) {
    started_ = communicator_.Start(request_);
    return;
  }
  if (!request_.buffers.empty()) started_ = communicator_.Send(call_.peer, call_.tag, request_.buffers[0], nullptr);
  if (!request_.results.empty()) started_ = communicator_.Receive(call_.root, call_.tag, request_.results[0], nullptr);
}

absl::Status RankCall::Finish(absl::Time deadline) {
  if (started_) {
    const absl::Status status = communicator_.Wait(*started_, deadline);
    if (!status.ok()) return status;
  }
  for (const auto& entry : expected_) {
    const auto& [buffer, contents] = entry;
    const auto differs = std::mismatch(contents.begin(), contents.end(), buffer.data).first;
    if (differs == contents.end()) continue;
    return absl::DataLossError(absl::StrCat(NameOf(call_.kind), " ", call_.number, " of ", NameOf(call_.dtype), " (",
                                            NameOf(call_.op), "), root ", call_.root, ": byte ",
                                            differs - contents.begin(), " of ", contents.size(), " is wrong on rank ",
                                            communicator_.rank()));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::comm::shm::testing
