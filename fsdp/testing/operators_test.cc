// Operators, and modules of torch::nn, whose parameters are freed between any two uses: forward, backward and evaluation
// have the bits of the same code with whole parameters. An operator that read a parameter that is not there would crash.

#include <ATen/NativeFunctions.h>
#include <ATen/autocast_mode.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/testing/settings.h"

namespace lockstep::fsdp::testing {
namespace {

using Tensors = std::vector<at::Tensor>;
using Body = std::function<at::Tensor(const std::function<void()>& free_all)>;

// Has `parameters`, and runs `body` in forward.
struct ProbeImpl : torch::nn::Module {
  ProbeImpl(const Tensors& parameters, Body body) : body(std::move(body)) {
    for (size_t i = 0; i < parameters.size(); ++i) register_parameter(absl::StrCat("p", i), parameters[i]);
    for (int i = 0; i < 2; ++i) others.push_back(register_parameter(absl::StrCat("other", i), at::ones({3})));
  }
  at::Tensor forward() {
    free_all();
    at::Tensor y = body([this] { free_all(); });
    free_all();
    return y;
  }
  // Uses as many other units as stay.
  void free_all() const {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& other : others) EXPECT_EQ(other.sum().item<float>(), 3);
  }
  const Body body;
  Tensors others;
};
TORCH_MODULE(Probe);

at::Tensor Flat(const at::Tensor& gradient, const at::Tensor& like) {
  if (!gradient.defined()) return gradient;
  return at::empty_strided(like.sizes(), like.strides(), like.options().requires_grad(false))
      .copy_(gradient.is_sparse() ? gradient.to_dense() : gradient)
      .as_strided({like.numel()}, {1});
}

void Backward(const at::Tensor& y) {
  if (!y.requires_grad()) return;
  const at::Tensor flat = y.to(at::kFloat).flatten();
  (flat * at::arange(flat.numel()).mul(0.7).sin()).sum().backward();
}

void ExpectSame(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(found.defined(), expected.defined()) << what;
  if (found.defined()) {
    EXPECT_TRUE(found.equal(expected)) << what;
  }
}

struct Result {
  at::Tensor evaluated, output;
  Tensors gradients;  // of inputs, and of parameters as they lie in memory
};

// Inputs of all cases.
const at::Tensor& X() {
  static const at::Tensor x = at::arange(8 * 16).mul(12.9898).sin().view({8, 16}).requires_grad_();
  return x;
}
const at::Tensor& Image() {
  static const at::Tensor image = at::arange(2 * 8 * 12 * 12).mul(78.233).sin().view({2, 8, 12, 12}).requires_grad_();
  return image;
}
const at::Tensor& Sequence() {
  static const at::Tensor sequence = at::arange(5 * 3 * 16).mul(3.7).sin().view({5, 3, 16}).requires_grad_();
  return sequence;
}
at::Tensor Ids() { return at::arange(24).remainder(20).view({4, 6}); }

template <typename Forward>
at::Tensor Evaluate(Forward forward) {
  const c10::InferenceMode inference;
  at::manual_seed(3);
  const at::Tensor y = forward();
  return y.defined() ? y.clone() : y;
}

Result Run(const std::function<at::Tensor()>& forward) {
  Result result;
  for (const at::Tensor& input : {X(), Image(), Sequence()}) input.mutable_grad().reset();
  at::manual_seed(3);
  result.output = forward();
  Backward(result.output);
  for (const at::Tensor& input : {X(), Image(), Sequence()}) result.gradients.push_back(input.grad());
  return result;
}

// Runs the body with whole parameters, and then paged, each of them a unit.
absl::Status Compare(comm::ProcessGroup& group, const Tensors& parameters, const Body& body, bool evaluates) {
  Result expected = Run([&] { return body([] {}); });
  if (evaluates) expected.evaluated = Evaluate([&] { return body([] {}); });
  for (const at::Tensor& parameter : parameters) {
    expected.gradients.push_back(Flat(parameter.grad(), parameter));
    parameter.mutable_grad().reset();
  }
  Options options;
  options.residency = Residency::kPaged;
  options.unit_bytes = 1;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Probe(parameters, body), &group, options));
  Result found;
  if (evaluates) found.evaluated = Evaluate([&] { return net(); });
  const Result trained = Run([&] { return net(); });
  ExpectSame(found.evaluated, expected.evaluated, "the evaluation");
  ExpectSame(trained.output, expected.output, "the output");
  for (size_t i = 0; i < trained.gradients.size(); ++i)
    ExpectSame(trained.gradients[i], expected.gradients[i], absl::StrCat("the gradient of input ", i));
  if (!trained.output.requires_grad()) return absl::OkStatus();
  return net.Step([&] {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::string name = absl::StrCat("p", i);
      for (size_t k = 0; k < net.shards().size(); ++k) {
        if (net.shard_names()[k] != name) continue;
        ExpectSame(net.shards()[k].grad(), expected.gradients[trained.gradients.size() + i], "the gradient of " + name);
      }
    }
  });
}

