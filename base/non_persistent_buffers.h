// Buffers of a module that are not part of its state dict.

#ifndef LOCKSTEP_BASE_NON_PERSISTENT_BUFFERS_H_
#define LOCKSTEP_BASE_NON_PERSISTENT_BUFFERS_H_

#include <string>

namespace lockstep {

// A torch::nn::Module derives from this too if it has buffers that Python makes by
// register_buffer(name, tensor, persistent=False). checkpoint::StateDict() and LoadStateDict() then pass over them. DDP
// broadcasts them like other buffers.
class NonPersistentBuffers {
 public:
  virtual ~NonPersistentBuffers() = default;

  // Returns true if the module's own buffer with this name is not part of the state dict.
  virtual bool IsNonPersistent(const std::string& buffer) const = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_NON_PERSISTENT_BUFFERS_H_
