#ifndef LOCKSTEP_COMM_SHM_INTERNAL_PORT_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_PORT_H_

#include <algorithm>
#include <cstdint>

#include "lockstep/comm/shm/internal/layout.h"

namespace lockstep::comm::shm::internal {

// One rank's access to the rounds of the segment. Collectives are divided into rounds, which all ranks number in the
// same way throughout the communicator's life. In each round a rank may publish its slot, the ranks that need the data
// read it, and each rank marks the round as finished, so that the slot can be reused kSlots rounds later.
class Port {
 public:
  Port(Layout layout, int rank, int size, size_t segment_bytes)
      : rank(rank), size(size), segment_bytes(segment_bytes), layout(layout) {}

  const int rank;
  const int size;
  const size_t segment_bytes;
  const Layout layout;

  // Returns whether every rank has finished with the previous contents of this rank's slot.
  bool SlotIsFree(uint64_t round) {
    if (round < kSlots || round - kSlots < all_finished_) return true;
    uint64_t least = ~uint64_t{0};
    for (int r = 0; r < size; ++r) {
      least = std::min(least, layout.control(r).finished.load(std::memory_order_acquire));
    }
    all_finished_ = least;
    return round - kSlots < all_finished_;
  }

  Slot& OwnSlot(uint64_t round) const { return layout.slot(rank, round); }
  const Slot& SlotOf(int r, uint64_t round) const { return layout.slot(r, round); }

  void Publish(uint64_t round) {
    OwnSlot(round).published.store(round + 1, std::memory_order_release);
    news_ = true;
  }
  bool IsPublished(int r, uint64_t round) const {
    return SlotOf(r, round).published.load(std::memory_order_acquire) == round + 1;
  }
  bool IsPublishedByAll(uint64_t round) const {
    for (int r = 0; r < size; ++r) {
      if (!IsPublished(r, round)) return false;
    }
    return true;
  }

  void PublishReduced(uint64_t round) {
    OwnSlot(round).reduced.store(round + 1, std::memory_order_release);
    news_ = true;
  }
  bool IsReducedByAll(uint64_t round) const {
    for (int r = 0; r < size; ++r) {
      if (SlotOf(r, round).reduced.load(std::memory_order_acquire) != round + 1) return false;
    }
    return true;
  }

  void FinishRound(uint64_t round) {
    layout.control(rank).finished.store(round + 1, std::memory_order_release);
    news_ = true;
  }

  // RecordNews() records that others may have something to do. TakeNews() returns whether they do since the last call.
  void RecordNews() { news_ = true; }
  bool TakeNews() {
    const bool news = news_;
    news_ = false;
    return news;
  }

 private:
  uint64_t all_finished_ = 0;  // rounds that every rank was seen to have finished
  bool news_ = false;
};

}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_PORT_H_
