#ifndef LOCKSTEP_DDP_INTERNAL_BIRTHPLACE_H_
#define LOCKSTEP_DDP_INTERNAL_BIRTHPLACE_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep::ddp::internal {

// Memory in a bucket that the allocator may hand out; see gradient_allocator.h.
struct Birthplace {
  void* data = nullptr;
  size_t bytes = 0;
  at::Tensor buffer;                  // that it is a part of
  std::atomic<bool> occupied{false};  // by what was allocated there and not freed yet
};

// What the allocator is asked for between two gradients of a backward, in the thread of that backward. A gradient is
// known by its number among the requests of its size since the gradient before it: the operator that computes it may
// want memory of that size for other things too.
class Births {
 public:
  static constexpr size_t kLeastBytes = 64 << 10;

  // In this thread, from now on, the allocator asks `births`. Null: nobody.
  static void Activate(std::shared_ptr<Births> births);

  // A gradient has come. Of the requests until the next one, the `number`th of its size, counted from 1, is to get
  // `place`; null: none.
  void ExpectNext(std::shared_ptr<Birthplace> place, int number);

  // For the allocator: the place for a request of that many bytes, now occupied, or null.
  std::shared_ptr<Birthplace> Take(size_t bytes);

  // For the allocator: what it gave instead.
  void Note(void* data, size_t bytes);

  // Which request of its size since the last gradient got this memory; 0 if none.
  int NumberOf(const void* data, size_t bytes) const;

 private:
  struct Request {
    void* data;
    size_t bytes;
  };
  std::vector<Request> requests_;
  std::shared_ptr<Birthplace> expected_;
  int awaited_ = 0;  // requests of its size until it is due
};

bool GradientAllocatorInstalled();

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_BIRTHPLACE_H_
