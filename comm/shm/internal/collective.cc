#include "lockstep/comm/shm/internal/collective.h"

#include <string.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::comm::shm::internal {
namespace {

// An all_reduce of up to so many bytes is reduced whole by every rank: one exchange instead of two.
constexpr size_t kWholeBytes = size_t{32} << 10;

// Rank `rank`'s part of `bytes`, in whole lines.
Buffer PartOf(char* data, size_t bytes, int rank, int size) {
  const size_t lines = (bytes + kLine - 1) / kLine;
  const size_t begin = std::min(bytes, lines * rank / size * kLine);
  const size_t end = std::min(bytes, lines * (rank + 1) / size * kLine);
  return {data + begin, end - begin};
}

void Copy(char* to, const char* from, size_t bytes) {
  if (bytes != 0 && to != from) memmove(to, from, bytes);
}

// The rest of `buffer` from `offset` on.
char* At(const Buffer& buffer, size_t offset) { return offset < buffer.bytes ? buffer.data + offset : nullptr; }

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
  return text;
}

bool Agree(const CallHeader& a, const CallHeader& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root && a.bytes == b.bytes &&
         a.number == b.number;
}

// The bytes of what one rank gives another (of everything, where all is given to all).
size_t BytesOf(const Request& request) {
  if (request.kind == Kind::kAllToAll) return 0;
  if (!request.buffers.empty()) return request.buffers[0].bytes;
  return request.results.empty() ? 0 : request.results[0].bytes;
}

}  // namespace

Collective::Collective(Port& port, Request request, uint64_t number)
    : port_(port), request_(std::move(request)), number_(number), bytes_(BytesOf(request_)) {
  if (Reduces(request_.kind)) reduce_ = ReduceFunctionFor(request_.dtype, request_.op);
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

// all_to_all: each rank's table of what it sends to whom is in its first slot.
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
  return header;
}

// Whether `rank` has data in its slots; whether this rank reads it.
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

void Collective::Stage(uint64_t round) {
  Slot& slot = port_.OwnSlot(base_ + round);
  if (round == 0) {
    slot.header = OwnHeader();
    // Where the first chunk goes, and how, before the others' headers are known: as if none were shared.
    if (!open_) ChooseWay(/*all_shared=*/false);
    if (request_.kind == Kind::kAllToAll) {
      for (int to = 0; to < port_.size; ++to) {
        const uint64_t bytes = request_.buffers[to].bytes;
        memcpy(slot.data + to * sizeof(bytes), &bytes, sizeof(bytes));
      }
    } else if (!shared_ && Writes(port_.rank)) {
      StageChunk(0, slot);
    }
    rounds_ = std::max<uint64_t>(rounds_, 1);
  } else if (round >= first_) {
    if (!Writes(port_.rank)) return;
    StageChunk(round - first_, slot);
  }
  port_.Publish(base_ + round);
}

void Collective::StageChunk(uint64_t chunk, Slot& slot) {
  if (way_ == Way::kParts) {
    const size_t capacity = PartCapacity(), offset = chunk * capacity;
    for (int to = 0; to < port_.size; ++to) {
      const Buffer& buffer = request_.buffers[to];
      if (to == port_.rank || buffer.bytes <= offset) continue;
      memcpy(slot.data + to * capacity, buffer.data + offset, std::min(capacity, buffer.bytes - offset));
    }
    return;
  }
  const size_t bytes = ChunkBytes(chunk);
  char* const data = request_.buffers[0].data + ChunkOffset(chunk);
  if (way_ == Way::kShare) {
    if (bytes != 0) memcpy(slot.data, data, bytes);
    return;
  }
  const Buffer own = PartOf(data, bytes, port_.rank, port_.size);
  const size_t before = own.data - data, after = before + own.bytes;
  memcpy(slot.data, data, before);
  memcpy(slot.data + after, data + after, bytes - after);
}

bool Collective::CanReduce(uint64_t round) const { return round < first_ || port_.IsPublishedByAll(base_ + round); }

void Collective::ReducePart(uint64_t round) {
  if (way_ == Way::kInPlace) {
    ReduceInPlace();
  } else if (round >= first_) {
    const size_t bytes = ChunkBytes(round - first_);
    char* const data = request_.buffers[0].data + ChunkOffset(round - first_);
    const Buffer part = PartOf(data, bytes, port_.rank, port_.size);
    const size_t offset = part.data - data;
    absl::InlinedVector<const char*, 8> inputs;
    for (int r = 0; r < port_.size; ++r) {
      inputs.push_back(r == port_.rank ? part.data : port_.SlotOf(r, base_ + round).data + offset);
    }
    // For the others, in the place where this rank had nothing to stage.
    char* const outputs[] = {part.data, port_.OwnSlot(base_ + round).data + offset};
    reduce_(outputs, 2, inputs.data(), port_.size, part.bytes / SizeOf(request_.dtype));
  }
  port_.PublishReduced(base_ + round);
}

