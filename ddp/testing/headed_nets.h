// Two nets that share an encoder, for tests of wrappers that share parameters.

#ifndef LOCKSTEP_DDP_TESTING_HEADED_NETS_H_
#define LOCKSTEP_DDP_TESTING_HEADED_NETS_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp::testing {

// A head behind an encoder that other nets may have too. 4 inputs, 2 outputs.
struct HeadedImpl : torch::nn::Module {
  HeadedImpl(Mlp encoder, int seed);
  at::Tensor forward(const at::Tensor& x);
  Mlp encoder;
  at::Tensor head;
};
TORCH_MODULE(Headed);

// Two heads behind one encoder.
struct TwoHeads {
  TwoHeads();
  Headed a, b;
};

void ZeroGradients(TwoHeads& nets, bool set_to_none = true);
void ExpectCloseGradients(const TwoHeads& actual, const TwoHeads& expected);

}  // namespace lockstep::ddp::testing

#endif  // LOCKSTEP_DDP_TESTING_HEADED_NETS_H_
