// Times training steps of ranks on this host, each with one thread: what compare.py runs for our side of suite ddp.
//
//   ./bazelw run //tools/bench:ddp -- --case=resnet18/b8/64px,mlp_4x64/b32 --backend=shm
//   ./bazelw run //tools/bench:ddp -- --overhead --case=mlp_4x64/b32
//   ./bazelw run //tools/bench:ddp -- --overhead --world_size=1  # what wrapping costs a rank that is alone
//   ./bazelw run //tools/bench:ddp -- --virtual_ranks=8  # beside one large batch a rank
//   ./bazelw run //tools/bench:ddp -- --elastic --case=mlp_4x64/b32  # what elastic::World costs if nobody dies
//   ./bazelw run --config=cuda //tools/bench:ddp -- --overhead --world_size=1 --device=cuda
//
// Prints a JSON line a case: the median time of a step (zero_grad, forward, backward, optimizer) of the slowest rank
// after some steps to warm up, and rank 0's loss of the last of these, by which compare.py knows that all programs
// train the same. With --overhead: by how many seconds, and to how much of its time, wrapping lengthens a step, and
// both steps' times. With --virtual_ranks or --elastic: the medians with it and without, and of the ratios of blocks of
// steps.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gflags/gflags.h>
#include <malloc.h>
#include <torch/cuda.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/tree_sum/sum_tree.h"
#include "lockstep/ddp/chrome_trace.h"
#include "lockstep/ddp/communication_hook.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/gradient_allocator.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/models/resnet.h"
#include "lockstep/tools/bench/hook_named.h"
#include "lockstep/tools/bench/median.h"
#include "lockstep/tools/bench/peak_pss.h"

DEFINE_string(case, "mlp_4x64/b32",
              "of resnet18/b8/64px, mlp_26mb/b8, mlp_784_512_512_10/b64 and mlp_4x64/b32, separated by commas");
DEFINE_int32(world_size, 2, "processes, of this host if there are several");
DEFINE_int32(nnodes, 1, "hosts; start this program on each");
DEFINE_int32(node_rank, 0, "which of the hosts this is");
DEFINE_string(master_addr, "", "with --nnodes: the address of the first host");
DEFINE_int32(master_port, 0, "with --nnodes: a free port there");
DEFINE_string(hook, "none", "a communication hook: fp16; power_sgd of rank 4 from the second step on; none");
DEFINE_string(backend, "shm", "shm, gloo or auto; local: not wrapped, so that the ranks train apart, at the same time");
DEFINE_int32(steps, 0, "how many are timed; 0: as the case has it");
DEFINE_bool(gradient_as_bucket_view, false, "as in ddp::Options");
DEFINE_bool(
    tuned_allocator, false,
    "keep freed memory in this process: thresholds of malloc far above the size of a gradient. The environment's "
    "THP_MEM_ALLOC_ENABLE=1 is LibTorch's other half of it");
DEFINE_bool(gradient_allocator, false, "ddp::InstallGradientAllocator()");
DEFINE_string(trace, "",
              "rank R writes its last step to this file's name and .R, for Perfetto and for trace_picture.py");
DEFINE_bool(memory, false,
            "instead of times: the largest proportional set size of a rank, sampled over all steps, between which "
            "gradients are kept so that local training has them too");
DEFINE_bool(
    overhead, false,
    "wrapped and unwrapped steps in turn. With --world_size=1 the case is mlp_4x64/b32, without and with bucket "
    "views, a hook and checks");
DEFINE_int32(
    virtual_ranks, 0,
    "steps with so many virtual ranks, each with the case's batch, in turn with steps without them, in which a "
    "rank has its virtual ranks' batches as one. 0: without");
DEFINE_bool(elastic, false, "steps with elastic::World, in turn with steps without it");
DEFINE_int64(check_every, 0, "with --elastic: elastic::Options::check_every");
DEFINE_string(
    device, "cpu",
    "of --overhead --world_size=1: cpu; or cuda, in a build with --config=cuda: ResNet-18 on 64 images of 224 "
    "by 224");

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// A case's network is made after torch::manual_seed(7) and its rank's batch from generator 100 + rank, as in
// ddp_python.py.
struct Lengths {
  int warm_up, steps;
};
struct Blocks {
  int count, steps;  // of each kind
};

