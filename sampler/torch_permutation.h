// PyTorch's shuffled order, computed lazily.

#ifndef LOCKSTEP_SAMPLER_TORCH_PERMUTATION_H_
#define LOCKSTEP_SAMPLER_TORCH_PERMUTATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::sampler {

// Equals torch.randperm(size, generator=torch.Generator().manual_seed(seed)) of PyTorch 2.11 on the CPU, index by
// index.
//
//   TorchPermutation permutation(1281167, seed + epoch);
//   permutation.Fill(rank, world_size, indices.size(), indices.data());
//
// Below 214,748,364 indices PyTorch swaps each element in turn with a later one, so an index costs the steps up to its
// position. From that size on it swaps with an earlier one, so the first index costs all steps. Memory is 4 bytes for
// each index of the dataset, 8 above 2^32 indices. It is reserved at once but used only as steps touch it, which soon
// is everywhere.
//
// Copies are independent. Positions may be requested in any order. Not thread-safe.
class TorchPermutation {
 public:
  // Requires: size is in [1, 2^62]. Only the low 32 bits of `seed` count, as in PyTorch. Throws std::bad_alloc if
  // memory runs out.
  TorchPermutation(int64_t size, uint64_t seed);

  int64_t size() const { return size_; }

  // The index at `position`, which must be in [0, size).
  int64_t operator()(int64_t position) {
    int64_t index;
    Fill(position, 1, 1, &index);
    return index;
  }

  // Sets out[i] = (*this)(first + i * stride) for i in [0, count). Requires stride > 0. Much faster than single calls.
  void Fill(int64_t first, int64_t stride, int64_t count, int64_t* out);

 private:
  // The Mersenne Twister mt19937 (Matsumoto and Nishimura, 1998). A word takes 2 ns. With libstdc++'s 8 ns the whole
  // permutation took twice as long.
  class Generator {
   public:
    explicit Generator(uint32_t seed);
    uint32_t operator()();

   private:
    void Refill();

    std::vector<uint32_t> state_;  // not std::array, to keep this class small
    int used_ = 624;
  };

  // Zeros, in memory that the system allocates as it is touched.
  class Zeros {
   public:
    explicit Zeros(size_t bytes);
    Zeros(const Zeros& other);
    Zeros(Zeros&&) = default;
    Zeros& operator=(Zeros&&) = default;
    Zeros& operator=(const Zeros& other) { return *this = Zeros(other); }

    template <typename T>
    T* As() const {
      return static_cast<T*>(data_.get());
    }

   private:
    struct Unmap {
      size_t bytes;
      void operator()(void* data) const;
    };

    std::unique_ptr<void, Unmap> data_;
  };

  int64_t Partner(int64_t step);
  template <typename T>
  void StepUpTo(int64_t end);
  template <typename T>
  void FillAs(int64_t first, int64_t stride, int64_t count, int64_t* out);

  int64_t size_;
  int64_t done_ = 0;  // steps
  Generator generator_;
  Zeros table_;  // for each position: its index XOR the position
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_TORCH_PERMUTATION_H_
