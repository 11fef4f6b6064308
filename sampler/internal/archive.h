// The samplers in LibTorch's archives, for TorchSampler.

#ifndef LOCKSTEP_SAMPLER_INTERNAL_ARCHIVE_H_
#define LOCKSTEP_SAMPLER_INTERNAL_ARCHIVE_H_

#include <cstdint>
#include <string>

#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/evaluation_sampler.h"
#include "lockstep/sampler/random_sampler.h"
#include "lockstep/sampler/weighted_sampler.h"

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace lockstep::sampler::internal {

// TorchSampler's save() and load() of the samplers in this folder, of which it is a friend.
struct Archive {
  static void Save(const DistributedSampler& sampler, torch::serialize::OutputArchive& archive);
  static void Save(const EvaluationSampler& sampler, torch::serialize::OutputArchive& archive);
  static void Save(const RandomSampler& sampler, torch::serialize::OutputArchive& archive);
  static void Save(const WeightedSampler& sampler, torch::serialize::OutputArchive& archive);

  static void Load(DistributedSampler& sampler, torch::serialize::InputArchive& archive);
  static void Load(EvaluationSampler& sampler, torch::serialize::InputArchive& archive);
  static void Load(RandomSampler& sampler, torch::serialize::InputArchive& archive);
  static void Load(WeightedSampler& sampler, torch::serialize::InputArchive& archive);

  // Saves or loads a sampler of a user's class by its members save(archive) and load(archive). Throws
  // c10::NotImplementedError if it has none.
  template <typename S>
  static void Save(const S& sampler, torch::serialize::OutputArchive& archive) {
    CallSave(sampler, archive, 0);
  }
  template <typename S>
  static void Load(S& sampler, torch::serialize::InputArchive& archive) {
    CallLoad(sampler, archive, 0);
  }

 private:
  // The argument 0 prefers the first of two overloads, if it exists.
  template <typename S>
  static auto CallSave(const S& sampler, torch::serialize::OutputArchive& archive, int)
      -> decltype(sampler.save(archive)) {
    sampler.save(archive);
  }
  template <typename S>
  static void CallSave(const S&, torch::serialize::OutputArchive&, ...) {
    ThrowNotImplemented("save(torch::serialize::OutputArchive&) const");
  }
  template <typename S>
  static auto CallLoad(S& sampler, torch::serialize::InputArchive& archive, int) -> decltype(sampler.load(archive)) {
    sampler.load(archive);
  }
  template <typename S>
  static void CallLoad(S&, torch::serialize::InputArchive&, ...) {
    ThrowNotImplemented("load(torch::serialize::InputArchive&)");
  }
  [[noreturn]] static void ThrowNotImplemented(const char* member);
};

// Throw c10::Error if the archive does not have the field, or it has another type.
int64_t ReadInt(torch::serialize::InputArchive& archive, const std::string& key);
bool ReadBool(torch::serialize::InputArchive& archive, const std::string& key);

}  // namespace lockstep::sampler::internal

#endif  // LOCKSTEP_SAMPLER_INTERNAL_ARCHIVE_H_
