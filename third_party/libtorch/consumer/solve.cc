// Solves a system of equations with LibTorch, and checks the solution. `bazel run //:solve` prints the version and the residual.

#include <torch/torch.h>

#include <iostream>

int main() {
  torch::manual_seed(1);
  const torch::Tensor a = torch::randn({64, 64}, torch::kFloat64);
  const torch::Tensor b = torch::randn({64, 1}, torch::kFloat64);
  const double residual = (a.mm(at::linalg_solve(a, b)) - b).abs().max().item<double>();
  std::cout << "LibTorch " << TORCH_VERSION << ": the residual is " << residual << "\n";
  return residual < 1e-9 ? 0 : 1;
}
