// Options that the optimizers beside SGD, Adam and AdamW refuse.

#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/optim/adadelta.h"
#include "lockstep/optim/adagrad.h"
#include "lockstep/optim/adamax.h"
#include "lockstep/optim/asgd.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/muon.h"
#include "lockstep/optim/nadam.h"
#include "lockstep/optim/radam.h"
#include "lockstep/optim/rmsprop.h"
#include "lockstep/optim/rprop.h"

namespace lockstep::optim {
namespace {

// The first line of what the constructor throws.
template <typename T, typename O>
std::string Refusal(const O& options, const at::Tensor& parameter = at::ones({2, 3}).set_requires_grad(true)) {
  try {
    T(std::vector<at::Tensor>{parameter}, options);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing";
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

TEST(Refusals, OfLARS) {
  EXPECT_EQ(Refusal<LARS>(LARSOptions()), "nothing");
  EXPECT_EQ(Refusal<LARS>(LARSOptions(-1)), "Invalid learning rate: -1");
  EXPECT_EQ(Refusal<LARS>(LARSOptions().momentum(-1)), "Invalid momentum value: -1");
  EXPECT_EQ(Refusal<LARS>(LARSOptions().weight_decay(-1)), "Invalid weight_decay value: -1");
  EXPECT_EQ(Refusal<LARS>(LARSOptions().trust_coefficient(-1)), "Invalid trust_coefficient value: -1");
}

}  // namespace
}  // namespace lockstep::optim