void Case(const std::string& name, const Tensors& parameters, const Body& body, bool evaluates = true) {
  SCOPED_TRACE(name);
  EXPECT_EQ(
      OnRanks(1, "gloo", [&](comm::ProcessGroup& group) { return Compare(group, parameters, body, evaluates); })[0],
      absl::OkStatus());
}

// A module, applied to `inputs`.
template <typename Holder, typename... Inputs>
void Module(const std::string& name, Holder module, const Inputs&... inputs) {
  Case(name, module->parameters(), [module, inputs...](const auto&) mutable { return module(inputs...); });
}
// The module's result has several tensors.
template <typename Holder, typename... Inputs>
void FirstOfModule(const std::string& name, Holder module, const Inputs&... inputs) {
  Case(name, module->parameters(), [module, inputs...](const auto&) mutable { return std::get<0>(module(inputs...)); });
}

at::Tensor Weight(at::IntArrayRef shape, double scale = 0.3) {
  return at::arange(c10::multiply_integers(shape)).mul(4.1414).cos().mul(scale).view(shape).clone().requires_grad_();
}

using namespace torch::nn;  // NOLINT: each case names several modules

TEST(PagedOperators, Linear) {
  Module("linear", Linear(16, 5), X());
  Module("linear, 3-D", Linear(16, 5), X().view({2, 4, 16}));
  Module("linear, no bias", Linear(LinearOptions(16, 5).bias(false)), X());
  Module("bilinear", Bilinear(BilinearOptions(16, 16, 4)), X(), X());
  Sequential net(Linear(16, 32), Tanh(), Dropout(0.5), Linear(32, 3));
  Case("sequential", net->parameters(), [=](const auto&) mutable { return net->forward(X()); });
}

TEST(PagedOperators, Convolution) {
  Module("conv1d", Conv1d(Conv1dOptions(3, 4, 3)), Sequence());
  Module("conv2d", Conv2d(Conv2dOptions(8, 16, 3).padding(1)), Image());
  Module("conv2d, channels last", Conv2d(Conv2dOptions(8, 16, 3)), Image().contiguous(at::MemoryFormat::ChannelsLast));
  Module("conv2d, depthwise", Conv2d(Conv2dOptions(8, 8, 3).groups(8)), Image());
  Module("conv3d", Conv3d(Conv3dOptions(2, 3, 2)), Image().view({1, 2, 8, 12, 12}));
  Module("conv_transpose1d", ConvTranspose1d(ConvTranspose1dOptions(3, 4, 3)), Sequence());
  Module("conv_transpose2d", ConvTranspose2d(ConvTranspose2dOptions(8, 4, 3)), Image());
  Module("conv_transpose3d", ConvTranspose3d(ConvTranspose3dOptions(2, 3, 2)), Image().view({1, 2, 8, 12, 12}));
  at::globalContext().setUserEnabledMkldnn(false);
  Module("conv2d without oneDNN", Conv2d(Conv2dOptions(8, 16, 3).padding(1)), Image());
  at::globalContext().setUserEnabledMkldnn(true);
  Conv2d last(Conv2dOptions(8, 16, 3));
  last->weight.set_data(last->weight.contiguous(at::MemoryFormat::ChannelsLast));
  Module("conv2d, its weight channels last", last, Image());
}

TEST(PagedOperators, Normalization) {
  BatchNorm2d eval(8);
  eval->eval();
  Module("batch_norm in eval", eval, Image());
  Module("group_norm", GroupNorm(GroupNormOptions(2, 8)), Image());
  Module("layer_norm", LayerNorm(LayerNormOptions({16})), X());
  Module("instance_norm", InstanceNorm2d(InstanceNorm2dOptions(8).affine(true)), Image());
  const at::Tensor w = Weight({16}), b = Weight({16, 16}), g = Weight({16, 1});
  Case("rms_norm", {w}, [=](const auto&) { return at::rms_norm(X(), {16}, w, 1e-5); });
  Case("_weight_norm", {b, g}, [=](const auto&) { return X().mm(at::_weight_norm(b, g, 0)); });
  const at::Tensor scale = Weight({8}), shift = Weight({8});
  Case("batch_norm in train, no averages", {scale, shift},
       [=](const auto&) { return at::batch_norm(Image(), scale, shift, {}, {}, true, 0.1, 1e-5, true); });
}

