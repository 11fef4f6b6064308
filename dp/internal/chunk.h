#ifndef LOCKSTEP_DP_INTERNAL_CHUNK_H_
#define LOCKSTEP_DP_INTERNAL_CHUNK_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::dp::internal {

enum class ChunkKind { kParameters, kBuffers };

// Tensors of a module that travel to its replicas together. They are defined, of one dtype and on one device.
class Chunk {
 public:
  // copies[r][i] is the tensor of replica r that corresponds to sources[i]. It gets new memory, and no history. With
  // `share_memory`, parameters of a replica on the sources' device get the sources' memory. Everything else of a
  // replica on devices[r] is one block.
  Chunk(ChunkKind kind, std::vector<at::Tensor> sources, const std::vector<std::vector<at::Tensor>>& copies,
        const std::vector<c10::Device>& devices, bool share_memory);

  // Connects the gradients of the copies to the sources that require gradients now.
  void Attach();

  // Returns whether a graph that still waits for its backward keeps a copy.
  bool IsKept() const;

  // Gives the first `count` replicas the sources' values. If a graph that still waits for its backward keeps a
  // parameter's old value, and the value has changed, that backward throws LibTorch's error.
  void Update(size_t count);

 private:
  struct Copy {
    std::vector<at::Tensor> tensors;  // the replica's
    std::vector<at::Tensor> memory;   // the same memory, without versions that autograd checks; empty if shared
    at::Tensor flat;                  // all of it
    std::vector<size_t> idle_uses;    // Uses() while no graph keeps any; empty before the first update
  };

  struct Versions {
    uint32_t source, copy;
  };

  Copy MakeCopy(std::vector<at::Tensor> tensors, c10::Device device, bool share) const;
  std::vector<at::Tensor> Pieces(const at::Tensor& flat) const;
  static std::vector<size_t> Uses(const Copy& copy);
  static bool IsKept(const Copy& copy) { return Uses(copy) != copy.idle_uses; }
  bool IsOutdated(const Copy& copy) const;
  void Fill(const std::vector<Copy*>& copies) const;
  void RecordVersions(size_t count);

  const ChunkKind kind_;
  const std::vector<at::Tensor> sources_;
  std::vector<std::vector<int64_t>> strides_;  // of each piece
  std::vector<int64_t> offsets_;               // of each piece, in elements, and last the sum
  std::vector<Copy> copies_;
  std::vector<std::vector<Versions>> versions_;  // of buffers, when each replica was last updated
};

}  // namespace lockstep::dp::internal

#endif  // LOCKSTEP_DP_INTERNAL_CHUNK_H_
