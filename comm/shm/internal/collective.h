#ifndef LOCKSTEP_COMM_SHM_INTERNAL_COLLECTIVE_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_COLLECTIVE_H_

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "lockstep/comm/shm/internal/port.h"
#include "lockstep/comm/shm/operation.h"
#include "lockstep/comm/shm/reduce.h"

namespace lockstep::comm::shm::internal {

// One collective on one rank: a state machine. Each Step() advances it as far as possible without waiting.
//
// In the first round every rank publishes a header that describes its call. No rank's buffers are written before all
// headers agree. Then the data passes through the slots in chunks, in one of four ways:
// - All ranks read the data that one or all ranks publish (broadcast, all_gather, gather, reduce, small all_reduce).
// - A slot holds a part for each rank (scatter, reduce_scatter, all_to_all).
// - A large all_reduce: each rank stages the parts that others reduce, reduces its own part of the chunk, and reads the
//   results of the others from their slots. This is Rabenseifner's reduce-scatter and all-gather, chunk by chunk.
// - An all_reduce of tensors that are all in the segment: each rank reduces its part of all of them, in place. So does
//   a tree_sum, in which a rank has several of them.
//
// Reductions are in rank order, or in a tree's, so every rank gets the same bits.
class Collective final : public Operation {
 public:
  Collective(Port& port, Request request, uint64_t number);

  // Takes the place of the first round: must be called before Step(), when all earlier collectives are done here.
  void Begin(uint64_t first_round) { base_ = first_round; }

  // Returns whether anything moved. Check done() afterwards.
  bool Step();

  void End(const absl::Status& status);

  // The round after the last; once done.
  uint64_t end_round() const { return base_ + rounds_; }
  bool begun() const { return staged_ > 0; }

  // The ranks that this rank waits for, as "1, 3".
  std::string WaitsFor() const;

  std::string Name() const override;

 private:
  enum class Way : uint8_t { kShare, kParts, kReduceParts, kInPlace };

  bool Open();
  absl::Status CheckHeaders();
  absl::Status Disagreement() const;
  absl::Status CheckParts();
  absl::Status CheckAddends();
  void ChooseWay(bool all_shared);
  CallHeader OwnHeader() const;
  bool Writes(int rank) const;
  bool ReadsFrom(int rank) const;

  void Stage(uint64_t round);
  void StageChunk(uint64_t chunk, Slot& slot);
  bool CanReduce(uint64_t round) const;
  void ReducePart(uint64_t round);
  void ReduceInPlace();
  void SumTreeInPlace();
  Buffer OwnPart(char* data) const;
  bool CanFinish(uint64_t round) const;
  void FinishRound(uint64_t round);
  void FinishShare(uint64_t round, size_t offset, size_t bytes);
  void FinishParts(uint64_t round, uint64_t chunk);
  void FinishReduceParts(uint64_t round, size_t offset, size_t bytes);

  bool IsSliced() const { return request_.tree && !request_.tree->slices.empty(); }
  bool HasReducePhase() const { return way_ == Way::kReduceParts || way_ == Way::kInPlace; }
  size_t PartCapacity() const { return kSlotBytes / port_.size / kLine * kLine; }
  // Chunk `chunk`'s place in a buffer of `bytes_`.
  size_t ChunkOffset(uint64_t chunk) const { return chunk * kSlotBytes; }
  size_t ChunkBytes(uint64_t chunk) const { return std::min(kSlotBytes, bytes_ - ChunkOffset(chunk)); }

  Port& port_;
  Request request_;
  const uint64_t number_;
  size_t bytes_ = 0;     // of one buffer
  uint64_t offset_ = 0;  // of the buffer in the segment, where shared_
  bool shared_ = false;
  ReduceFunction reduce_ = nullptr;
  absl::InlinedVector<double, 8> factors_;  // one a rank, for kPremulSum
  Way way_ = Way::kShare;
  bool open_ = false;
  uint64_t base_ = 0;
  uint64_t first_ = 0;  // the round, from base_, of the first chunk
  uint64_t rounds_ = 1;
  uint64_t staged_ = 0, reduced_ = 0, finished_ = 0;  // rounds, from base_
};

}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_COLLECTIVE_H_