void Collective::ReduceInPlace() {
  char* const segment = reinterpret_cast<char*>(&port_.layout.header());
  absl::InlinedVector<const char*, 8> inputs;
  absl::InlinedVector<char*, 8> outputs;
  size_t part_bytes = 0;
  for (int r = 0; r < port_.size; ++r) {
    char* const data = segment + port_.SlotOf(r, base_).header.offset;
    const Buffer part = PartOf(data, bytes_, port_.rank, port_.size);
    inputs.push_back(part.data);
    outputs.push_back(part.data);
    part_bytes = part.bytes;
  }
  reduce_(outputs.data(), port_.size, inputs.data(), port_.size, part_bytes / SizeOf(request_.dtype));
}

bool Collective::CanFinish(uint64_t round) const {
  if (HasReducePhase()) return round < reduced_ && (round < first_ || port_.IsReducedByAll(base_ + round));
  if (round < first_) return true;
  for (int r = 0; r < port_.size; ++r) {
    if (ReadsFrom(r) && !port_.IsPublished(r, base_ + round)) return false;
  }
  return true;
}

void Collective::FinishRound(uint64_t round) {
  if (round >= first_ && way_ == Way::kParts) {
    FinishParts(round, round - first_);
  } else if (round >= first_ && way_ != Way::kInPlace) {
    const size_t offset = ChunkOffset(round - first_), bytes = ChunkBytes(round - first_);
    if (way_ == Way::kShare) {
      FinishShare(round, offset, bytes);
    } else {
      FinishReduceParts(round, offset, bytes);
    }
  }
  port_.FinishRound(base_ + round);
}

void Collective::FinishShare(uint64_t round, size_t offset, size_t bytes) {
  const bool root = port_.rank == request_.root;
  switch (request_.kind) {
    case Kind::kBroadcast:
      if (!root) Copy(request_.buffers[0].data + offset, port_.SlotOf(request_.root, base_ + round).data, bytes);
      return;
    case Kind::kGather:
      if (!root) return;
      [[fallthrough]];
    case Kind::kAllGather:
      for (int r = 0; r < port_.size; ++r) {
        const char* const from =
            r == port_.rank ? request_.buffers[0].data + offset : port_.SlotOf(r, base_ + round).data;
        Copy(request_.results[r].data + offset, from, bytes);
      }
      return;
    case Kind::kReduce:
      if (!root) return;
      [[fallthrough]];
    case Kind::kAllReduce: {
      const Buffer& result = request_.kind == Kind::kReduce ? request_.results[0] : request_.buffers[0];
      absl::InlinedVector<const char*, 8> inputs;
      for (int r = 0; r < port_.size; ++r) {
        inputs.push_back(r == port_.rank ? request_.buffers[0].data + offset : port_.SlotOf(r, base_ + round).data);
      }
      char* const output = result.data + offset;
      reduce_(&output, 1, inputs.data(), port_.size, bytes / SizeOf(request_.dtype));
      return;
    }
    default:
      return;
  }
}

void Collective::FinishParts(uint64_t round, uint64_t chunk) {
  const size_t capacity = PartCapacity(), offset = chunk * capacity;
  absl::InlinedVector<const char*, 8> inputs;
  for (int r = 0; r < port_.size; ++r) {
    // For a scatter only the root has buffers.
    const bool own = r == port_.rank && Writes(r);
    inputs.push_back(own ? At(request_.buffers[r], offset)
                         : port_.SlotOf(r, base_ + round).data + port_.rank * capacity);
  }
  const auto piece = [&](size_t whole) { return whole > offset ? std::min(capacity, whole - offset) : 0; };
  if (request_.kind == Kind::kReduceScatter) {
    char* const output = At(request_.results[0], offset);
    reduce_(&output, 1, inputs.data(), port_.size, piece(bytes_) / SizeOf(request_.dtype));
  } else if (request_.kind == Kind::kScatter) {
    Copy(At(request_.results[0], offset), inputs[request_.root], piece(bytes_));
  } else {
    for (int r = 0; r < port_.size; ++r) {
      Copy(At(request_.results[r], offset), inputs[r], piece(request_.results[r].bytes));
    }
  }
}

void Collective::FinishReduceParts(uint64_t round, size_t offset, size_t bytes) {
  char* const data = request_.buffers[0].data + offset;
  for (int r = 0; r < port_.size; ++r) {
    if (r == port_.rank) continue;
    const Buffer part = PartOf(data, bytes, r, port_.size);
    Copy(part.data, port_.SlotOf(r, base_ + round).data + (part.data - data), part.bytes);
  }
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
