#ifndef LOCKSTEP_DDP_INTERNAL_BIRTHPLACE_H_
#define LOCKSTEP_DDP_INTERNAL_BIRTHPLACE_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::ddp::internal {

// Memory in a bucket that the allocator may hand out; see gradient_allocator.h.
struct Birthplace {
  void* data = nullptr;
  size_t bytes = 0;
  at::Tensor buffer;                  // that it is a part of
  std::atomic<bool> occupied{false};  // by what was allocated there and not freed yet
};

// What the allocator is asked for during a backward, in its thread. A gradient is known by its number among the
// requests of its size, counted from 1: a graph that stays the same asks for the same in every backward. Operators want
// memory of that size for other things too.
class Births {
 public:
  static constexpr size_t kLeastBytes = 64 << 10;

  // In this thread, from now on, the allocator asks `births`. Null: nobody.
  static void Activate(std::shared_ptr<Births> births);

  // Another backward begins: nothing was asked for, and nothing is expected.
  void Begin();

  // The `number`th request of that size is to get the place; until Withdraw().
  void Expect(std::shared_ptr<Birthplace> place, int number);
  void Withdraw(size_t bytes, int number);

  // For the allocator: the place for a request of that many bytes, now occupied, or null.
  std::shared_ptr<Birthplace> Take(size_t bytes);

  // For the allocator: what it gave instead.
  void Note(void* data, size_t bytes);

  // Which request of its size got this memory; 0 if none.
  int NumberOf(const void* data, size_t bytes) const;

 private:
  struct Request {
    void* data;
    size_t bytes;
    int number;
  };
  std::map<size_t, int> counts_;
  std::vector<Request> requests_;
  std::map<std::pair<size_t, int>, std::shared_ptr<Birthplace>> expected_;
};

bool GradientAllocatorInstalled();

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_BIRTHPLACE_H_