TEST(PagedOperators, EmbeddingsAndActivations) {
  Module("embedding", Embedding(20, 16), Ids());
  Module("embedding with a padding index", Embedding(EmbeddingOptions(20, 16).padding_idx(2)), Ids());
  Module("embedding_bag", EmbeddingBag(EmbeddingBagOptions(20, 16).mode(torch::kSum)), Ids());
  Module("prelu", PReLU(PReLUOptions().num_parameters(8)), Image());
  AdaptiveLogSoftmaxWithLoss adaptive(AdaptiveLogSoftmaxWithLossOptions(16, 20, {4, 10}));
  Case("adaptive log-softmax", adaptive->parameters(),
       [=](const auto&) mutable { return adaptive(X(), at::arange(8)).output; });
}

TEST(PagedOperators, Recurrence) {
  FirstOfModule("LSTM", LSTM(LSTMOptions(16, 16).num_layers(2)), Sequence());
  FirstOfModule("LSTM, bidirectional", LSTM(LSTMOptions(16, 16).bidirectional(true)), Sequence());
  FirstOfModule("LSTM with a projection", LSTM(LSTMOptions(16, 16).proj_size(8)), Sequence());
  FirstOfModule("GRU", GRU(GRUOptions(16, 16).dropout(0.5).num_layers(2)), Sequence());
  FirstOfModule("RNN", RNN(RNNOptions(16, 16)), Sequence());
  Module("GRU cell", GRUCell(16, 16), X());
  FirstOfModule("LSTM cell", LSTMCell(16, 16), X());
  Module("RNN cell", RNNCell(16, 16), X());
}

TEST(PagedOperators, Attention) {
  FirstOfModule("MultiheadAttention", MultiheadAttention(MultiheadAttentionOptions(16, 4)), Sequence(), Sequence(),
                Sequence());
  Module("TransformerEncoderLayer", TransformerEncoderLayer(TransformerEncoderLayerOptions(16, 4)), Sequence());
  Module("TransformerDecoderLayer", TransformerDecoderLayer(TransformerDecoderLayerOptions(16, 4)), Sequence(),
         Sequence());
  Module("Transformer",
         Transformer(TransformerOptions(16, 4).num_encoder_layers(1).num_decoder_layers(1).dim_feedforward(24)),
         Sequence(), Sequence());
  const at::Tensor w = Weight({16, 16});
  Case("scaled_dot_product_attention of a weight", {w}, [=](const auto&) {
    const at::Tensor k = w.view({1, 1, 16, 16});
    return at::scaled_dot_product_attention(X().view({1, 1, 8, 16}), k, k);
  });
  Linear qkv(16, 48), out(16, 16);
  Case("_native_multi_head_attention", {qkv->weight, qkv->bias, out->weight, out->bias}, [=](const auto&) {
    const torch::NoGradGuard no_grad;
    const at::Tensor q = Sequence().transpose(0, 1).contiguous();
    return std::get<0>(
        at::_native_multi_head_attention(q, q, q, 16, 4, qkv->weight, qkv->bias, out->weight, out->bias));
  });
}

