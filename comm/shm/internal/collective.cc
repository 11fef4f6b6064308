// The parts of a collective and its rounds. collective_rounds.cc moves its data.

#include "lockstep/comm/shm/internal/collective.h"

#include <string.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::comm::shm::internal {
namespace {

// Up to this many bytes, every rank reduces the whole tensor of an all_reduce: one exchange instead of two.
constexpr size_t kWholeBytes = size_t{32} << 10;

bool Reduces(Kind kind) { return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter; }
bool HasRoot(Kind kind) {
  return kind == Kind::kBroadcast || kind == Kind::kReduce || kind == Kind::kGather || kind == Kind::kScatter;
}

std::string Describe(const CallHeader& header) {
  const auto kind = static_cast<Kind>(header.kind);
  std::string text = absl::StrCat(NameOf(kind), " #", header.number);
  if (kind == Kind::kBarrier) return text;
  if (Reduces(kind)) absl::StrAppend(&text, " (", NameOf(static_cast<Op>(header.op)), ")");
  if (kind != Kind::kAllToAll) absl::StrAppend(&text, " of ", header.bytes, " bytes");
  absl::StrAppend(&text, " of ", NameOf(static_cast<DType>(header.dtype)));
  if (HasRoot(kind)) absl::StrAppend(&text, ", root ", header.root);
  if (kind == Kind::kTreeSum) absl::StrAppend(&text, ", divided by ", header.root);
  return text;
}

bool Agree(const CallHeader& a, const CallHeader& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root && a.bytes == b.bytes &&
         a.number == b.number;
}

// The number of bytes that one rank sends to another (of everything, if every rank gets everything).
size_t BytesOf(const Request& request) {
  if (request.kind == Kind::kAllToAll) return 0;
  if (!request.buffers.empty()) return request.buffers[0].bytes;
  return request.results.empty() ? 0 : request.results[0].bytes;
}

}  // namespace

Collective::Collective(Port& port, Request request, uint64_t number)
    : port_(port), request_(std::move(request)), number_(number), bytes_(BytesOf(request_)) {
  if (Reduces(request_.kind)) reduce_ = ReduceFunctionFor(request_.dtype, request_.op);
  if (request_.kind == Kind::kTreeSum) {
    request_.root = request_.tree->divisor;  // on which the ranks must agree
    if (IsSliced()) bytes_ = request_.tree->slices.back() * SizeOf(request_.dtype);
  }
  if (request_.kind != Kind::kAllReduce) return;
  const char* const data = request_.buffers[0].data;
  const char* const segment = reinterpret_cast<const char*>(&port_.layout.header());
  shared_ = data >= segment && data + bytes_ <= segment + port_.segment_bytes;
  if (shared_) offset_ = data - segment;
}

std::string Collective::Name() const { return absl::StrCat(NameOf(request_.kind), " #", number_); }

bool Collective::Step() {
  bool moved = false;
  for (bool again = true; again && !done();) {
    again = false;
    if (open_ && finished_ < staged_ && CanFinish(finished_)) {
      FinishRound(finished_++);
      again = true;
    }
    if (open_ && HasReducePhase() && reduced_ < staged_ && CanReduce(reduced_)) {
      ReducePart(reduced_++);
      again = true;
    }
    if (staged_ < rounds_ && (open_ || staged_ == 0) && port_.SlotIsFree(base_ + staged_)) {
      Stage(staged_++);
      again = true;
    }
    if (!open_ && staged_ > 0) again |= Open();
    moved |= again;
    if (open_ && finished_ == rounds_ && !done()) {
      End(absl::OkStatus());
    }
  }
  return moved;
}

void Collective::End(const absl::Status& status) {
  request_.owner.reset();
  Finish(status);
}

bool Collective::Open() {
  if (!port_.IsPublishedByAll(base_)) return false;
  absl::Status agreed = CheckHeaders();
  if (agreed.ok() && request_.kind == Kind::kAllToAll) agreed = CheckParts();
  if (agreed.ok() && request_.kind == Kind::kTreeSum) agreed = CheckAddends();
  if (!agreed.ok()) {
    End(agreed);
    return true;
  }
  open_ = true;
  return true;
}

absl::Status Collective::CheckHeaders() {
  bool all_shared = true, any_shared = false, agree = true;
  const CallHeader& first = port_.SlotOf(0, base_).header;
  for (int r = 0; r < port_.size; ++r) {
    const CallHeader& header = port_.SlotOf(r, base_).header;
    all_shared &= header.shared != 0;
    any_shared |= header.shared != 0;
    agree &= Agree(first, header);
    // Damaged memory must not become a wild pointer.
    if (header.shared && (header.offset > port_.segment_bytes || header.bytes > port_.segment_bytes - header.offset)) {
      return absl::InternalError(absl::StrCat("rank ", r, "'s ", Describe(header), " lies outside the shared memory"));
    }
  }
  if (!agree) return Disagreement();
  first_ = any_shared && !all_shared ? 1 : 0;
  if (request_.op == Op::kPremulSum) {
    for (int r = 0; r < port_.size; ++r) factors_.push_back(port_.SlotOf(r, base_).header.factor);
  }
  ChooseWay(all_shared);
  return absl::OkStatus();
}

