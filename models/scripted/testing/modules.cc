#include "lockstep/models/scripted/testing/modules.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace lockstep::models::scripted::testing {
namespace {

at::Tensor Random(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kDouble);
}

void AddParameter(torch::jit::Module& module, const char* name, const at::Tensor& value) {
  module.register_parameter(name, value.clone().requires_grad_(), /*is_buffer=*/false);
}

void AddMode(torch::jit::Module& module) { module.register_attribute("training", c10::BoolType::get(), true); }

torch::jit::Module Linear(int64_t in, int64_t out, uint64_t seed) {
  torch::jit::Module linear("Linear");
  AddParameter(linear, "weight", Random({out, in}, seed));
  AddParameter(linear, "bias", Random({out}, seed + 1));
  AddMode(linear);
  linear.define("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)\n");
  return linear;
}

torch::jit::Module BatchNorm(int64_t features) {
  torch::jit::Module norm("BatchNorm1d");
  norm.register_buffer("running_mean", at::zeros(features, at::kDouble));
  AddParameter(norm, "weight", at::ones(features, at::kDouble));
  AddParameter(norm, "bias", at::zeros(features, at::kDouble));
  norm.register_buffer("running_var", at::ones(features, at::kDouble));
  norm.register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  AddMode(norm);
  norm.define(R"(
def forward(self, x):
  if self.training:
    self.num_batches_tracked.add_(1)
  return torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, self.training, 0.1, 1e-5, False)
)");
  return norm;
}

}  // namespace

torch::jit::Module Mlp() {
  torch::jit::Module mlp("Mlp");
  mlp.register_module("first", Linear(4, 5, 1));
  mlp.register_module("norm", BatchNorm(5));
  mlp.register_module("last", Linear(5, 3, 3));
  AddMode(mlp);
  mlp.define(R"(
def forward(self, x):
  return self.last.forward(torch.relu(self.norm.forward(self.first.forward(x))))
def hidden(self, x):
  return self.first.forward(x)
)");
  return mlp;
}

torch::jit::Module Branches() {
  torch::jit::Module branches("Branches");
  AddParameter(branches, "a", Random({4}, 5));
  AddParameter(branches, "b", Random({4}, 6));
  AddParameter(branches, "c", Random({4}, 7));
  AddMode(branches);
  branches.define(R"(
def forward(self, x, use_b: bool = True):
  y = torch.tanh(x * self.a)
  parts = [y]
  if use_b:
    z = torch.tanh(x * self.b)
    parts.append(z)
    y = y + z
  return {"sum": [y], "parts": parts}
)");
  return branches;
}

torch::jit::Module Averaging() {
  torch::jit::Module averaging("Averaging");
  AddParameter(averaging, "weight", Random({4}, 8));
  averaging.register_buffer("mean", at::ones({}, at::kDouble));
  AddMode(averaging);
  averaging.define(R"(
def forward(self, x):
  y = x * self.weight * self.mean
  self.mean = (self.mean + x.mean()) / 2
  return y
def spoil(self, x):
  self.weight = self.weight * 2
  return x
)");
  return averaging;
}

torch::jit::Module SparseEmbedding() {
  torch::jit::Module embedding("Embedding");
  AddParameter(embedding, "weight", Random({10, 3}, 9));
  AddMode(embedding);
  embedding.define("def forward(self, x):\n  return torch.embedding(self.weight, x, -1, False, True)\n");
  return embedding;
}

at::Tensor Batch(int64_t rows, uint64_t seed) { return Random({rows, 4}, seed); }

}  // namespace lockstep::models::scripted::testing
