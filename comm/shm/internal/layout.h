// The layout of the shared segment.

#ifndef LOCKSTEP_COMM_SHM_INTERNAL_LAYOUT_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/comm/shm/dtype.h"

namespace lockstep::comm::shm::internal {

constexpr size_t kLine = 64;
constexpr uint64_t kSlots = 4;  // rounds that a rank may be ahead of the slowest reader
constexpr size_t kSlotBytes = size_t{128} << 10;
constexpr uint64_t kMailSlots = 4;
constexpr size_t kMailBytes = size_t{64} << 10;
constexpr int kMostRanks = 1024;

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "atomics must work between processes");

// A rank's description of its call, published in the call's first round.
struct CallHeader {
  uint8_t kind;
  uint8_t dtype;
  uint8_t op;
  uint8_t shared;  // whether the buffer lies in the segment, at `offset`
  int32_t root;
  uint64_t bytes;   // of one buffer
  uint64_t number;  // of the call
  uint64_t offset;
  double factor;
};

// One rank's data in one round. Only that rank writes it. The others read it once `published` is the round.
struct alignas(kLine) Slot {
  std::atomic<uint64_t> published;  // round + 1. In one line with the header, which readers need next
  CallHeader header;
  alignas(
      kLine) std::atomic<uint64_t> reduced;  // round + 1, once the rank's part of the result is in `data` or in place
  alignas(kLine) char data[kSlotBytes];
};

// A message's next piece from one rank to another.
struct alignas(kLine) MailSlot {
  std::atomic<uint64_t> published;  // piece + 1
  uint64_t message_bytes;
  int64_t tag;
  alignas(kLine) char data[kMailBytes];
};

struct Mailbox {
  alignas(kLine) std::atomic<uint64_t> taken;  // pieces that the receiver has done with
  MailSlot slots[kMailSlots];
};

// A rank's own state. Only that rank writes it, except for the doorbell.
struct alignas(kLine) Control {
  std::atomic<uint64_t> finished;                 // rounds that it has done with, its own reading included
  alignas(kLine) std::atomic<uint32_t> doorbell;  // futex
  std::atomic<uint32_t> asleep;                   // threads that wait at it
  alignas(kLine) std::atomic<uint32_t> failed;    // 1 once the failure is written
  int32_t failure_code;
  char failure[1016];  // ends with 0
};

struct alignas(kLine) Header {
  uint64_t magic;
  uint64_t heap_bytes;                            // of each rank
  alignas(kLine) std::atomic<uint32_t> sleepers;  // the sum of every rank's `asleep`
  alignas(kLine) std::atomic<uint32_t> failures;  // ranks whose `failed` is set
};

// Addresses within a segment of `size` ranks. Each rank has a heap of the size in the segment's header.
class Layout {
 public:
  static constexpr uint64_t kMagic = 0x4c6f636b73746570;  // "Lockstep"

  Layout(char* base, int size) : base_(base), size_(size) {}

  // The bytes before the heaps.
  static size_t FixedBytes(int size) {
    const size_t ranks = size;
    return RoundUp(sizeof(Header) + ranks * (sizeof(Control) + kSlots * sizeof(Slot)) +
                   ranks * ranks * sizeof(Mailbox));
  }
  static constexpr size_t RoundUp(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  Control& control(int rank) const { return reinterpret_cast<Control*>(base_ + sizeof(Header))[rank]; }
  Slot& slot(int rank, uint64_t round) const {
    return reinterpret_cast<Slot*>(base_ + sizeof(Header) + size_ * sizeof(Control))[rank * kSlots + round % kSlots];
  }
  Mailbox& mailbox(int from, int to) const {
    return reinterpret_cast<Mailbox*>(base_ + sizeof(Header) +
                                      size_ * (sizeof(Control) + kSlots * sizeof(Slot)))[from * size_ + to];
  }
  char* heap(int rank) const { return base_ + FixedBytes(size_) + rank * header().heap_bytes; }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;

  char* const base_;
  const size_t size_;
};

}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_LAYOUT_H_
