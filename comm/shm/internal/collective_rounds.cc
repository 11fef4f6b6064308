// How the data of a collective goes through the slots, round by round.

#include <string.h>

#include <algorithm>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "lockstep/comm/shm/internal/collective.h"

namespace lockstep::comm::shm::internal {
namespace {

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

}  // namespace

void Collective::Stage(uint64_t round) {
  Slot& slot = port_.OwnSlot(base_ + round);
  if (round == 0) {
    slot.header = OwnHeader();
    // Places the first chunk, before the others' headers have arrived, as if no buffer were shared.
    if (!open_) ChooseWay(/*all_shared=*/false);
    if (request_.kind == Kind::kAllToAll) {
      for (int to = 0; to < port_.size; ++to) {
        const uint64_t bytes = request_.buffers[to].bytes;
        memcpy(slot.data + to * sizeof(bytes), &bytes, sizeof(bytes));
      }
    } else if (request_.kind == Kind::kTreeSum) {
      // CheckAddends() refuses places outside the segment.
      std::vector<uint64_t> table = {request_.buffers.size()};
      const auto segment = reinterpret_cast<uintptr_t>(&port_.layout.header());
      for (const Buffer& b : request_.buffers) table.push_back(reinterpret_cast<uintptr_t>(b.data) - segment);
      if (!IsSliced()) table.push_back(reinterpret_cast<uintptr_t>(request_.results[0].data) - segment);
      memcpy(slot.data, table.data(), table.size() * sizeof(table[0]));
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
  if (request_.kind == Kind::kTreeSum) {
    SumTreeInPlace();
  } else if (way_ == Way::kInPlace) {
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
    // For the other ranks, in the slot where this rank had nothing to stage.
    char* const outputs[] = {part.data, port_.OwnSlot(base_ + round).data + offset};
    reduce_(outputs, 2, inputs.data(), port_.size, part.bytes / SizeOf(request_.dtype), factors_.data());
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
  reduce_(outputs.data(), port_.size, inputs.data(), port_.size, part_bytes / SizeOf(request_.dtype), factors_.data());
}

void Collective::SumTreeInPlace() {
  char* const segment = reinterpret_cast<char*>(&port_.layout.header());
  absl::InlinedVector<const char*, 16> inputs;
  absl::InlinedVector<char*, 8> outputs;
  size_t part_bytes = 0;
  if (IsSliced()) {
    outputs.push_back(request_.results[0].data);
    part_bytes = request_.results[0].bytes;
  }
  for (int r = 0; r < port_.size; ++r) {
    const char* const table = port_.SlotOf(r, base_).data;
    for (int i = 1; i <= request_.tree->counts[r] + !IsSliced(); ++i) {
      uint64_t offset = 0;
      memcpy(&offset, table + i * sizeof(offset), sizeof(offset));
      const Buffer part = OwnPart(segment + offset);
      part_bytes = part.bytes;
      if (i <= request_.tree->counts[r]) {
        inputs.push_back(part.data);
      } else {
        outputs.push_back(part.data);
      }
    }
  }
  TreeSumFunctionFor(request_.dtype)(outputs.data(), static_cast<int>(outputs.size()), inputs.data(),
                                     request_.tree->adds.data(), static_cast<int>(inputs.size()),
                                     part_bytes / SizeOf(request_.dtype), request_.tree->divisor);
}

// The part of an addend that this rank adds up.
Buffer Collective::OwnPart(char* data) const {
  if (!IsSliced()) return PartOf(data, bytes_, port_.rank, port_.size);
  return {data + request_.tree->slices[port_.rank] * SizeOf(request_.dtype), request_.results[0].bytes};
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
      reduce_(&output, 1, inputs.data(), port_.size, bytes / SizeOf(request_.dtype), factors_.data());
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
    reduce_(&output, 1, inputs.data(), port_.size, piece(bytes_) / SizeOf(request_.dtype), factors_.data());
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

}  // namespace lockstep::comm::shm::internal