bool OnGpu() { return FLAGS_device == "cuda"; }

at::Generator BatchGenerator(int rank) { return at::detail::createCPUGenerator(100 + static_cast<uint64_t>(rank)); }

struct Batch {
  Batch(at::IntArrayRef shape, int64_t classes, int rank) {
    at::Generator generator = BatchGenerator(rank);
    inputs = at::randn(shape, generator);
    targets = at::randint(classes, {shape[0]}, generator, at::kLong);
  }
  explicit Batch(const std::vector<Batch>& parts) {
    std::vector<at::Tensor> all_inputs, all_targets;
    for (const Batch& part : parts) {
      all_inputs.push_back(part.inputs);
      all_targets.push_back(part.targets);
    }
    inputs = at::cat(all_inputs);
    targets = at::cat(all_targets);
  }
  at::Tensor inputs, targets;
};

torch::nn::Sequential Mlp(const std::vector<int64_t>& widths) {
  torch::nn::Sequential mlp;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    if (i > 0) mlp->push_back(torch::nn::ReLU());
    mlp->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
  }
  return mlp;
}

torch::nn::Sequential Mlp4x64() { return Mlp({64, 64, 64, 64, 64}); }
torch::nn::Sequential Mlp26MB() { return Mlp({1024, 2048, 2048, 100}); }
torch::nn::Sequential MlpOfImages() { return Mlp({784, 512, 512, 10}); }
models::ResNet ResNet18() { return models::ResNet18(); }
Batch BatchOf4x64(int rank) { return Batch({32, 64}, 64, rank); }
Batch BatchOf26MB(int rank) { return Batch({8, 1024}, 100, rank); }
Batch BatchOfDigits(int rank) { return Batch({64, 784}, 10, rank); }
Batch BatchOfImages(int rank) { return Batch({8, 3, 64, 64}, 1000, rank); }

// One step of training, of a module or of what wraps one.
template <typename Model>
class Trainer {
 public:
  Trainer(Model model, const std::vector<at::Tensor>& parameters, Batch batch)
      : model_(std::move(model)),
        optimizer_(parameters, torch::optim::SGDOptions(0.01).momentum(0.9)),
        batch_(std::move(batch)) {}

  // The loss.
  at::Tensor Step() {
    optimizer_.zero_grad(/*set_to_none=*/!FLAGS_memory);
    const at::Tensor loss = at::cross_entropy_loss(model_.forward(batch_.inputs), batch_.targets);
    loss.backward();
    optimizer_.step();
    return loss.detach();
  }

  const Model& model() const { return model_; }

 private:
  Model model_;
  torch::optim::SGD optimizer_;
  const Batch batch_;
};

// One step of a rank's virtual ranks.
template <typename Net>
class VirtualTrainer {
 public:
  // One batch for each of the rank's virtual ranks.
  VirtualTrainer(ddp::DistributedDataParallel<Net> ddp, std::vector<Batch> batches)
      : ddp_(std::move(ddp)),
        optimizer_(ddp_.parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)),
        batches_(std::move(batches)) {}

  void Step() {
    optimizer_.zero_grad();
    size_t next = 0;
    for ([[maybe_unused]] const int virtual_rank : ddp_.VirtualRanks(step_++)) {
      const Batch& batch = batches_[next++];
      at::cross_entropy_loss(ddp_.forward(batch.inputs), batch.targets).backward();
    }
    optimizer_.step();
  }

 private:
  ddp::DistributedDataParallel<Net> ddp_;
  torch::optim::SGD optimizer_;
  const std::vector<Batch> batches_;
  int64_t step_ = 0;
};

