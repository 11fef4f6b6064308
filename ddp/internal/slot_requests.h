// The allocator's side of slots: operators on the CPU compute gradients directly in a bucket. See gradient_allocator.h.

#ifndef LOCKSTEP_DDP_INTERNAL_SLOT_REQUESTS_H_
#define LOCKSTEP_DDP_INTERNAL_SLOT_REQUESTS_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::ddp::internal {

// The memory of a slot, which the allocator may hand out.
struct SlotMemory {
  void* data = nullptr;
  size_t bytes = 0;
  at::Tensor buffer;                  // the bucket's buffer, which `data` points into
  std::atomic<bool> occupied{false};  // from the allocation of a tensor there until it is freed
};

// Counts the requests that one thread makes to the allocator during a backward, and decides which of them get slot
// memory. A request is identified by its size and its number among the requests of that size, counted from 1: a graph
// that stays the same makes the same requests in every backward. Operators also request memory of that size for other
// purposes, so a number may turn out to be wrong.
class SlotRequests {
 public:
  // Smaller requests are neither counted nor given slot memory.
  static constexpr size_t kLeastBytes = 64 << 10;

  // The allocator consults `requests` in this thread from now on. Null: it consults nothing.
  static void Activate(std::shared_ptr<SlotRequests> requests);

  // A backward begins: forgets all requests and expectations.
  void Begin();

  // The `number`th request of that size gets `memory`, unless Withdraw() is called first.
  void Expect(std::shared_ptr<SlotMemory> memory, int number);
  void Withdraw(size_t bytes, int number);

  // For the allocator: counts a request and returns its slot memory, which is occupied now. Null if no slot memory is
  // expected for the request.
  std::shared_ptr<SlotMemory> Take(size_t bytes);

  // For the allocator: the request that was just counted got other memory.
  void Record(void* data, size_t bytes);

  // The number of the request that got this memory; 0 if none did.
  int NumberOf(const void* data, size_t bytes) const;

 private:
  struct Request {
    void* data;
    size_t bytes;
    int number;
  };
  std::map<size_t, int> counts_;
  std::vector<Request> requests_;
  std::map<std::pair<size_t, int>, std::shared_ptr<SlotMemory>> expected_;
};

bool GradientAllocatorInstalled();

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_SLOT_REQUESTS_H_