TEST(PagedOperators, PlainOperators) {
  const auto w = [] { return Weight({16, 16}); };
  const auto one = [](const std::string& name, const at::Tensor& weight, const auto& f) {
    Case(name, {weight}, [=](const auto& free_all) { return f(weight, free_all); });
  };
  one("einsum", w(), [](auto& w, auto&) { return at::einsum("bi,ij->bj", {X(), w}); });
  one("views, and freed between", w(), [](auto& w, auto& free_all) {
    const at::Tensor view = w.t().narrow(0, 0, 8);
    free_all();
    return X().narrow(1, 0, 8).mm(view);
  });
  one("pointwise", w(), [](auto& w, auto&) { return w * w + w.exp(); });
  one("index, gather, cat, stack", w(), [](auto& w, auto&) {
    return at::cat(
        {w.index({at::arange(4)}), w.gather(1, at::zeros({16, 16}, at::kLong)), at::stack({w, w}).flatten(0, 1)});
  });
  one("linalg", w(), [](auto& w, auto&) {
    return at::linalg_inv(w + 3 * at::eye(16)).sum() + at::linalg_det(w) + std::get<1>(at::linalg_svd(w)).sum();
  });
  one("item, equal, allclose", w(),
      [](auto& w, auto&) { return X().mm(w) * (w[0][0].template item<float>() + w.equal(w) + w.allclose(w)); });
  one("clone, copy_, to", w(), [](auto& w, auto&) {
    const torch::NoGradGuard no_grad;
    return at::empty({16, 16}).copy_(w) + w.clone() + w.to(at::kBFloat16).to(at::kFloat);
  });
  one("as_strided, unfold, expand", w(), [](auto& w, auto& free_all) {
    const at::Tensor strided = w.as_strided({4, 4}, {17, 2}, 3), unfolded = w.unfold(0, 3, 2);
    free_all();
    return strided.sum() + unfolded.sum() + w.expand({2, 16, 16}).sum();
  });
  one("saved by two operators", w(), [](auto& w, auto& free_all) {
    const at::Tensor y = X().mm(w).tanh();
    free_all();
    return y.mm(w);
  });
  one("_foreach", w(), [](auto& w, auto&) { return at::_foreach_mul(Tensors{w, w}, 2.0)[1]; });
  one("print", w(), [](auto& w, auto&) {
    return X().mm(w) * static_cast<double>(absl::StrCat(w.sum().template item<float>()).size());
  });
  one("a kernel called directly", w(), [](auto& w, auto&) { return at::native::linear(X(), w, {}); });
  const at::Tensor a = Weight({16, 16}), b = Weight({16});
  Case("one operator with two", {a, b}, [=](const auto&) { return at::addmm(b, X(), a); });
  const at::Tensor c = Weight({4, 16}), d = Weight({4, 16}), e = Weight({8, 16});
  Case("one operator with more than stay", {c, d, e}, [=](const auto&) {
    return X() * at::cat({c, d}) + at::cat({c, e, d}).sum();
  });
}

TEST(PagedOperators, Autograd) {
  const at::Tensor w = Weight({16, 16});
  Case(
      "double backward", {w},
      [=](const auto& free_all) {
        const at::Tensor y = X().mm(w).tanh().sum();
        free_all();
        const at::Tensor gradient = torch::autograd::grad({y}, {X()}, {}, true, true)[0];
        free_all();
        return gradient.pow(2);
      },
      false);
  Conv2d conv(Conv2dOptions(8, 4, 3));
  Case(
      "double backward of a convolution", conv->parameters(),
      [=](const auto& free_all) mutable {
        const at::Tensor y = conv(Image()).pow(2).sum();
        free_all();
        const at::Tensor gradient = torch::autograd::grad({y}, {Image()}, {}, true, true)[0];
        free_all();
        return gradient.pow(2);
      },
      false);
  const at::Tensor v = Weight({16, 16});
  Case(
      "forward in another thread", {v},
      [=](const auto&) {
        at::Tensor y;
        std::thread([&] { y = X().mm(v); }).join();
        return y;
      },
      false);
  Linear under(16, 16);
  Case("below autograd", under->parameters(), [=](const auto&) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return at::addmm(under->bias, X(), under->weight.t());
  });
  Linear cast(16, 16);
  Case(
      "autocast, with its cache", cast->parameters(),
      [=](const auto& free_all) mutable {
        at::autocast::set_autocast_enabled(at::kCPU, true);
        at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
        at::autocast::set_autocast_cache_enabled(true);
        at::Tensor y = cast(X());
        free_all();
        y = y + cast(X());
        at::autocast::clear_cache();
        at::autocast::set_autocast_enabled(at::kCPU, false);
        return y;
      },
      false);
}

TEST(PagedOperators, TorchScript) {
  for (const bool optimize : {false, true}) {
    torch::jit::setGraphExecutorOptimize(optimize);
    torch::jit::Module module("net");
    module.register_parameter("w", Weight({16, 16}), false);
    module.register_parameter("b", Weight({16}), false);
    module.register_parameter("s", Weight({16}), false);
    module.define(R"(
def forward(self, x):
    h = torch.relu(torch.linear(x, self.w, self.b))
    h = torch.tanh(h * self.s + self.s)
    return torch.layer_norm(torch.linear(h, self.w, self.b), [16], self.s, self.b)
)");
    Tensors parameters;
    for (const at::Tensor& parameter : module.parameters()) parameters.push_back(parameter);
    Case(
        absl::StrCat("TorchScript, optimize ", optimize), parameters,
        [=](const auto& free_all) mutable {
          for (int i = 0; i < 3; ++i) {  // the executor specialises the graph
            module.forward({X()});
            free_all();
          }
          return module.forward({X()}).toTensor();
        },
        /*evaluates=*/false);
  }
  torch::jit::setGraphExecutorOptimize(true);
}

}  // namespace
}  // namespace lockstep::fsdp::testing
