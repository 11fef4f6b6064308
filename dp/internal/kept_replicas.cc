#include "lockstep/dp/internal/kept_replicas.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <string>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::dp::internal {
namespace {

// A clone initialises its parameters before it takes over the values. The generator's state is restored afterwards.
class RandomNumbersKept {
 public:
  RandomNumbersKept() : generator_(at::detail::getDefaultCPUGenerator()), state_(State()) {}
  ~RandomNumbersKept() {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(state_);
  }
  RandomNumbersKept(const RandomNumbersKept&) = delete;
  RandomNumbersKept& operator=(const RandomNumbersKept&) = delete;

 private:
  at::Tensor State() {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    return generator_.get_state();
  }

  at::Generator generator_;
  const at::Tensor state_;
};

ModulePtr CloneOf(const torch::nn::Module& module, c10::Device device) {
  try {
    return module.clone(device);
  } catch (c10::Error& error) {
    error.add_context(
        "DataParallel makes replicas by clone(): derive the module and its submodules from torch::nn::Cloneable, or "
        "give dp::Parts a function that makes one");
    throw;
  }
}

std::string Description(const std::string& name, const at::Tensor& tensor) {
  return c10::str(name, " of shape ", tensor.sizes());
}

std::vector<std::string> Descriptions(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  std::vector<std::string> descriptions;
  for (const auto& tensor : tensors) descriptions.push_back(Description(tensor.key(), tensor.value()));
  return descriptions;
}

std::vector<std::string> Types(const ModuleTree& tree) {
  std::vector<std::string> types;
  for (const ModulePtr& module : tree.modules) {
    const torch::nn::Module& part = *module;
    types.push_back(c10::demangle(typeid(part).name()));
  }
  return types;
}

void CheckAlike(const char* kind, std::vector<std::string> a, std::vector<std::string> b) {
  a.resize(std::max(a.size(), b.size()), "nothing");
  b.resize(a.size(), "nothing");
  for (size_t i = 0; i < a.size(); ++i) {
    TORCH_CHECK_VALUE(a[i] == b[i], "DataParallel: expected replicas with the module's ", kind, ", found ", b[i],
                      " in the place of ", a[i]);
  }
}

// A replica of another type means that the module inherits clone() from a base class.
void CheckAlike(const ModulePtr& module, const ModulePtr& replica) {
  CheckAlike("modules", Types(ModuleTree(module)), Types(ModuleTree(replica)));
  CheckAlike("parameters", Descriptions(module->named_parameters()), Descriptions(replica->named_parameters()));
  CheckAlike("buffers", Descriptions(module->named_buffers()), Descriptions(replica->named_buffers()));
}

// Adds the replica's tensors to `others`. For example, a copy by the module's copy constructor has the same tensors.
void CheckItsOwn(const ModuleTree& replica, std::unordered_set<const c10::TensorImpl*>& others) {
  std::unordered_set<const c10::TensorImpl*> own;
  for (const auto* tensors : {&replica.parameters, &replica.buffers}) {
    for (const at::Tensor& tensor : *tensors) own.insert(tensor.unsafeGetTensorImpl());
  }
  for (const c10::TensorImpl* tensor : own) {
    TORCH_CHECK_VALUE(others.insert(tensor).second, "DataParallel: expected replicas with separate tensors, found ",
                      "one with a tensor of the module or of another replica");
  }
}

std::vector<const void*> GradientTargets(const ModuleTree& tree) {
  std::vector<const void*> targets;
  for (const auto* tensors : {&tree.parameters, &tree.buffers}) {
    for (const at::Tensor& tensor : *tensors) {
      targets.push_back(tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor).function.get() : nullptr);
    }
  }
  return targets;
}

}  // namespace

ModuleTree::ModuleTree(const ModulePtr& module) : modules(module->modules()) {
  for (const ModulePtr& part : modules) {
    for (at::Tensor& parameter : part->parameters(/*recurse=*/false)) parameters.push_back(std::move(parameter));
    for (at::Tensor& buffer : part->buffers(/*recurse=*/false)) buffers.push_back(std::move(buffer));
  }
}

KeptReplicas::Known::Known(const at::Tensor& tensor)
    : tensor(tensor),
      data(tensor.const_data_ptr()),
      dtype(tensor.scalar_type()),
      sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()) {}

bool KeptReplicas::Known::Is(const at::Tensor& now) const {
  return tensor.is_same(now) && data == now.const_data_ptr() && dtype == now.scalar_type() && now.sizes() == sizes &&
         now.strides() == strides;
}

KeptReplicas::KeptReplicas(ModulePtr module, std::vector<c10::Device> devices, ReplicaOptions options)
    : module_(std::move(module)), devices_(std::move(devices)), options_(std::move(options)) {}

const std::vector<ModulePtr>& KeptReplicas::Update(size_t count) {
  TORCH_CHECK_VALUE(count <= devices_.size(), "Replicas: expected 1 to ", devices_.size() + 1, " replicas, found ",
                    count + 1);
  const ModuleTree tree(module_);
  std::vector<const void*> targets = GradientTargets(tree);
  if (!IsKnown(tree) || IsFrozenUnderAGraph(targets)) Make(tree);
  AttachIfNew(std::move(targets));
  SetModes(tree, count);
  for (Chunk& chunk : chunks_) chunk.Update(count);
  RecordSharedVersions(tree.parameters, count);
  return replicas_;
}

