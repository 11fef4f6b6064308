// Options::debug: code that uses a freed parameter by its pointer is told which one it was.

#include <ATen/NativeFunctions.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/internal/freed_address.h"
#include "lockstep/fsdp/testing/settings.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::fsdp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::KilledBySignal;
using ::testing::Not;
using testing::OnRanks;
using testing::Scale;

Options Debug() {
  Options options;
  options.residency = Residency::kPaged;
  options.debug = true;
  return options;
}

// Wraps a Scale on one rank, and calls `use` when the parameters are freed.
void Use(const std::function<void(FullyShardedDataParallel<Scale>& net)>& use) {
  const absl::Status status = OnRanks(1, "gloo", [&](comm::ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group, Debug()));
    return TorchStatus("", [&] { use(net); });
  })[0];
  fprintf(stderr, "not killed: %s\n", status.ToString().c_str());
}

// Only on this processor is a write told from a read.
#if defined(__x86_64__)
const char* const kReads = "read";
const char* const kWrites = "written";
#else
const char* const kReads = "used";
const char* const kWrites = "used";
#endif

// The line of the parameter `weight`, which has 50 floats.
auto WeightWas(const std::string& access) {
  return HasSubstr(absl::StrCat("rank 0: weight was ", access, " by its pointer while it was freed, at byte "));
}
auto WeightWas(const std::string& access, int byte) {
  return AllOf(WeightWas(access), HasSubstr(absl::StrCat(" at byte ", byte, " of 200")));
}
const auto kAdvice =
    HasSubstr(": use it by operators in forward and backward, or while all ranks have FullParameters()\n");

// Reads in a way that the compiler must not leave out.
void Read(const void* place) { static_cast<void>(*static_cast<const volatile char*>(place)); }

TEST(FreedParameterDeathTest, AReadByItsPointerIsNamed) {
  EXPECT_EXIT(Use([](auto& net) { Read(net.module()->weight.template data_ptr<float>() + 3); }),
              KilledBySignal(SIGSEGV), AllOf(WeightWas(kReads, 12), kAdvice));
  EXPECT_EXIT(Use([](auto& net) { Read(&net.module()->weight.template accessor<float, 1>()[49]); }),
              KilledBySignal(SIGSEGV), WeightWas(kReads, 196));
}

TEST(FreedParameterDeathTest, AWriteIsNamedAsOne) {
  EXPECT_EXIT(Use([](auto& net) { net.module()->weight.template data_ptr<float>()[2] = 1; }), KilledBySignal(SIGSEGV),
              AllOf(WeightWas(kWrites, 8), kAdvice));
}

TEST(FreedParameterDeathTest, ASaveIsNamed) {
  EXPECT_EXIT(Use([](auto& net) {
                std::ostringstream file;
                torch::save(net.module()->weight, file);
              }),
              KilledBySignal(SIGSEGV), WeightWas(kReads));
}

TEST(FreedParameterDeathTest, AKernelThatIsCalledDirectlyIsNamed) {
  EXPECT_EXIT(Use([](auto& net) {
                const at::AutoDispatchBelowADInplaceOrView guard;
                at::native::layer_norm_cpu(at::ones({4, 50}), {50}, net.module()->weight, {}, 1e-5);
              }),
              KilledBySignal(SIGSEGV), WeightWas(kReads, 0));
}

// Not one that the operator called.
TEST(FreedParameterDeathTest, TheLastOperatorOfTheThreadIsNamed) {
  const auto read_after = [](auto& net, const std::function<void()>& before) {
    net(at::ones({50})).backward();
    before();
    Read(net.module()->weight.template data_ptr<float>());
  };
  EXPECT_EXIT(Use([&](auto& net) { read_after(net, [] { at::ones({3}).exp(); }); }), KilledBySignal(SIGSEGV),
              HasSubstr(", in or after aten::exp: use it by"));
  EXPECT_EXIT(Use([&](auto& net) { read_after(net, [&] {
                                     at::linear(at::ones({2, 50}), at::ones({3, 50}));
                                   }); }),
              KilledBySignal(SIGSEGV), HasSubstr(", in or after aten::linear: use it by"));
  EXPECT_EXIT(
      Use([](auto& net) { std::thread([&] { Read(net.module()->weight.template data_ptr<float>()); }).join(); }),
      KilledBySignal(SIGSEGV), HasSubstr("at byte 0 of 200: use it by"));
}

// Reads a saved weight by its pointer in backward.
struct ReadsInBackward : torch::autograd::Function<ReadsInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& weight) {
    context->save_for_backward({weight});
    return weight.sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list&) {
    const at::Tensor weight = context->get_saved_variables()[0];
    Read(weight.const_data_ptr());
    return {at::ones({50})};
  }
};
struct ReaderImpl : torch::nn::Module {
  at::Tensor forward() {
    at::Tensor y = ReadsInBackward::apply(weight);
    return y + others[0].sum() + others[1].sum();  // as many units as stay whole
  }
  at::Tensor weight = register_parameter("weight", at::ones({50}));
  std::vector<at::Tensor> others = {register_parameter("a", at::ones({3})), register_parameter("b", at::ones({3}))};
};
TORCH_MODULE(Reader);

TEST(FreedParameterDeathTest, ANodeOfAutogradIsNamed) {
  EXPECT_EXIT(OnRanks(1, "gloo",
                      [](comm::ProcessGroup& group) -> absl::Status {
                        Options options = Debug();
                        options.unit_bytes = 1;  // each parameter is a unit
                        LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Reader(), &group, options));
                        net().backward();
                        return absl::OkStatus();
                      }),
              KilledBySignal(SIGSEGV), AllOf(WeightWas(kReads, 0), HasSubstr("ReadsInBackward")));
}