// One step whose end is elastic::World's.
template <typename Net>
class ElasticTrainer {
 public:
  ElasticTrainer(ddp::DistributedDataParallel<Net> ddp, torch::optim::SGD* optimizer, elastic::World* world,
                 Batch batch)
      : ddp_(std::move(ddp)), optimizer_(*optimizer), world_(*world), batch_(std::move(batch)) {}

  void Step() {
    optimizer_.zero_grad();
    at::cross_entropy_loss(ddp_.forward(batch_.inputs), batch_.targets).backward();
    ThrowIfError(world_.Commit([this] { optimizer_.step(); }));
  }

 private:
  ddp::DistributedDataParallel<Net> ddp_;
  torch::optim::SGD& optimizer_;
  elastic::World& world_;
  const Batch batch_;
};

// A module with its forward as a member, as ddp::DistributedDataParallel has it.
template <typename Net>
struct Unwrapped {
  at::Tensor forward(const at::Tensor& inputs) { return net->forward(inputs); }
  Net net;
};

template <typename Net>
absl::Status WriteTrace(const ddp::DistributedDataParallel<Net>& ddp, int rank) {
  return ddp::WriteChromeTrace(absl::StrCat(FLAGS_trace, ".", rank), {ddp.statistics().back()});
}
template <typename Net>
absl::Status WriteTrace(const Unwrapped<Net>&, int) {
  return absl::InvalidArgumentError("--trace: with --backend=local nothing is wrapped, so there is no trace");
}

template <typename AnyTrainer>
double TimedStep(AnyTrainer& trainer) {
  const auto begin = Clock::now();
  trainer.Step();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The largest of all ranks' values, printed by one.
absl::Status Report(comm::ProcessGroup& group, const std::string& name, const char* figure, double value, double loss) {
  at::Tensor largest = at::full({1}, value, at::kDouble);
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(largest, comm::ReduceOp::kMax));
  if (group.rank() == 0) {
    std::cout << nlohmann::json({{"case", name}, {figure, largest.item<double>()}, {"loss", loss}}) << std::endl;
  }
  return absl::OkStatus();
}

template <typename Model>
absl::Status RunForMemory(comm::ProcessGroup& group, const std::string& name, Lengths lengths, Trainer<Model> trainer) {
  double loss = 0;
  PeakPss peak;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(name, [&] {
    for (int step = 0; step < lengths.steps; ++step) loss = trainer.Step().template item<double>();
  }));
  return Report(group, name, "peak_bytes", static_cast<double>(peak.Bytes()), loss);
}

template <typename Model>
absl::Status RunTrainer(comm::ProcessGroup& group, const std::string& name, Lengths lengths, Trainer<Model> trainer) {
  if (FLAGS_memory) return RunForMemory(group, name, lengths, std::move(trainer));
  double loss = 0;
  std::vector<double> seconds;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(name, [&] {
    for (int step = 0; step < lengths.warm_up; ++step) loss = trainer.Step().template item<double>();
  }));
  LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
  // For suite network, which counts the bytes from here on.
  if (FLAGS_nnodes > 1 && group.rank() == 0) std::cout << nlohmann::json({{"case", "ready"}}) << std::endl;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(name, [&] {
    for (int step = 0; step < lengths.steps; ++step) seconds.push_back(TimedStep(trainer));
  }));
  if (!FLAGS_trace.empty()) LOCKSTEP_RETURN_IF_ERROR(WriteTrace(trainer.model(), group.rank()));
  return Report(group, name, "seconds", Median(seconds), loss);
}

// One step's share of a block. On the CPU the median of the steps' times; a GPU runs behind the host, so there the mean
// of all of them, of which the first starts when the GPU is idle and the last has ended. The mean, too, where only some
// steps have a part of the cost.
template <typename AnyTrainer>
double SecondsInBlock(AnyTrainer& trainer, int steps) {
  if (!OnGpu() && !FLAGS_elastic) {
    std::vector<double> seconds;
    for (int step = 0; step < steps; ++step) seconds.push_back(TimedStep(trainer));
    return Median(seconds);
  }
  if (OnGpu()) torch::cuda::synchronize();
  const auto begin = Clock::now();
  for (int step = 0; step < steps; ++step) trainer.Step();
  if (OnGpu()) torch::cuda::synchronize();
  return std::chrono::duration<double>(Clock::now() - begin).count() / steps;
}

