// Steps on a GPU, with --config=cuda.

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <vector>

#include "gtest/gtest.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::optim {
namespace {

using Parameters = std::vector<at::Tensor>;

Parameters OnGpu() {
  Parameters parameters;
  for (const int64_t n : {3, 1000}) {
    parameters.push_back(at::full({n}, 0.5, at::kCUDA).set_requires_grad(true));
    parameters.back().mutable_grad() = at::full({n}, 0.25, at::kCUDA);
  }
  return parameters;
}

void ExpectClose(const Parameters& a, const Parameters& b) {
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].allclose(b[i], 1e-6)) << "parameter " << i;
}

TEST(Cuda, TheDefaultIsForeachAndFusedIsCloseToIt) {
  const Parameters first = OnGpu(), second = OnGpu(), third = OnGpu();
  AdamW by_default(first), foreach (second, AdamWOptions().foreach (true)), fused(third, AdamWOptions().fused(true));
  for (int step = 0; step < 3; ++step) {
    by_default.step();
    foreach
      .step();
    fused.step();
  }
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(second[i]));
  ExpectClose(first, third);
}

TEST(Cuda, AFusedStepTakesTheScaleAndCanBeSkipped) {
  const Parameters plain = OnGpu(), scaled = OnGpu();
  SGD of_plain(plain, SGDOptions(0.1).fused(true)), of_scaled(scaled, SGDOptions(0.1).fused(true));
  for (const at::Tensor& parameter : scaled) parameter.mutable_grad().mul_(8);
  const at::Tensor scale = at::full({1}, 8.0f, at::kCUDA);
  of_scaled.SetGradScale(scale, at::full({1}, 1.0f, at::kCUDA));
  of_scaled.step();
  EXPECT_TRUE(scaled[0].equal(plain[0])) << "a gradient is infinite";
  of_scaled.SetGradScale(scale, at::full({1}, 0.0f, at::kCUDA));
  of_scaled.step();
  of_plain.step();
  ExpectClose(scaled, plain);
}

TEST(Cuda, AFusedStepCanBeCaptured) {
  const Parameters stepped = OnGpu(), replayed = OnGpu();
  const auto options = AdamWOptions(0.1).fused(true).capturable(true);
  AdamW plain(stepped, options), captured(replayed, options);
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  captured.step();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  captured.step();
  graph.capture_end();
  for (int step = 0; step < 3; ++step) graph.replay();
  for (int step = 0; step < 4; ++step) plain.step();
  c10::cuda::getCurrentCUDAStream().synchronize();
  ExpectClose(stepped, replayed);
}

}  // namespace
}  // namespace lockstep::optim