TEST(FreedParameterDeathTest, AParameterThatOutlivesItsHandleIsNamed) {
  EXPECT_EXIT(OnRanks(1, "gloo",
                      [](comm::ProcessGroup& group) -> absl::Status {
                        Scale scale;
                        LOCKSTEP_RETURN_IF_ERROR(Wrap(scale, &group, Debug()).status());
                        Read(scale->weight.data_ptr<float>());
                        return absl::OkStatus();
                      }),
              KilledBySignal(SIGSEGV), WeightWas(kReads, 0));
}

// Its shards are kept apart.
TEST(FreedParameterDeathTest, AParameterInMixedPrecisionIsNamed) {
  EXPECT_EXIT(OnRanks(1, "gloo",
                      [](comm::ProcessGroup& group) -> absl::Status {
                        Options options = Debug();
                        options.mixed_precision.emplace();
                        LOCKSTEP_ASSIGN_OR_RETURN(const auto net, Wrap(Scale(), &group, options));
                        Read(net.module()->weight.data_ptr<at::BFloat16>() + 7);
                        return absl::OkStatus();
                      }),
              KilledBySignal(SIGSEGV), HasSubstr(" by its pointer while it was freed, at byte 14 of 100"));
}

TEST(FreedParameterDeathTest, EachRankAndModuleIsNamed) {
  EXPECT_EXIT(OnRanks(2, "gloo",
                      [](comm::ProcessGroup& group) -> absl::Status {
                        LOCKSTEP_ASSIGN_OR_RETURN(const auto first, Wrap(Scale(), &group, Debug()));
                        LOCKSTEP_ASSIGN_OR_RETURN(const auto second, Wrap(torch::nn::Linear(2, 3), &group, Debug()));
                        if (group.rank() == 1) Read(second.module()->bias.data_ptr<float>() + 1);
                        return group.Barrier();
                      }),
              KilledBySignal(SIGSEGV),
              AllOf(HasSubstr("rank 1: bias was "), HasSubstr(" by its pointer while it was freed, at byte 4 of 12")));
}

TEST(FreedParameterDeathTest, TheEarlierHandlerGoesOn) {
  const auto with = [](void (*install)(), const std::function<void()>& fault) {
    install();
    const auto address = internal::ReserveFreedAddress(3, "weight", 200);
    fault ? fault() : Read(static_cast<const char*>(address->get()) + 5);
  };
  const auto exits = [] { signal(SIGSEGV, [](int) { _exit(7); }); };
  const auto exits_with_address = [] {
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) { _exit(info->si_addr == nullptr ? 8 : 9); };
    sigaction(SIGSEGV, &action, nullptr);
  };
  const auto line = AllOf(HasSubstr("rank 3: weight was "), HasSubstr(" while it was freed, at byte 5 of 200"));
  EXPECT_EXIT(with(exits, nullptr), ::testing::ExitedWithCode(7), line);
  EXPECT_EXIT(with(exits_with_address, nullptr), ::testing::ExitedWithCode(9), line);
  const auto no_line = Not(HasSubstr("by its pointer"));
  const auto fault = [] { Read(static_cast<const char*>(nullptr)); };
  EXPECT_EXIT(with(exits_with_address, fault), ::testing::ExitedWithCode(8), no_line);
  EXPECT_EXIT(with([] {}, fault), KilledBySignal(SIGSEGV), no_line);
  EXPECT_EXIT(with([] {}, [] { kill(getpid(), SIGSEGV); }), KilledBySignal(SIGSEGV), no_line);
}

TEST(FreedParameterDeathTest, AReleasedAddressIsNotNamed) {
  const auto read_released = [] {
    const auto kept = internal::ReserveFreedAddress(0, "kept", 100);
    const char* released = nullptr;
    {
      const auto address = internal::ReserveFreedAddress(0, "weight", int64_t{1} << 30);
      released = static_cast<const char*>(address->get());
    }
    Read(released + (int64_t{1} << 29));
  };
  EXPECT_EXIT(read_released(), KilledBySignal(SIGSEGV), Not(HasSubstr("by its pointer")));
}

struct TwoLayersImpl : torch::nn::Module {
  TwoLayersImpl() {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parameters())
      at::Tensor(parameter).copy_(at::arange(parameter.numel()).mul(12.9898).sin().view(parameter.sizes()));
  }
  at::Tensor forward(const at::Tensor& x) { return second(first(x).tanh()); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(5, 9));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(9, 3));
};
TORCH_MODULE(TwoLayers);

TEST(FreedParameter, TrainingHasTheSameBitsAndWholeParametersAreRead) {
  std::vector<float> values[2];
  for (const bool debug : {false, true}) {
    const auto statuses = OnRanks(2, "gloo", [&](comm::ProcessGroup& group) -> absl::Status {
      Options options = Debug();
      options.debug = debug;
      options.units = {"*"};
      options.whole_units = 1;
      LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(TwoLayers(), &group, options));
      optim::AdamW optimizer(net.shards(), 0.1);
      for (int step = 0; step < 3; ++step) {
        net(at::arange(10).add(step + group.rank()).cos().view({2, 5})).pow(2).sum().backward();
        LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
      }
      LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
      if (group.rank() == 1) {
        for (const at::Tensor& parameter : net.parameters()) {
          const auto* const data = static_cast<const float*>(parameter.const_data_ptr());
          values[debug].insert(values[debug].end(), data, data + parameter.numel());
        }
      }
      return group.Barrier();
    });
    for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
  }
  EXPECT_EQ(values[0].size(), 5 * 9 + 9 + 9 * 3 + 3);
  EXPECT_EQ(values[0], values[1]);
}

}  // namespace
}  // namespace lockstep::fsdp
