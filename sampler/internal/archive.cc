#include "lockstep/sampler/internal/archive.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include "absl/strings/str_cat.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/sampler/internal/checks.h"

namespace lockstep::sampler::internal {
namespace {

// None if the field does not exist.
c10::IValue Read(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.try_read(key, value);
  return value;
}

}  // namespace

int64_t ReadInt(torch::serialize::InputArchive& archive, const std::string& key) {
  const c10::IValue value = Read(archive, key);
  TORCH_CHECK(value.isInt(), "a sampler's archive: ", key, ": expected Int, found ", value.tagKind());
  return value.toInt();
}

bool ReadBool(torch::serialize::InputArchive& archive, const std::string& key) {
  const c10::IValue value = Read(archive, key);
  TORCH_CHECK(value.isBool(), "a sampler's archive: ", key, ": expected Bool, found ", value.tagKind());
  return value.toBool();
}

void Archive::ThrowNotImplemented(const char* member) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "TorchSampler: the sampler's class has no member ", member);
}

void Archive::Save(const DistributedSampler& sampler, torch::serialize::OutputArchive& archive) {
  const SamplerState state =
      sampler.started_ ? sampler.StateAt(sampler.pass_, sampler.position_) : sampler.State(/*consumed=*/0);
  archive.write("size", state.size);
  archive.write("num_replicas", state.num_replicas);
  archive.write("seed", state.seed);
  archive.write("epoch", state.epoch);
  archive.write("consumed", state.consumed);
  archive.write("shuffle", state.shuffle);
  archive.write("drop_last", state.drop_last);
  archive.write("feistel", state.permutation == Permutation::kFeistel);
}

void Archive::Load(DistributedSampler& sampler, torch::serialize::InputArchive& archive) {
  SamplerState state;
  state.size = ReadInt(archive, "size");
  state.num_replicas = ReadInt(archive, "num_replicas");
  state.seed = ReadInt(archive, "seed");
  state.epoch = ReadInt(archive, "epoch");
  state.consumed = ReadInt(archive, "consumed");
  state.shuffle = ReadBool(archive, "shuffle");
  state.drop_last = ReadBool(archive, "drop_last");
  if (ReadBool(archive, "feistel")) state.permutation = Permutation::kFeistel;
  ThrowValueErrorUnlessOk(sampler.Restore(state));
}

void Archive::Save(const WeightedSampler& sampler, torch::serialize::OutputArchive& archive) {
  Save(sampler.places_, archive);
}

void Archive::Load(WeightedSampler& sampler, torch::serialize::InputArchive& archive) {
  MutexLock lock(*sampler.epoch_is_fixed_);
  Load(sampler.places_, archive);
  sampler.drawn_.reset();
}

void Archive::Save(const EvaluationSampler& sampler, torch::serialize::OutputArchive& archive) {
  archive.write("size", sampler.size_);
  archive.write("num_replicas", sampler.options_.num_replicas);
  archive.write("consumed", sampler.position_);
}

void Archive::Load(EvaluationSampler& sampler, torch::serialize::InputArchive& archive) {
  const int64_t consumed = ReadInt(archive, "consumed");
  ThrowValueErrorUnlessOk(CheckSame("EvaluationSampler::load: size", sampler.size_, ReadInt(archive, "size")));
  ThrowValueErrorUnlessOk(CheckSame("EvaluationSampler::load: num_replicas", sampler.options_.num_replicas,
                                    ReadInt(archive, "num_replicas")));
  ThrowValueErrorUnlessOk(CheckInRange("EvaluationSampler::load: consumed", 0, sampler.num_samples(), consumed));
  sampler.position_ = consumed;
  sampler.restored_ = true;
}

void Archive::Save(const RandomSampler& sampler, torch::serialize::OutputArchive& archive) {
  at::Tensor state = sampler.StartState();
  if (!state.defined()) state = at::empty({0}, at::kByte);  // a generator does not exist yet
  archive.write("size", sampler.size_);
  archive.write("num_samples", sampler.num_samples());
  archive.write("replacement", sampler.options_.replacement);
  archive.write("has_generator", sampler.options_.generator.defined());
  archive.write("consumed", sampler.position_);
  archive.write("start_state", state, /*is_buffer=*/true);
}

void Archive::Load(RandomSampler& sampler, torch::serialize::InputArchive& archive) {
  const auto check = [](const std::string& field, auto expected, auto found) {
    ThrowValueErrorUnlessOk(CheckSame(absl::StrCat("RandomSampler::load: ", field), expected, found));
  };
  check("size", sampler.size_, ReadInt(archive, "size"));
  check("num_samples", sampler.num_samples(), ReadInt(archive, "num_samples"));
  check("replacement", sampler.options_.replacement, ReadBool(archive, "replacement"));
  check("has_generator", sampler.options_.generator.defined(), ReadBool(archive, "has_generator"));
  const int64_t consumed = ReadInt(archive, "consumed");
  ThrowValueErrorUnlessOk(CheckInRange("RandomSampler::load: consumed", 0, sampler.num_samples(), consumed));
  at::Tensor state;
  archive.read("start_state", state, /*is_buffer=*/true);
  sampler.GoTo(state, consumed);
}

}  // namespace lockstep::sampler::internal
