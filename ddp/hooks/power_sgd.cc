#include "lockstep/ddp/hooks/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/hooks/internal/orthogonalize.h"
#include "lockstep/ddp/hooks/internal/same_part.h"
#include "lockstep/ddp/internal/known_hook.h"

namespace lockstep::ddp::hooks {
namespace {

using internal::Orthogonalize;
using internal::RestartUselessColumns;
using internal::SamePart;

// A part of a bucket that is compressed.
struct Matrix {
  std::string key;      // of its warm start
  at::Tensor gradient;  // in the bucket
  at::Tensor input;     // [n, m]: the gradient's elements in order, perhaps with zeros after them
  at::Tensor p, q;      // [n, r] and [m, r], in the flat tensors that are all-reduced

  int64_t rank(int64_t most) const { return std::min({most, input.size(0), input.size(1)}); }
};

// A bucket on its way.
struct Step {
  at::Tensor buffer;
  std::vector<Matrix> matrices;
  std::vector<at::Tensor> uncompressed;
  // The parameters whose errors are kept: their names, and their parts of `buffer`.
  std::vector<std::pair<std::string, at::Tensor>> fed_back;
  at::Tensor sums;  // the uncompressed gradients, then the Ps
  at::Tensor qs;
};

// PyTorch seeds each random start with numpy.random.RandomState(seed).randint(1'000'000'000): MT19937's outputs, cut to
// 30 bits, without the ones that are out of range.
class Seeds {
 public:
  // The first `drawn` ones were drawn before.
  Seeds(uint32_t seed, int64_t drawn) : engine_(seed) {
    for (int64_t i = 0; i < drawn; ++i) Next();
  }
  uint64_t Next() {
    for (;;) {
      const uint32_t bits = static_cast<uint32_t>(engine_()) & 0x3fffffff;
      if (bits < 1'000'000'000) return bits;
    }
  }

 private:
  std::mt19937 engine_;
};

bool FitsTogether(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

std::vector<at::Tensor> Flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return flat;
}

// The bucket's gradients, one by one.
void SplitByGradient(GradBucket& bucket, const PowerSgdOptions& options, Step& step) {
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    const at::Tensor& gradient = bucket.gradients[i];
    const int64_t n = gradient.dim() == 0 ? 1 : gradient.size(0), m = n == 0 ? 0 : gradient.numel() / n;
    const int64_t rank = std::min({n, m, options.matrix_approximation_rank});
    if (rank > 0 && (n + m) * rank * options.min_compression_rate < n * m) {
      step.matrices.push_back({bucket.names[i], gradient, gradient.reshape({n, m}), {}, {}});
      step.fed_back.emplace_back(bucket.names[i], gradient);
    } else {
      step.uncompressed.push_back(gradient);
    }
  }
  // PyTorch draws random starts shape by shape, in the order in which the shapes occur first.
  std::vector<std::vector<int64_t>> shapes;
  for (const Matrix& matrix : step.matrices) shapes.push_back(matrix.input.sizes().vec());
  const auto first = [&shapes](const Matrix& matrix) {
    return std::find(shapes.begin(), shapes.end(), matrix.input.sizes().vec());
  };
  std::stable_sort(step.matrices.begin(), step.matrices.end(),
                   [&](const Matrix& a, const Matrix& b) { return first(a) < first(b); });
}

// The whole bucket as one matrix, created once the errors are added. Warm starts of old layouts are kept, since buckets
// are laid out anew only once and a warm start is small.
void TakeWhole(GradBucket& bucket, Step& step) {
  step.matrices.push_back(
      {absl::StrCat("layout ", bucket.layout, " bucket ", bucket.index), bucket.buffer, {}, {}, {}});
  for (size_t i = 0; i < bucket.gradients.size(); ++i) step.fed_back.emplace_back(bucket.names[i], bucket.gradients[i]);
}

at::Tensor FilledToASquare(const at::Tensor& flat) {
  const auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(flat.numel()))));
  return at::cat({flat, flat.new_zeros({side * side - flat.numel()})}).view({side, side});
}

// Gradients are not recorded here, and an autocast region around backward does not cast.
struct PlainMath {
  c10::NoGradGuard no_grad;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

class Compressor {
 public:
  Compressor(comm::ProcessGroup* group, PowerSgdOptions options, bool batched)
      : group_(group),
        options_(std::move(options)),
        batched_(batched),
        state_(options_.state ? options_.state : std::make_shared<PowerSgdState>()),
        seeds_(options_.random_seed, state_->starts_drawn) {}

