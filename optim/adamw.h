// Adam with decoupled weight decay.

#ifndef LOCKSTEP_OPTIM_ADAMW_H_
#define LOCKSTEP_OPTIM_ADAMW_H_

#include "lockstep/optim/adam.h"

namespace lockstep::optim {

// torch.optim.AdamW. I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", ICLR 2019,
// https://arxiv.org/abs/1711.05101: the parameters are decayed, not the gradients. All else is as for Adam.
//
//   optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(1e-3).weight_decay(0.1).fused(true));
using AdamWOptions = BasicAdamOptions<true>;
using AdamW = BasicAdam<true>;

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_ADAMW_H_