// The ranks begin together; the slowest one's.
template <typename AnyTrainer>
double SlowestInBlock(comm::ProcessGroup& group, AnyTrainer& trainer, int steps) {
  ThrowIfError(group.Barrier());
  at::Tensor slowest = at::full({1}, SecondsInBlock(trainer, steps), at::kDouble);
  if (group.size() > 1) ThrowIfError(group.AllReduce(slowest, comm::ReduceOp::kMax));
  return slowest.item<double>();
}

ddp::Options OptionsOfFlags() {
  ddp::Options options;
  options.gradient_as_bucket_view = FLAGS_gradient_as_bucket_view;
  return options;
}

struct InTurn {
  double difference, ratio, with, without;  // medians over the blocks
};

// Steps with and without something in turn, in blocks, so that both see the same machine.
template <typename With, typename Without>
InTurn MeasureInTurn(comm::ProcessGroup& group, Blocks blocks, With& with, Without& without) {
  std::vector<double> withs, withouts, differences, ratios;
  for (int i = 0; i <= blocks.count; ++i) {
    const double seconds_without = SlowestInBlock(group, without, blocks.steps);
    const double seconds_with = SlowestInBlock(group, with, blocks.steps);
    if (i == 0) continue;  // to warm up
    withouts.push_back(seconds_without);
    withs.push_back(seconds_with);
    differences.push_back(seconds_with - seconds_without);
    ratios.push_back(seconds_with / seconds_without);
  }
  return {Median(differences), Median(ratios), Median(withs), Median(withouts)};
}

template <typename Net>
absl::Status RunOverhead(comm::ProcessGroup& group, const std::string& name, Blocks blocks, Net (*make)(),
                         const Batch& batch, const ddp::Options& options = {},
                         const ddp::CommunicationHook& hook = nullptr) {
  torch::manual_seed(7);
  const Net plain = make();
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(make(), &group, options));
  if (hook) LOCKSTEP_RETURN_IF_ERROR(ddp.RegisterHook(hook));
  const std::vector<at::Tensor> of_plain = plain->parameters(), of_ddp = ddp.parameters();
  Trainer<Unwrapped<Net>> unwrapped({plain}, of_plain, batch);
  Trainer<ddp::DistributedDataParallel<Net>> wrapped(std::move(ddp), of_ddp, batch);
  InTurn turns;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(name, [&] { turns = MeasureInTurn(group, blocks, wrapped, unwrapped); }));
  if (group.rank() == 0) {
    std::cout << nlohmann::json({{"case", name},
                                 {"seconds", turns.difference},
                                 {"ratio", turns.ratio},
                                 {"wrapped", turns.with},
                                 {"local", turns.without}})
              << std::endl;
  }
  return absl::OkStatus();
}

// Virtual ranks beside ranks that have the same samples in one batch.
template <typename Net>
absl::Status RunVirtualRanks(comm::ProcessGroup& group, const std::string& name, Blocks blocks, Net (*make)(),
                             Batch (*make_batch)(int rank)) {
  const std::vector<int> bounds = comm::EvenBounds(FLAGS_virtual_ranks, group.size());
  std::vector<Batch> batches;
  for (int v = bounds[group.rank()]; v < bounds[group.rank() + 1]; ++v) batches.push_back(make_batch(v));
  torch::manual_seed(7);
  ddp::Options options = OptionsOfFlags();
  LOCKSTEP_ASSIGN_OR_RETURN(auto plain, ddp::Wrap(make(), &group, options));
  options.virtual_ranks = FLAGS_virtual_ranks;
  LOCKSTEP_ASSIGN_OR_RETURN(auto of_virtual, ddp::Wrap(make(), &group, options));
  const std::vector<at::Tensor> parameters = plain.parameters();
  Trainer<ddp::DistributedDataParallel<Net>> without(std::move(plain), parameters, Batch(batches));
  VirtualTrainer<Net> with(std::move(of_virtual), batches);
  InTurn turns;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(name, [&] { turns = MeasureInTurn(group, blocks, with, without); }));
  if (group.rank() == 0) {
    const int64_t samples = batches[0].targets.size(0) * FLAGS_virtual_ranks;
    std::cout << nlohmann::json({{"case", name},
                                 {"world_size", group.size()},
                                 {"virtual_ranks", FLAGS_virtual_ranks},
                                 {"samples", samples},
                                 {"seconds", turns.with},
                                 {"seconds_without", turns.without},
                                 {"ratio", turns.ratio}})
              << std::endl;
  }
  return absl::OkStatus();
}

