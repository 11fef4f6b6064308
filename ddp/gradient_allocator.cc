#include "lockstep/ddp/gradient_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "lockstep/ddp/internal/birthplace.h"

namespace lockstep::ddp {
namespace internal {
namespace {

thread_local std::shared_ptr<Births> active;

// The places that are occupied, by address; they live until what was born there is freed.
struct Occupied {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<Birthplace>> places;
  std::atomic<int64_t> count{0};
};

Occupied& occupied() {
  static Occupied* const all = new Occupied;  // tensors may be freed after main
  return *all;
}

at::Allocator* base = nullptr;  // the allocator that was there before

void Occupy(const std::shared_ptr<Birthplace>& place) {
  const std::lock_guard<std::mutex> lock(occupied().mutex);
  occupied().places.emplace(place->data, place);
  occupied().count.fetch_add(1, std::memory_order_relaxed);
}

// Null if nothing was born there.
std::shared_ptr<Birthplace> Leave(void* data) {
  if (occupied().count.load(std::memory_order_relaxed) == 0) return nullptr;
  const std::lock_guard<std::mutex> lock(occupied().mutex);
  const auto found = occupied().places.find(data);
  if (found == occupied().places.end()) return nullptr;
  std::shared_ptr<Birthplace> place = std::move(found->second);
  occupied().places.erase(found);
  occupied().count.fetch_sub(1, std::memory_order_relaxed);
  return place;
}

// raw_allocate() demands that a pointer be its own context, and raw_deallocate() that one function free any: so what to
// do is looked up by address.
void Free(void* data) {
  if (const auto place = Leave(data)) {
    place->occupied = false;
  } else {
    base->raw_deallocate(data);
  }
}

class GradientAllocator final : public at::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    void* const data = Place(bytes);
    return {data, data, &Free, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void* Place(size_t bytes) {
    if (!active || bytes < Births::kLeastBytes) return base->raw_allocate(bytes);
    if (const auto place = active->Take(bytes)) {
      Occupy(place);
      return place->data;
    }
    void* const data = base->raw_allocate(bytes);
    active->Note(data, bytes);
    return data;
  }
};

}  // namespace

void Births::Activate(std::shared_ptr<Births> births) { active = std::move(births); }

void Births::ExpectNext(std::shared_ptr<Birthplace> place, int number) {
  requests_.clear();
  expected_ = std::move(place);
  awaited_ = number;
}

std::shared_ptr<Birthplace> Births::Take(size_t bytes) {
  if (!expected_ || expected_->bytes != bytes || --awaited_ != 0) return nullptr;
  return expected_->occupied.exchange(true) ? nullptr : std::move(expected_);
}

void Births::Note(void* data, size_t bytes) { requests_.push_back({data, bytes}); }

int Births::NumberOf(const void* data, size_t bytes) const {
  int number = 0, found = 0;
  for (const Request& request : requests_) {
    if (request.bytes != bytes) continue;
    ++number;
    if (request.data == data) found = number;  // the last: memory may be given again
  }
  return found;
}

bool GradientAllocatorInstalled() { return base != nullptr; }

}  // namespace internal

void InstallGradientAllocator() {
  if (internal::base) return;
  internal::base = c10::GetCPUAllocator();
  static auto* const allocator = new internal::GradientAllocator;
  c10::SetCPUAllocator(allocator, /*priority=*/1);
}

}  // namespace lockstep::ddp
