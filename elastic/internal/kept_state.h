// What a training keeps when ranks die: World::Keep().

#ifndef LOCKSTEP_ELASTIC_INTERNAL_KEPT_STATE_H_
#define LOCKSTEP_ELASTIC_INTERNAL_KEPT_STATE_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::elastic::internal {

// One thing that is kept. All functions but `save` and `load` may be null.
struct KeptThing {
  std::function<absl::StatusOr<checkpoint::Value>()> save;
  std::function<absl::Status(const checkpoint::Value& value)> load;
  std::function<void()> remember;   // its present value
  std::function<void()> take_back;  // to the one that was remembered last
  std::vector<at::Tensor> buffers;  // of a module
};

class KeptState {
 public:
  // InvalidArgument: the name is taken.
  absl::Status Add(const std::string& name, KeptThing thing);

  // Everything, in a checkpoint's form. Errors name the thing.
  absl::StatusOr<std::string> Serialize() const;
  // InvalidArgument: the other rank keeps other things.
  absl::Status Deserialize(absl::string_view bytes);

  // Of all modules.
  std::vector<at::Tensor> buffers() const;

  // What a step that is not completed may have changed.
  void Remember();
  void TakeBack();

 private:
  std::vector<std::pair<std::string, KeptThing>> things_;
};

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_KEPT_STATE_H_
