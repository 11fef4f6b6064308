// libtorch_headers.h's headers, GoogleTest, and for clang all of LibTorch, of which tests use more than libraries do.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#ifdef __clang__
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "abseil_headers.h"

namespace lockstep {

// Clang leaves virtual functions of class templates to each source, even to an empty one, which takes 2 s for them. It
// instantiates what is called here, without a look at the virtual table, once. Nothing calls Call().
struct PrecompiledVirtualFunctions {
  template <typename T>
  static T& Any();

  template <typename... Modules>
  static void CallClone() {
    (Any<Modules>().template Cloneable<Modules>::clone(), ...);
  }

  template <int64_t kDimensions, typename... Modules>
  static void CallConvolution() {
    (Any<Modules>().template ConvNdImpl<kDimensions, Modules>::reset(), ...);
    (Any<Modules>().template ConvNdImpl<kDimensions, Modules>::pretty_print(Any<std::ostream>()), ...);
  }

  template <typename... Types>
  static void CallEquals() {
    (Any<Types>().template SingleElementType<Types::Kind, Types>::equals(Any<c10::Type>()), ...);
  }

  static void Call() {
    using namespace torch::nn;
    CallClone<AdaptiveLogSoftmaxWithLossImpl, BilinearImpl, Conv1dImpl, Conv2dImpl, Conv3dImpl, ConvTranspose1dImpl,
              ConvTranspose2dImpl, ConvTranspose3dImpl, CrossMapLRN2dImpl, EmbeddingBagImpl, EmbeddingImpl, FoldImpl,
              FractionalMaxPool2dImpl, FractionalMaxPool3dImpl, GRUCellImpl, GRUImpl, GroupNormImpl, LSTMCellImpl,
              LSTMImpl, LayerNormImpl, LinearImpl, LocalResponseNormImpl, LogSoftmaxImpl, ModuleDictImpl,
              MultiheadAttentionImpl, ParameterDictImpl, RNNCellImpl, RNNImpl, SequentialImpl, SoftmaxImpl, SoftminImpl,
              ThresholdImpl, TransformerDecoderImpl, TransformerDecoderLayerImpl, TransformerEncoderImpl,
              TransformerEncoderLayerImpl, UnflattenImpl, UnfoldImpl>();
    CallConvolution<1, Conv1dImpl, ConvTranspose1dImpl>();
    CallConvolution<2, Conv2dImpl, ConvTranspose2dImpl>();
    CallConvolution<3, Conv3dImpl, ConvTranspose3dImpl>();
    CallEquals<c10::AwaitType, c10::FutureType, c10::ListType, c10::RRefType>();
    using Tensors = torch::data::datasets::Dataset<torch::data::datasets::TensorDataset, torch::data::TensorExample>;
    Any<Tensors>().Tensors::get_batch({});
  }
};

}  // namespace lockstep
#endif