bool KeptReplicas::IsShared(const at::Tensor& parameter) const {
  return options_.share_memory && !parameter.is_inference() &&
         std::find(devices_.begin(), devices_.end(), parameter.device()) != devices_.end();
}

void KeptReplicas::RecordSharedVersions(const std::vector<at::Tensor>& parameters, size_t count) {
  shared_versions_.clear();
  if (count == 0) return;
  for (const at::Tensor& parameter : parameters) {
    if (IsShared(parameter)) shared_versions_.emplace_back(parameter, parameter._version());
  }
}

void KeptReplicas::CheckSharedUnwritten() const {
  for (const auto& [parameter, version] : shared_versions_) {
    if (parameter._version() == version) continue;
    std::string name;
    for (const auto& named : module_->named_parameters()) {
      if (named.value().is_same(parameter)) name = named.key();
    }
    ThrowIfError(absl::FailedPreconditionError(absl::StrCat(
        "DataParallel: the forward wrote to parameter ", name, ", whose memory the replicas share, so all of them may ",
        "have written to it: restore it, and set ReplicateOptions::share_memory to false")));
  }
}

bool KeptReplicas::IsKnown(const ModuleTree& tree) const {
  if (tree.modules != known_modules_) return false;
  if (tree.parameters.size() + tree.buffers.size() != known_tensors_.size()) return false;
  auto known = known_tensors_.begin();
  for (const auto* tensors : {&tree.parameters, &tree.buffers}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!(known++)->Is(tensor)) return false;
    }
  }
  return true;
}

void KeptReplicas::Make(const ModuleTree& tree) {
  const c10::NoGradGuard no_grad;
  const c10::InferenceMode no_inference(false);
  const RandomNumbersKept random_numbers;
  known_modules_.clear();
  replicas_.clear();
  replica_modules_.clear();
  chunks_.clear();
  std::vector<std::vector<at::Tensor>> parameters, buffers;
  std::unordered_set<const c10::TensorImpl*> others;
  CheckItsOwn(tree, others);
  for (const c10::Device& device : devices_) {
    ModulePtr replica = options_.make ? options_.make() : CloneOf(*module_, device);
    CheckAlike(module_, replica);
    ModuleTree replica_tree(replica);
    CheckItsOwn(replica_tree, others);
    parameters.push_back(std::move(replica_tree.parameters));
    buffers.push_back(std::move(replica_tree.buffers));
    replica_modules_.push_back(std::move(replica_tree.modules));
    replicas_.push_back(std::move(replica));
  }
  MakeChunks(ChunkKind::kParameters, tree.parameters, parameters);
  MakeChunks(ChunkKind::kBuffers, tree.buffers, buffers);
  known_modules_ = tree.modules;
  known_tensors_.clear();
  for (const at::Tensor& tensor : tree.parameters) known_tensors_.emplace_back(tensor);
  for (const at::Tensor& tensor : tree.buffers) known_tensors_.emplace_back(tensor);
  gradient_targets_.clear();
}

// Chunks of tensors in order, each of one dtype and closed once it has options_.chunk_bytes.
void KeptReplicas::MakeChunks(ChunkKind kind, const std::vector<at::Tensor>& sources,
                              const std::vector<std::vector<at::Tensor>>& copies) {
  struct Open {
    std::vector<at::Tensor> sources;
    std::vector<std::vector<at::Tensor>> copies;
    int64_t bytes = 0;
  };
  std::map<c10::ScalarType, Open> open;
  const auto close = [&](Open& part) {
    if (part.sources.empty()) return;
    chunks_.emplace_back(kind, std::move(part.sources), part.copies, devices_, options_.share_memory);
    part = Open();
  };
  for (size_t i = 0; i < sources.size(); ++i) {
    Open& part = open[sources[i].scalar_type()];
    part.copies.resize(copies.size());
    part.sources.push_back(sources[i]);
    for (size_t r = 0; r < copies.size(); ++r) part.copies[r].push_back(copies[r][i]);
    part.bytes += static_cast<int64_t>(sources[i].nbytes());
    if (part.bytes >= options_.chunk_bytes) close(part);
  }
  for (auto& part : open) close(part.second);
}

// Tensors may be frozen and thawed. The replicas stay, unless a graph keeps a tensor that would be detached.
bool KeptReplicas::IsFrozenUnderAGraph(const std::vector<const void*>& targets) const {
  for (size_t i = 0; i < gradient_targets_.size(); ++i) {
    if (!gradient_targets_[i] || targets[i]) continue;
    return std::any_of(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) { return chunk.IsKept(); });
  }
  return false;
}

void KeptReplicas::AttachIfNew(std::vector<const void*> targets) {
  if (targets == gradient_targets_) return;
  for (Chunk& chunk : chunks_) chunk.Attach();
  gradient_targets_ = std::move(targets);
}

// train() also changes a module's submodules. They come after it in the list and are set correctly there.
void KeptReplicas::SetModes(const ModuleTree& tree, size_t count) {
  for (size_t r = 0; r < count; ++r) {
    for (size_t i = 0; i < tree.modules.size(); ++i) {
      torch::nn::Module& module = *replica_modules_[r][i];
      if (module.is_training() != tree.modules[i]->is_training()) module.train(tree.modules[i]->is_training());
    }
  }
}

}  // namespace lockstep::dp::internal
