// The state that a training keeps when ranks die: World::Keep().
//
// The state is a checkpoint::Value, in which a tensor of zeros with memory for one number stands for each large tensor:
// the frame, which is small. The large tensors' bytes are sent from and to the kept tensors themselves.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_KEPT_STATE_H_
#define LOCKSTEP_ELASTIC_INTERNAL_KEPT_STATE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::elastic::internal {

struct NamedTensor {
  std::string name;  // "net: first.weight"
  at::Tensor tensor;
};

// One thing that is kept. All functions but `save` and `load` may be null.
struct KeptThing {
  std::function<absl::StatusOr<checkpoint::Value>()> save;
  std::function<absl::Status(const checkpoint::Value& value)> load;
  bool shares_memory = false;       // large tensors that `save` returns are the thing's own
  std::function<void()> remember;   // its present value
  std::function<void()> take_back;  // to the one that was remembered last
  std::vector<at::Tensor> buffers;  // of a module
  std::vector<NamedTensor> parameters;
};

struct Snapshot {
  checkpoint::Value frame;
  std::vector<NamedTensor> large;  // the tensors for which the frame has others, in their order

  uint64_t Hash(const std::string& serialized_frame) const;
};

class KeptState {
 public:
  // InvalidArgument: the name is taken.
  absl::Status Add(const std::string& name, KeptThing thing);
  std::string Names() const;  // "\"net\", \"optimizer\""
  bool empty() const { return things_.empty(); }

  // Everything. Errors name the thing.
  absl::StatusOr<Snapshot> Save() const;

  // Return the buffers, and the parameters, of all modules.
  std::vector<at::Tensor> buffers() const;
  std::vector<NamedTensor> parameters() const;

  // The devices of parameters and buffers, but the CPU.
  std::vector<c10::Device> gpus() const;

  // Remember() saves the state that a step which is not completed may have changed. TakeBack() restores it.
  void Remember();
  void TakeBack();

 private:
  friend class IncomingState;

  std::vector<std::pair<std::string, KeptThing>> things_;
};

// Another rank's state while it replaces this one's.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(IncomingState incoming, IncomingState::Prepare(&kept, frame, in_place));
//   // ... receive into each of incoming.buffers() ...
//   LOCKSTEP_RETURN_IF_ERROR(incoming.Finish());
class IncomingState {
 public:
  // `in_place`: this rank's own state does not count any more, so large tensors are received where they are kept.
  // Otherwise nothing changes before Finish(). InvalidArgument: the frame does not fit the things that are kept.
  static absl::StatusOr<IncomingState> Prepare(KeptState* kept, checkpoint::Value frame, bool in_place);

  // Memory for the large tensors, in the frame's order: contiguous, on the CPU.
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

  absl::Status Finish();

 private:
  // The place of a thing's large tensors.
  struct Part {
    size_t first = 0;               // of buffers_
    std::vector<NamedTensor> kept;  // in place: the thing's own tensors. Empty: it is loaded from the buffers
  };

  IncomingState(KeptState* kept, checkpoint::Value frame) : kept_(kept), frame_(std::move(frame)) {}
  absl::Status AddPart(const std::string& name, const KeptThing& thing, bool in_place);

  KeptState* kept_;
  checkpoint::Value frame_;
  std::vector<NamedTensor> buffers_;
  std::vector<Part> parts_;  // of each thing
};

// The large tensors of a frame: their stand-ins.
std::vector<NamedTensor> LargeTensors(const checkpoint::Value& frame);

// Checks that names, shapes and dtypes are equal. InvalidArgument names the first that is not.
absl::Status CheckSameLayout(const std::vector<NamedTensor>& ours, const std::vector<NamedTensor>& theirs);

// Contiguous and on the CPU: `tensor` itself if it is so.
at::Tensor OnCpu(const at::Tensor& tensor);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_KEPT_STATE_H_
