// TorchScript modules for tests, in double. They are made in C++, and have the form of torch.jit.script's.

#ifndef LOCKSTEP_MODELS_SCRIPTED_TESTING_MODULES_H_
#define LOCKSTEP_MODELS_SCRIPTED_TESTING_MODULES_H_

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>

namespace lockstep::models::scripted::testing {

// Two linear layers, "first" and "last", and batch normalisation, "norm", between them: 4 inputs, 3 outputs. Every call
// returns the same values.
torch::jit::Module Mlp();

// Has parameters "a", "b" and "c" of shape [4]. forward(x, use_b) returns {"sum": ..., "parts": ...} from a, and from b
// if use_b is true.
torch::jit::Module Branches();

// Has a parameter "weight" of shape [4] and a buffer "mean". forward(x) returns x * weight * mean and then assigns a
// new tensor to the buffer: (mean + x.mean()) / 2.
torch::jit::Module Averaging();

// Has a parameter "weight" of shape [10, 3]. forward(indices) looks rows up, with sparse gradients.
torch::jit::Module SparseEmbedding();

// rows x 4 numbers.
at::Tensor Batch(int64_t rows, uint64_t seed);

}  // namespace lockstep::models::scripted::testing

#endif  // LOCKSTEP_MODELS_SCRIPTED_TESTING_MODULES_H_
