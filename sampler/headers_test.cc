// The headers of samplers do not include torch/types.h, and so neither torch/torch.h nor a header of torch/data: a
// source with one of those takes seconds to compile. torch_sampler.h is the exception.

#include <type_traits>

#include "gtest/gtest.h"
#include "lockstep/sampler/distributed_batch_sampler.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/evaluation_sampler.h"
#include "lockstep/sampler/feistel_permutation.h"
#include "lockstep/sampler/index_iterator.h"
#include "lockstep/sampler/random_sampler.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sampler_state.h"
#include "lockstep/sampler/sampler_state_value.h"
#include "lockstep/sampler/torch_permutation.h"
#include "lockstep/sampler/virtual_rank_sampler.h"
#include "lockstep/sampler/weighted_sampler.h"

// torch/types.h declares torch::Dtype. Without it, this one is found.
struct Dtype {};
namespace torch {
using FoundDtype = Dtype;
}

namespace lockstep::sampler {
namespace {

TEST(Headers, DoNotIncludeTorchTypes) { EXPECT_TRUE((std::is_same_v<torch::FoundDtype, ::Dtype>)); }

}  // namespace
}  // namespace lockstep::sampler