// Steps that survive the death of a rank beside steps that do not.
template <typename Net>
absl::Status RunElastic(const std::string& name, Blocks blocks, Net (*make)(), Batch (*make_batch)(int rank)) {
  elastic::Options options;
  options.timeout = absl::Minutes(2);
  options.check_every = FLAGS_check_every;
  if (FLAGS_check_every > 0) {
    const auto steps = static_cast<int>(FLAGS_check_every);
    blocks = {std::max(5, blocks.count * blocks.steps / steps), steps};  // one check in each
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, elastic::World::Join(options));
  torch::manual_seed(7);
  Net net = make();
  const Net plain = make();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("net", *net));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("optimizer", optimizer));
  return world->Run([&](comm::ProcessGroup* group) -> absl::Status {
    ddp::Options survives = OptionsOfFlags();
    LOCKSTEP_ASSIGN_OR_RETURN(auto elastic_ddp, elastic::Wrap(net, group, survives));
    LOCKSTEP_ASSIGN_OR_RETURN(auto plain_ddp, ddp::Wrap(plain, group, OptionsOfFlags()));
    const Batch batch = make_batch(group->rank());
    ElasticTrainer<Net> with(std::move(elastic_ddp), &optimizer, world.get(), batch);
    Trainer<ddp::DistributedDataParallel<Net>> without(std::move(plain_ddp), plain->parameters(), batch);
    const InTurn turns = MeasureInTurn(*group, blocks, with, without);
    if (group->rank() == 0) {
      std::cout << nlohmann::json({{"case", name},
                                   {"world_size", group->size()},
                                   {"check_every", FLAGS_check_every},
                                   {"seconds", turns.with},
                                   {"seconds_without", turns.without},
                                   {"ratio", turns.ratio}})
                << std::endl;
    }
    return absl::OkStatus();
  });
}

template <typename Net>
absl::Status RunNet(comm::ProcessGroup& group, const std::string& name, Lengths lengths, Blocks blocks, Net (*make)(),
                    Batch (*make_batch)(int rank)) {
  if (FLAGS_virtual_ranks > 0) return RunVirtualRanks(group, name, blocks, make, make_batch);
  const Batch batch = make_batch(group.rank());
  if (FLAGS_overhead) return RunOverhead(group, name, blocks, make, batch, OptionsOfFlags());
  if (FLAGS_steps > 0) lengths.steps = FLAGS_steps;
  const Net net = make();
  if (FLAGS_backend == "local") {
    const std::vector<at::Tensor> parameters = net->parameters();
    return RunTrainer(group, name, lengths, Trainer<Unwrapped<Net>>({net}, parameters, batch));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto wrapped, ddp::Wrap(net, &group, OptionsOfFlags()));
  LOCKSTEP_ASSIGN_OR_RETURN(const ddp::CommunicationHook hook, HookNamed(FLAGS_hook, group));
  if (hook) LOCKSTEP_RETURN_IF_ERROR(wrapped.RegisterHook(hook));
  const std::vector<at::Tensor> parameters = wrapped.parameters();
  return RunTrainer(group, name, lengths,
                    Trainer<ddp::DistributedDataParallel<Net>>(std::move(wrapped), parameters, batch));
}