  // The bucket's first all-reduce is under way; Finish() does the rest when it is done.
  std::pair<std::shared_ptr<Step>, comm::Work> Begin(GradBucket& bucket);
  absl::StatusOr<at::Tensor> Finish(Step& step);

  // Returns whether the step of `bucket` is compressed. Call it once for each bucket.
  bool Compresses(const GradBucket& bucket) {
    const bool compresses = state_->iteration >= options_.start_power_sgd_iter;
    if (bucket.is_last) ++state_->iteration;
    return compresses;
  }

 private:
  void AddErrors(const Step& step) const;
  void AllocateFactors(Step& step) const;
  void StartQs(Step& step);
  void KeepQs(const Step& step);
  void Decompress(Step& step);
  void Count(const Step& step) const;

  comm::ProcessGroup* const group_;
  const PowerSgdOptions options_;
  const bool batched_;
  const std::shared_ptr<PowerSgdState> state_;  // warm starts by Matrix::key
  Seeds seeds_;
};

void Compressor::AddErrors(const Step& step) const {
  for (const auto& [name, gradient] : step.fed_back) {
    const auto error = state_->errors.find(name);
    if (error != state_->errors.end() && FitsTogether(error->second, gradient)) gradient.add_(error->second);
  }
}

void Compressor::AllocateFactors(Step& step) const {
  int64_t uncompressed = 0, p_size = 0, q_size = 0;
  for (const at::Tensor& gradient : step.uncompressed) uncompressed += gradient.numel();
  for (const Matrix& matrix : step.matrices) {
    p_size += matrix.input.size(0) * matrix.rank(options_.matrix_approximation_rank);
    q_size += matrix.input.size(1) * matrix.rank(options_.matrix_approximation_rank);
  }
  step.sums = at::empty({uncompressed + p_size}, step.buffer.options());
  step.qs = at::empty({q_size}, step.buffer.options());
  int64_t p_at = uncompressed, q_at = 0;
  for (Matrix& matrix : step.matrices) {
    const int64_t n = matrix.input.size(0), m = matrix.input.size(1);
    const int64_t r = matrix.rank(options_.matrix_approximation_rank);
    matrix.p = step.sums.narrow(0, p_at, n * r).view({n, r});
    matrix.q = step.qs.narrow(0, q_at, m * r).view({m, r});
    p_at += n * r;
    q_at += m * r;
  }
}

// The Qs of the previous step or, if there are none, random ones. Both are the same on all ranks.
void Compressor::StartQs(Step& step) {
  c10::optional<at::Generator> random;
  for (Matrix& matrix : step.matrices) {
    const auto warm = state_->qs.find(matrix.key), start = state_->starts.find(matrix.key);
    if (warm != state_->qs.end() && FitsTogether(warm->second, matrix.q) && start != state_->starts.end() &&
        FitsTogether(start->second, matrix.q)) {
      matrix.q.copy_(warm->second);
      RestartUselessColumns(matrix.q, start->second);
    } else {
      if (!random) {
        random = at::detail::createCPUGenerator(seeds_.Next());
        ++state_->starts_drawn;
      }
      matrix.q.copy_(at::randn(matrix.q.sizes(), random, at::TensorOptions(matrix.q.scalar_type())));
      state_->qs.erase(matrix.key);
      if (options_.warm_start) state_->starts[matrix.key] = matrix.q.clone();
    }
    Orthogonalize(matrix.q, options_.orthogonalization_epsilon);
  }
}

void Compressor::KeepQs(const Step& step) {
  if (!options_.warm_start) return;
  for (const Matrix& matrix : step.matrices) state_->qs[matrix.key] = matrix.q;
}

std::pair<std::shared_ptr<Step>, comm::Work> Compressor::Begin(GradBucket& bucket) {
  const PlainMath plain;
  auto step = std::make_shared<Step>();
  step->buffer = bucket.buffer;
  if (batched_) {
    TakeWhole(bucket, *step);
  } else {
    SplitByGradient(bucket, options_, *step);
  }
  AddErrors(*step);
  for (Matrix& matrix : step->matrices) {
    if (batched_) matrix.input = FilledToASquare(bucket.buffer);
  }
  AllocateFactors(*step);
  Count(*step);
  StartQs(*step);
  if (!step->uncompressed.empty()) {
    const std::vector<at::Tensor> flat = Flat(step->uncompressed);
    int64_t at = 0;
    for (const at::Tensor& gradient : flat) {
      step->sums.narrow(0, at, gradient.numel()).copy_(gradient);
      at += gradient.numel();
    }
  }
  for (Matrix& matrix : step->matrices) at::mm_out(matrix.p, matrix.input, matrix.q);
  comm::Work work = group_->AllReduceAsync(step->sums);
  return {std::move(step), std::move(work)};
}

absl::StatusOr<at::Tensor> Compressor::Finish(Step& step) {
  const PlainMath plain;
  int64_t at = 0;
  for (const at::Tensor& gradient : step.uncompressed) {
    const at::Tensor sum = step.sums.narrow(0, at, gradient.numel());
    gradient.copy_(sum.div_(group_->size()).view(gradient.sizes()));
    at += gradient.numel();
  }
  if (step.matrices.empty()) return step.buffer;
  // The Ps stay sums: a column's length does not matter.
  for (Matrix& matrix : step.matrices) {
    Orthogonalize(matrix.p, options_.orthogonalization_epsilon);
    at::mm_out(matrix.q, matrix.input.t(), matrix.p);
  }
  LOCKSTEP_RETURN_IF_ERROR(group_->AllReduce(step.qs));
  step.qs.div_(group_->size());
  Decompress(step);
  KeepQs(step);
  return step.buffer;
}

// Writes the approximations to the bucket, and keeps their errors.
void Compressor::Decompress(Step& step) {
  const at::Tensor errors = options_.use_error_feedback ? at::zeros_like(step.buffer) : at::Tensor();
  for (const Matrix& matrix : step.matrices) {
    const at::Tensor& gradient = matrix.gradient;
    const at::Tensor product = matrix.p.mm(matrix.q.t()).view({-1}).narrow(0, 0, gradient.numel());
    const at::Tensor approximation = product.view(gradient.sizes());
    if (errors.defined()) SamePart(errors, step.buffer, gradient).copy_(gradient).sub_(approximation);
    gradient.copy_(approximation);
  }
  if (!errors.defined()) return;
  errors.nan_to_num_(/*nan=*/0, /*posinf=*/0, /*neginf=*/0);  // otherwise one bad step would spoil all later ones
  for (const auto& [name, gradient] : step.fed_back) state_->errors[name] = SamePart(errors, step.buffer, gradient);
}

void Compressor::Count(const Step& step) const {
  if (!options_.statistics) return;
  int64_t before = 0;
  for (const at::Tensor& gradient : step.uncompressed) before += gradient.numel();
  for (const Matrix& matrix : step.matrices) before += matrix.gradient.numel();
  const int64_t after = step.sums.numel() + step.qs.numel();
  CompressionStatistics& statistics = *options_.statistics;
  statistics.elements_before += before;
  statistics.elements_after += after;
  statistics.bytes_before += before * step.buffer.element_size();
  statistics.bytes_after += after * step.buffer.element_size();
}

absl::Status CheckOptions(const PowerSgdOptions& options) {
  const auto wrong = [](const char* name, auto found, const char* expected) {
    return absl::InvalidArgumentError(absl::StrCat("PowerSgd: ", name, " is ", found, ", expected ", expected));
  };
  if (options.matrix_approximation_rank < 1)
    return wrong("matrix_approximation_rank", options.matrix_approximation_rank, "1 or more");
  if (options.start_power_sgd_iter < 0) return wrong("start_power_sgd_iter", options.start_power_sgd_iter, "0 or more");
  if (!(options.min_compression_rate > 0 && std::isfinite(options.min_compression_rate)))
    return wrong("min_compression_rate", options.min_compression_rate, "a positive number");
  if (!(options.orthogonalization_epsilon >= 0 && std::isfinite(options.orthogonalization_epsilon)))
    return wrong("orthogonalization_epsilon", options.orthogonalization_epsilon, "0 or a positive number");
  return absl::OkStatus();
}

absl::StatusOr<CommunicationHook> Make(comm::ProcessGroup* group, const PowerSgdOptions& options, bool batched) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(options));
  const auto call = [compressor = std::make_shared<Compressor>(group, options, batched),
                     plain = AllReduce(group)](GradBucket& bucket) {
    if (!compressor->Compresses(bucket)) return plain(bucket);
    auto [step, work] = compressor->Begin(bucket);
    return Future(std::move(work), step->buffer).Then([compressor, step = step](const at::Tensor&) {
      return compressor->Finish(*step);
    });
  };
  return ddp::internal::KnownHook{batched ? "BatchedPowerSgd" : "PowerSgd", std::nullopt, call};
}

}  // namespace

absl::StatusOr<CommunicationHook> PowerSgd(comm::ProcessGroup* group, const PowerSgdOptions& options) {
  return Make(group, options, /*batched=*/false);
}

absl::StatusOr<CommunicationHook> BatchedPowerSgd(comm::ProcessGroup* group, const PowerSgdOptions& options) {
  return Make(group, options, /*batched=*/true);
}

}  // namespace lockstep::ddp::hooks
