// Options that the optimizers beside SGD, Adam and AdamW refuse.

#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/optim/adadelta.h"
#include "lockstep/optim/adafactor.h"
#include "lockstep/optim/adagrad.h"
#include "lockstep/optim/adamax.h"
#include "lockstep/optim/asgd.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/lbfgs.h"
#include "lockstep/optim/muon.h"
#include "lockstep/optim/nadam.h"
#include "lockstep/optim/radam.h"
#include "lockstep/optim/rmsprop.h"
#include "lockstep/optim/rprop.h"
#include "lockstep/optim/sparse_adam.h"

namespace lockstep::optim {
namespace {

// The first line of what `f` throws.
std::string Thrown(const std::function<void()>& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing";
}

template <typename T, typename O>
std::string Refusal(const O& options, const at::Tensor& parameter = at::ones({2, 3}).set_requires_grad(true)) {
  return Thrown([&] { T(std::vector<at::Tensor>{parameter}, options); });
}

TEST(Refusals, OfAdagrad) {
  EXPECT_EQ(Refusal<Adagrad>(AdagradOptions()), "nothing");
  EXPECT_EQ(Refusal<Adagrad>(AdagradOptions(-1)), "Invalid learning rate: -1");
  EXPECT_EQ(Refusal<Adagrad>(AdagradOptions().lr_decay(-1)), "Invalid lr_decay value: -1");
  EXPECT_EQ(Refusal<Adagrad>(AdagradOptions().weight_decay(-1)), "Invalid weight_decay value: -1");
  EXPECT_EQ(Refusal<Adagrad>(AdagradOptions().initial_accumulator_value(-1)),
            "Invalid initial_accumulator_value value: -1");
  EXPECT_EQ(Refusal<Adagrad>(AdagradOptions().eps(-1)), "Invalid epsilon value: -1");
  EXPECT_EQ(Refusal<Adagrad>(AdagradOptions().fused(true).foreach (true)),
            "`fused` and `foreach` cannot be `True` together.");
}

TEST(Refusals, OfRMSprop) {
  EXPECT_EQ(Refusal<RMSprop>(RMSpropOptions()), "nothing");
  EXPECT_EQ(Refusal<RMSprop>(RMSpropOptions(-1)), "Invalid learning rate: -1");
  EXPECT_EQ(Refusal<RMSprop>(RMSpropOptions().eps(-1)), "Invalid epsilon value: -1");
  EXPECT_EQ(Refusal<RMSprop>(RMSpropOptions().momentum(-1)), "Invalid momentum value: -1");
  EXPECT_EQ(Refusal<RMSprop>(RMSpropOptions().weight_decay(-1)), "Invalid weight_decay value: -1");
  EXPECT_EQ(Refusal<RMSprop>(RMSpropOptions().alpha(-1)), "Invalid alpha value: -1");
}

TEST(Refusals, OfAdadelta) {
  EXPECT_EQ(Refusal<Adadelta>(AdadeltaOptions()), "nothing");
  EXPECT_EQ(Refusal<Adadelta>(AdadeltaOptions(-1)), "Invalid learning rate: -1");
  EXPECT_EQ(Refusal<Adadelta>(AdadeltaOptions().rho(1.5)), "Invalid rho value: 1.5");
  EXPECT_EQ(Refusal<Adadelta>(AdadeltaOptions().eps(-1)), "Invalid epsilon value: -1");
  EXPECT_EQ(Refusal<Adadelta>(AdadeltaOptions().weight_decay(-1)), "Invalid weight_decay value: -1");
}

// Refusals that Adamax, NAdam and RAdam have in common.
template <typename T, typename O>
void ExpectRefusals() {
  EXPECT_EQ(Refusal<T>(O()), "nothing");
  EXPECT_EQ(Refusal<T>(O(-1)), "Invalid learning rate: -1");
  EXPECT_EQ(Refusal<T>(O().eps(-1)), "Invalid epsilon value: -1");
  EXPECT_EQ(Refusal<T>(O().betas({-1, 0.9})), "Invalid beta parameter at index 0: -1");
  EXPECT_EQ(Refusal<T>(O().betas({0.9, 1})), "Invalid beta parameter at index 1: 1");
  EXPECT_EQ(Refusal<T>(O().weight_decay(-1)), "Invalid weight_decay value: -1");
}

TEST(Refusals, OfTheKindsOfAdam) {
  ExpectRefusals<LAMB, LAMBOptions>();
  ExpectRefusals<Adamax, AdamaxOptions>();
  ExpectRefusals<NAdam, NAdamOptions>();
  ExpectRefusals<RAdam, RAdamOptions>();
  EXPECT_EQ(Refusal<NAdam>(NAdamOptions().momentum_decay(-1)), "Invalid momentum_decay value: -1");
}

TEST(Refusals, OfASGDAndRprop) {
  EXPECT_EQ(Refusal<ASGD>(ASGDOptions()), "nothing");
  EXPECT_EQ(Refusal<ASGD>(ASGDOptions(-1)), "Invalid learning rate: -1");
  EXPECT_EQ(Refusal<ASGD>(ASGDOptions().weight_decay(-1)), "Invalid weight_decay value: -1");
  EXPECT_EQ(Refusal<Rprop>(RpropOptions()), "nothing");
  EXPECT_EQ(Refusal<Rprop>(RpropOptions(-1)), "Invalid learning rate: -1");
  EXPECT_EQ(Refusal<Rprop>(RpropOptions().etas({1.5, 1.2})), "Invalid eta values: 1.5, 1.2");
}

TEST(Refusals, OfMuon) {
  EXPECT_EQ(Refusal<Muon>(MuonOptions()), "nothing");
  EXPECT_EQ(Refusal<Muon>(MuonOptions(-1)), "Learning rate should be >= 0 but is: -1");
  EXPECT_EQ(Refusal<Muon>(MuonOptions().momentum(-1)), "momentum should be >= 0 but is: -1");
  EXPECT_EQ(Refusal<Muon>(MuonOptions().weight_decay(-1)), "weight decay should be >= 0 but is: -1");
  EXPECT_EQ(Refusal<Muon>(MuonOptions().adjust_lr_fn("none")), "Adjust learning rate function none is not supported");
  EXPECT_EQ(Refusal<Muon>(MuonOptions().ns_steps(100)),
            "Number of steps must be less than 100 for computational efficiency");
  EXPECT_EQ(Refusal<Muon>(MuonOptions(), at::ones({3}).set_requires_grad(true)),
            "Muon only supports 2D parameters whereas we found a parameter with size: torch.Size([3])");
}

TEST(Refusals, OfAdafactor) {
  EXPECT_EQ(Refusal<Adafactor>(AdafactorOptions()), "nothing");
  EXPECT_EQ(Refusal<Adafactor>(AdafactorOptions(-1)), "Learning rate should be >= 0 but is: -1");
  EXPECT_EQ(Refusal<Adafactor>(AdafactorOptions().beta2_decay(0.5)), "beta2_decay should be <= 0 but is: 0.5");
  EXPECT_EQ(Refusal<Adafactor>(AdafactorOptions().eps({-1, 1})), "epsilon1 should be >= 0 but is: -1");
  EXPECT_EQ(Refusal<Adafactor>(AdafactorOptions().eps({std::nullopt, -1})), "epsilon2 should be >= 0 but is: -1");
  EXPECT_EQ(Refusal<Adafactor>(AdafactorOptions().d(0.5)), "Clipping threshold d should be >= 1 but is: 0.5");
  EXPECT_EQ(Refusal<Adafactor>(AdafactorOptions().weight_decay(-1)), "weight_decay should be >= 0 but is: -1");
}

TEST(Refusals, OfSparseAdam) {
  EXPECT_EQ(Refusal<SparseAdam>(SparseAdamOptions()), "nothing");
  EXPECT_EQ(Refusal<SparseAdam>(SparseAdamOptions(0)), "Invalid learning rate: 0");
  EXPECT_EQ(Refusal<SparseAdam>(SparseAdamOptions().eps(0)), "Invalid epsilon value: 0");
  EXPECT_EQ(Refusal<SparseAdam>(SparseAdamOptions().betas({0.9, 1})), "Invalid beta parameter at index 1: 1");
  EXPECT_EQ(Refusal<SparseAdam>(SparseAdamOptions(), at::ones({2}).to_sparse().set_requires_grad(true)),
            "Sparse params at indices [[0, 0]]: SparseAdam requires dense parameter tensors");
  EXPECT_EQ(Refusal<SparseAdam>(SparseAdamOptions(), at::ones({2}, at::kComplexFloat).set_requires_grad(true)),
            "Complex params at indices [[0, 0]]: SparseAdam does not support complex parameters");
}

TEST(Refusals, OfLBFGS) {
  const at::Tensor a = at::ones({2}).set_requires_grad(true), b = at::ones({2}).set_requires_grad(true);
  const std::vector<torch::optim::OptimizerParamGroup> groups = {torch::optim::OptimizerParamGroup({a}),
                                                                 torch::optim::OptimizerParamGroup({b})};
  EXPECT_EQ(Refusal<LBFGS>(LBFGSOptions()), "nothing");
  EXPECT_EQ(Refusal<LBFGS>(LBFGSOptions(-1)), "Invalid learning rate: -1");
  EXPECT_EQ(Thrown([&] { LBFGS{groups}; }), "LBFGS doesn't support per-parameter options (parameter groups)");
  EXPECT_EQ(Thrown([&] {
              LBFGS(std::vector<at::Tensor>{a, a});
            }),
            "some parameters appear in more than one parameter group, or twice in one");
  EXPECT_EQ(Thrown([&] { LBFGS(std::vector<at::Tensor>{a}).step(nullptr); }),
            "LBFGS.step() missing 1 required positional argument: 'closure'");
  EXPECT_EQ(Thrown([&] {
              LBFGS(std::vector<at::Tensor>{a}, LBFGSOptions().line_search_fn("armijo")).step([&] { return a.sum(); });
            }),
            "only 'strong_wolfe' is supported");
}

TEST(Refusals, OfGradients) {
  const auto step_with = [](auto optimizer, const at::Tensor& parameter, const at::Tensor& gradient) {
    parameter.mutable_grad() = gradient;
    return Thrown([&] { optimizer.step(); });
  };
  const at::Tensor a = at::ones({2}).set_requires_grad(true);
  const at::Tensor complex = at::ones({2}, at::kComplexFloat).set_requires_grad(true);
  EXPECT_EQ(step_with(SparseAdam({a}), a, at::ones({2})),
            "SparseAdam does not support dense gradients, please consider Adam instead");
  EXPECT_EQ(step_with(Adafactor({a}), a, at::ones({2}).to_sparse()), "Adafactor does not support sparse gradients");
  EXPECT_EQ(step_with(Adafactor({complex}), complex, at::ones({2}, at::kComplexFloat)),
            "Adafactor does not support complex parameters");
}

// Comparisons with NaN are false, so `lr < 0` would accept one.
template <typename T, typename O>
void ExpectRefusesNan(const std::string& words = "Invalid learning rate: ") {
  EXPECT_EQ(Refusal<T>(O(std::numeric_limits<double>::quiet_NaN())), words + "nan");
}

TEST(Refusals, OfANanLearningRate) {
  ExpectRefusesNan<Adagrad, AdagradOptions>();
  ExpectRefusesNan<RMSprop, RMSpropOptions>();
  ExpectRefusesNan<Adamax, AdamaxOptions>();
  ExpectRefusesNan<Adadelta, AdadeltaOptions>();
  ExpectRefusesNan<NAdam, NAdamOptions>();
  ExpectRefusesNan<RAdam, RAdamOptions>();
  ExpectRefusesNan<ASGD, ASGDOptions>();
  ExpectRefusesNan<Rprop, RpropOptions>();
  ExpectRefusesNan<LAMB, LAMBOptions>();
  ExpectRefusesNan<LARS, LARSOptions>();
  ExpectRefusesNan<SparseAdam, SparseAdamOptions>();
  ExpectRefusesNan<LBFGS, LBFGSOptions>();
  ExpectRefusesNan<Muon, MuonOptions>("Learning rate should be >= 0 but is: ");
  ExpectRefusesNan<Adafactor, AdafactorOptions>("Learning rate should be >= 0 but is: ");
}

TEST(Refusals, OfLARS) {
  EXPECT_EQ(Refusal<LARS>(LARSOptions()), "nothing");
  EXPECT_EQ(Refusal<LARS>(LARSOptions(-1)), "Invalid learning rate: -1");
  EXPECT_EQ(Refusal<LARS>(LARSOptions().momentum(-1)), "Invalid momentum value: -1");
  EXPECT_EQ(Refusal<LARS>(LARSOptions().weight_decay(-1)), "Invalid weight_decay value: -1");
  EXPECT_EQ(Refusal<LARS>(LARSOptions().trust_coefficient(-1)), "Invalid trust_coefficient value: -1");
}

}  // namespace
}  // namespace lockstep::optim