absl::Status Collective::Disagreement() const {
  std::vector<std::string> calls;
  const CallHeader& first = port_.SlotOf(0, base_).header;
  for (int r = 0; r < port_.size; ++r) {
    const CallHeader& header = port_.SlotOf(r, base_).header;
    if (r == 0 || !Agree(first, header)) calls.push_back(absl::StrCat("rank ", r, " called ", Describe(header)));
  }
  return absl::InvalidArgumentError(absl::StrCat("the ranks disagree: ", absl::StrJoin(calls, "; ")));
}

// all_to_all: a rank's first slot holds the table of the sizes that it sends to each rank.
absl::Status Collective::CheckParts() {
  size_t largest = 0;
  for (int r = 0; r < port_.size; ++r) {
    const char* const table = port_.SlotOf(r, base_).data;
    uint64_t sent = 0;
    memcpy(&sent, table + port_.rank * sizeof(sent), sizeof(sent));
    if (sent != request_.results[r].bytes) {
      return absl::InvalidArgumentError(absl::StrCat(Name(), ": rank ", r, " sends ", sent, " bytes to rank ",
                                                     port_.rank, ", which expects ", request_.results[r].bytes));
    }
    for (int to = 0; to < port_.size; ++to) {
      memcpy(&sent, table + to * sizeof(sent), sizeof(sent));
      largest = std::max<size_t>(largest, sent);
    }
  }
  first_ = 1;
  rounds_ = 1 + (largest + PartCapacity() - 1) / PartCapacity();
  return absl::OkStatus();
}

// tree_sum: a rank's first slot holds the number of its inputs, their places in the segment, and its result's, unless
// each rank keeps a slice.
absl::Status Collective::CheckAddends() {
  for (int r = 0; r < port_.size; ++r) {
    const char* const table = port_.SlotOf(r, base_).data;
    uint64_t count = 0;
    memcpy(&count, table, sizeof(count));
    if (count != static_cast<uint64_t>(request_.tree->counts[r])) {
      return absl::InvalidArgumentError(
          absl::StrCat(Name(), ": rank ", r, " has ", count, " partial sums, expected ", request_.tree->counts[r]));
    }
    for (uint64_t i = 1; i <= count + !IsSliced(); ++i) {
      uint64_t offset = 0;
      memcpy(&offset, table + i * sizeof(offset), sizeof(offset));
      if (offset > port_.segment_bytes || bytes_ > port_.segment_bytes - offset) {
        return absl::InvalidArgumentError(
            absl::StrCat(Name(), ": a tensor of rank ", r, " is not in the memory that the ranks share"));
      }
    }
  }
  return absl::OkStatus();
}

void Collective::ChooseWay(bool all_shared) {
  const uint64_t chunks = std::max<uint64_t>(1, (bytes_ + kSlotBytes - 1) / kSlotBytes);
  switch (request_.kind) {
    case Kind::kScatter:
    case Kind::kReduceScatter:
      way_ = Way::kParts;
      rounds_ = std::max<uint64_t>(1, (bytes_ + PartCapacity() - 1) / PartCapacity());
      return;
    case Kind::kAllToAll:
      way_ = Way::kParts;
      return;  // CheckParts() knows the rounds
    case Kind::kTreeSum:
      way_ = Way::kInPlace;
      rounds_ = 1;
      return;
    case Kind::kAllReduce:
      if (all_shared) {
        way_ = Way::kInPlace;
        rounds_ = 1;
        return;
      }
      way_ = bytes_ <= kWholeBytes ? Way::kShare : Way::kReduceParts;
      rounds_ = first_ + chunks;
      return;
    default:
      way_ = Way::kShare;
      rounds_ = chunks;
  }
}

CallHeader Collective::OwnHeader() const {
  CallHeader header = {};
  header.kind = static_cast<uint8_t>(request_.kind);
  header.dtype = static_cast<uint8_t>(request_.dtype);
  header.op = static_cast<uint8_t>(request_.op);
  header.shared = shared_;
  header.root = request_.root;
  header.bytes = bytes_;
  header.number = number_;
  header.offset = offset_;
  header.factor = request_.factor;
  return header;
}

// Writes() returns whether `rank` has data in its slots; Reads() returns whether this rank reads it.
bool Collective::Writes(int rank) const {
  switch (request_.kind) {
    case Kind::kBarrier:
      return false;
    case Kind::kBroadcast:
    case Kind::kScatter:
      return rank == request_.root;
    default:
      return true;
  }
}
bool Collective::ReadsFrom(int rank) const {
  const bool at_root_only = request_.kind == Kind::kReduce || request_.kind == Kind::kGather;
  return rank != port_.rank && Writes(rank) && (!at_root_only || port_.rank == request_.root);
}

std::string Collective::WaitsFor() const {
  const uint64_t round = base_ + finished_;
  std::vector<int> ranks;
  for (int r = 0; r < port_.size; ++r) {
    if (r == port_.rank) continue;
    const bool published = port_.IsPublished(r, round);
    const bool reduced = port_.SlotOf(r, round).reduced.load(std::memory_order_acquire) == round + 1;
    const bool needed = !open_ || HasReducePhase() || ReadsFrom(r);
    if (needed && (!published || (open_ && HasReducePhase() && !reduced))) ranks.push_back(r);
  }
  return absl::StrJoin(ranks, ", ");
}

}  // namespace lockstep::comm::shm::internal