absl::Status RunElasticCase(const std::string& name) {
  if (name == "mlp_4x64/b32") return RunElastic(name, {61, 400}, Mlp4x64, BatchOf4x64);
  if (name == "mlp_784_512_512_10/b64") return RunElastic(name, {61, 40}, MlpOfImages, BatchOfDigits);
  if (name == "mlp_26mb/b8") return RunElastic(name, {31, 10}, Mlp26MB, BatchOf26MB);
  return RunElastic(name, {31, 4}, ResNet18, BatchOfImages);
}

absl::Status RunCase(comm::ProcessGroup& group, const std::string& name) {
  torch::manual_seed(7);
  if (name == "mlp_4x64/b32") return RunNet(group, name, {50, 2500}, {31, 60}, Mlp4x64, BatchOf4x64);
  if (name == "mlp_784_512_512_10/b64") return RunNet(group, name, {10, 400}, {31, 20}, MlpOfImages, BatchOfDigits);
  if (name == "mlp_26mb/b8") return RunNet(group, name, {5, 40}, {11, 10}, Mlp26MB, BatchOf26MB);
  return RunNet(group, name, {3, 16}, {11, 4}, ResNet18, BatchOfImages);
}

models::ResNet ResNet18OnGpu() {
  models::ResNet net = models::ResNet18();
  net->to(at::kCUDA);
  return net;
}

absl::Status RunOverheadOnGpu(comm::ProcessGroup& group) {
  Batch batch({64, 3, 224, 224}, 1000, 0);
  return TorchStatus("--device=cuda", [&] {
    batch.inputs = batch.inputs.to(at::kCUDA);
    batch.targets = batch.targets.to(at::kCUDA);
    ThrowIfError(RunOverhead(group, "resnet18/b64/224px/cuda", {15, 20}, ResNet18OnGpu, batch));
  });
}

absl::Status RunOverheadsAlone(comm::ProcessGroup& group) {
  if (OnGpu()) return RunOverheadOnGpu(group);
  constexpr Blocks kBlocks = {31, 60};
  LOCKSTEP_RETURN_IF_ERROR(RunOverhead(group, "mlp_4x64/b32/plain", kBlocks, Mlp4x64, BatchOf4x64(0)));
  ddp::Options options;
  options.gradient_as_bucket_view = true;
  options.non_finite = ddp::NonFinite::kReport;
  return RunOverhead(group, "mlp_4x64/b32/bucket_view_hook_checks", kBlocks, Mlp4x64, BatchOf4x64(0), options,
                     ddp::hooks::AllReduce(&group));
}

// Keeps freed memory in the process: what MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_ and MALLOC_TOP_PAD_ are to the
// peers, by TUNED in measuring.py.
absl::Status TuneAllocator() {
  if (mallopt(M_MMAP_THRESHOLD, 32 << 20) && mallopt(M_TRIM_THRESHOLD, 1 << 30) && mallopt(M_TOP_PAD, 64 << 20)) {
    return absl::OkStatus();
  }
  return absl::InternalError("mallopt refused a threshold");
}

absl::Status SetUpRank() {
  at::set_num_threads(1);
  if (FLAGS_tuned_allocator) LOCKSTEP_RETURN_IF_ERROR(TuneAllocator());
  if (FLAGS_gradient_allocator) ddp::InstallGradientAllocator();
  return absl::OkStatus();
}

// A process joins one World, so each case has new ranks.
absl::Status SpawnElastic(const std::vector<std::string>& cases) {
  for (const std::string& name : cases) {
    LOCKSTEP_RETURN_IF_ERROR(launch::Spawn(FLAGS_world_size, [&](int) -> absl::Status {
      LOCKSTEP_RETURN_IF_ERROR(SetUpRank());
      return RunElasticCase(name);
    }));
  }
  return absl::OkStatus();
}

bool Alone() { return FLAGS_overhead && FLAGS_world_size == 1; }

