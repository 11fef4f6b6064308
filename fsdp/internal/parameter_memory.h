// Where the values of the parameters are.

#ifndef LOCKSTEP_FSDP_INTERNAL_PARAMETER_MEMORY_H_
#define LOCKSTEP_FSDP_INTERNAL_PARAMETER_MEMORY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/fsdp/internal/buffer_pool.h"
#include "lockstep/fsdp/internal/unit_plan.h"

namespace lockstep::fsdp::internal {

// Units are numbered as in the vector that an implementation's Create() takes. Its first units are the trained ones.
// Its user calls the functions of a step in the order of the events; by default an event needs nothing.
class ParameterMemory {
 public:
  virtual ~ParameterMemory() = default;
  ParameterMemory(const ParameterMemory&) = delete;
  ParameterMemory& operator=(const ParameterMemory&) = delete;

  // Returns the memory of a piece that this rank owns: flat, with the parameter's values. The optimizer steps it.
  virtual at::Tensor Shard(size_t unit, const Piece& piece) const = 0;

  // The bytes that this rank has, besides gradients.
  struct Bytes {
    int64_t shards = 0;   // that are not in `pages`
    int64_t pages = 0;    // in common with the other ranks of the host
    int64_t buffers = 0;  // of buffers(), at most
  };
  virtual Bytes bytes() const = 0;

  // Buffers that hold any unit's gradients, for their reduction.
  BufferPool& buffers() { return buffers_; }
  const BufferPool& buffers() const { return buffers_; }
  // The number of reductions that may be under way, each with a buffer, when autograd goes on. If it is 0, a unit is
  // reduced when autograd has released the gradients: at the latest when `next` is called, before a unit is used.
  virtual size_t reductions() const = 0;
  virtual void BeforeUse(const std::function<void()>& /*next*/) {}

  // A forward of the module begins or ends. Throws StatusError if a parameter is not as Create() left it.
  virtual void BeginForward() {}
  virtual void EndForward() {}
  // All gradients of a unit have been accumulated, so its values are needed no more; all of a backward have been.
  virtual void EndUnit(size_t /*unit*/) {}
  virtual void EndBackward() {}
  // The unit's gradients are about to be reduced, on all ranks. `brings`: false if this rank has no backward in this
  // round. Then it takes part, until the others reduce the unit, in all that they need for their backward.
  virtual absl::Status BeforeReduction(size_t /*unit*/, bool /*brings*/) { return absl::OkStatus(); }

  // Between the two, which every rank calls, code outside of forward and backward may read the parameters. If `write`
  // is true it may also change them, alike on all ranks.
  virtual absl::Status BeginFull(bool write) = 0;
  virtual absl::Status EndFull() = 0;

  // With KeptShards, on every rank: on one that has all of them, makes the parameters whole until the next forward or
  // step.
  virtual void Assemble(bool /*has_all*/) {}

  // Between the two the caller reads and writes shards. Operators may take the parameters for their sizes only.
  virtual void BeginShards() {}
  virtual void EndShards() {}

  // After the optimizer's step, on every rank: until it returns, no rank may read the module's parameters.
  virtual absl::Status AfterStep() = 0;

 protected:
  ParameterMemory(comm::ProcessGroup* group, int64_t buffer_bytes, c10::Device device = c10::kCPU)
      : buffers_(group, buffer_bytes, device) {}

 private:
  BufferPool buffers_;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_PARAMETER_MEMORY_H_
