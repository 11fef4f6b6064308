// Batch normalisation that a module computes without a layer of LibTorch.

#ifndef LOCKSTEP_BASE_BATCH_NORMS_IN_CODE_H_
#define LOCKSTEP_BASE_BATCH_NORMS_IN_CODE_H_

#include <string>
#include <vector>

namespace lockstep {

// A torch::nn::Module derives from this too if its forward is a program that normalises batches itself. Nobody can
// replace these layers: ddp::ConvertSyncBatchNorm() names them in its error.
class BatchNormsInCode {
 public:
  virtual ~BatchNormsInCode() = default;

  // Returns the dotted names of the layers in the module, such as "layer1.0.bn1"; of a layer without buffers, its place
  // in the program.
  virtual std::vector<std::string> BatchNorms() const = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_BATCH_NORMS_IN_CODE_H_
