#include "lockstep/ddp/testing/headed_nets.h"

#include <ATen/ops/matmul.h>

#include <utility>

namespace lockstep::ddp::testing {

HeadedImpl::HeadedImpl(Mlp encoder, int seed) : encoder(register_module("encoder", std::move(encoder))) {
  head = register_parameter("head", Batch(3, 2, seed));
}

at::Tensor HeadedImpl::forward(const at::Tensor& x) { return at::matmul(encoder(x), head); }

TwoHeads::TwoHeads() : a(SeededMlp(1), 7), b(a->encoder, 8) {}

void ZeroGradients(TwoHeads& nets, bool set_to_none) {
  for (Headed net : {nets.a, nets.b}) net->zero_grad(set_to_none);
}

void ExpectCloseGradients(const TwoHeads& actual, const TwoHeads& expected) {
  ExpectClose(Gradients(actual.a->parameters()), Gradients(expected.a->parameters()));
  ExpectClose(Gradients(actual.b->parameters()), Gradients(expected.b->parameters()));
}

}  // namespace lockstep::ddp::testing