absl::Status RunRank(const std::vector<std::string>& cases) {
  LOCKSTEP_RETURN_IF_ERROR(SetUpRank());
  comm::InitOptions options;
  options.backend = FLAGS_backend == "local" ? "shm" : FLAGS_backend;
  if (Alone() && OnGpu()) options.backend = "cuda:nccl";
  options.timeout = absl::Minutes(2);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(options));
  std::optional<Progress> progress;
  if (group->rank() == 0) progress.emplace("ddp");
  if (progress && Alone()) progress->Doing("wrapped and unwrapped steps in turn");
  if (Alone()) return RunOverheadsAlone(*group);
  for (const std::string& name : cases) {
    if (progress) progress->Doing(name);
    LOCKSTEP_RETURN_IF_ERROR(RunCase(*group, name));
  }
  return absl::OkStatus();
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"world_size", static_cast<double>(FLAGS_world_size), 1, 256},
                                        {"virtual_ranks", static_cast<double>(FLAGS_virtual_ranks), 0, 4096},
                                        {"check_every", static_cast<double>(FLAGS_check_every), 0, 1e4},
                                        {"steps", static_cast<double>(FLAGS_steps), 0, 1e6}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("backend", FLAGS_backend, {"shm", "gloo", "auto", "local"}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("hook", FLAGS_hook, HookNames()));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("device", FLAGS_device, {"cpu", "cuda"}));
  if (OnGpu() && !Alone()) return FlagError("device", FLAGS_device, "cpu, except with --overhead --world_size=1");
  if (!FLAGS_trace.empty() && (FLAGS_overhead || FLAGS_memory || FLAGS_backend == "local")) {
    return FlagError("trace", FLAGS_trace, "no file with --overhead, --memory or --backend=local");
  }
  if (FLAGS_memory && FLAGS_overhead) return FlagError("memory", "true", "false with --overhead");
  if (FLAGS_virtual_ranks > 0) {
    if (FLAGS_virtual_ranks < FLAGS_world_size)
      return FlagError("virtual_ranks", FLAGS_virtual_ranks, absl::StrCat("at least --world_size=", FLAGS_world_size));
    if (FLAGS_overhead || FLAGS_memory || !FLAGS_trace.empty() || FLAGS_backend == "local")
      return FlagError("virtual_ranks", FLAGS_virtual_ranks, "0 with --overhead, --memory, --trace or --backend=local");
  }
  if (FLAGS_elastic && (FLAGS_virtual_ranks > 0 || FLAGS_overhead || FLAGS_memory || !FLAGS_trace.empty() ||
                        FLAGS_backend != "shm" || FLAGS_nnodes > 1)) {
    return FlagError("elastic", "true",
                     "false with --virtual_ranks, --overhead, --memory, --trace, --nnodes or another --backend");
  }
  if (FLAGS_overhead && FLAGS_backend == "local") return FlagError("backend", FLAGS_backend, "another with --overhead");
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto cases,
      FlagItems("case", FLAGS_case, {"resnet18/b8/64px", "mlp_26mb/b8", "mlp_784_512_512_10/b64", "mlp_4x64/b32"}));
  if (FLAGS_elastic) return SpawnElastic(cases);
  launch::SpawnOptions hosts;
  hosts.nnodes = FLAGS_nnodes;
  hosts.node_rank = FLAGS_node_rank;
  hosts.master_addr = FLAGS_master_addr;
  hosts.master_port = FLAGS_master_port;
  return launch::Spawn(
      FLAGS_world_size, [&](int) { return RunRank(cases); }, hosts);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Times training steps of ranks on this host, each with one thread, and prints a
JSON line a case.

  ddp --case=resnet18/b8/64px,mlp_4x64/b32 --backend=shm
  ddp --overhead --case=mlp_4x64/b32     wrapped and unwrapped steps in turn
  ddp --overhead --world_size=1          what wrapping costs a rank that is alone
  ddp --virtual_ranks=8                  virtual ranks, and one large batch a rank
  ddp --elastic --check_every=100        what elastic::World costs if nobody dies
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::Run();
  if (!status.ok()) std::cerr << absl::StrCat("ddp: ", status.message(), "\n");
  return lockstep::launch::ExitCode(status);
}
