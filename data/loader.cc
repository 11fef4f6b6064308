#include "lockstep/data/loader.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/seed.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/data/internal/batch.h"

namespace lockstep::data {
namespace {

using internal::BatchInProgress;
using Batch = Example;

absl::Status Check(const LoaderOptions& options) {
  const std::pair<const char*, int64_t> positive[] = {
      {"batch_size", options.batch_size}, {"num_workers", options.num_workers}, {"prefetch", options.prefetch}};
  for (const auto& [name, value] : positive) {
    if (value < 1)
      return absl::InvalidArgumentError(absl::StrCat("Loader: expected ", name, " to be positive, found ", value));
  }
  if (options.max_skipped < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("Loader: expected max_skipped to be 0 or more, found ", options.max_skipped));
  return absl::OkStatus();
}

absl::Status CheckPinning() {
  const absl::Status pinned =
      TorchStatus("Loader: pin_memory needs a GPU", [] { at::empty({1}, at::TensorOptions().pinned_memory(true)); });
  return pinned.ok() ? pinned : absl::InvalidArgumentError(pinned.message());
}

absl::StatusOr<std::optional<internal::DeviceCopy>> MakeDeviceCopy(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  auto copy =
      TorchStatusOr(absl::StrCat("Loader: device ", device.str()), [&] { return internal::DeviceCopy(device); });
  if (!copy.ok()) return absl::InvalidArgumentError(copy.status().message());
  return *std::move(copy);
}

// The example at `index`. An exception of the dataset becomes a status.
absl::StatusOr<Batch> Make(const Dataset& dataset, int64_t index, at::Generator& random) {
  absl::StatusOr<Batch> example;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(absl::StrCat("example ", index), [&] { example = dataset.Get(index, random); }));
  return example;
}

// A caller that assigns the next batch to the variable of the last one holds both for a moment.
constexpr size_t kBatchesOfCaller = 2, kTensorsOfBatch = 2;

// A batch on its way to Next().
struct Queued {
  explicit Queued(std::vector<size_t> indices) : batch(std::move(indices)) {}

  BatchInProgress batch;
  int64_t epoch = 0;
  size_t claimed = 0;  // places below it are taken by a thread
  size_t done = 0;     // number of finished places
};

}  // namespace

class Loader::Impl {
 public:
  Impl(const Dataset* dataset, sampler::Sampler* sampler, const LoaderOptions& options,
       std::optional<internal::DeviceCopy> device_copy)
      : dataset_(*dataset),
        sampler_(*sampler),
        options_(options),
        device_copy_(std::move(device_copy)),
        memory_(kTensorsOfBatch * (options.prefetch + kBatchesOfCaller), options.pin_memory || device_copy_) {}
  ~Impl();

  absl::Status StartThreads();
  absl::Status Start(int64_t epoch);
  absl::StatusOr<std::optional<Batch>> Next();

  int64_t consumed() const { return consumed_; }
  const std::vector<Skipped>& skipped() const { return skipped_; }
  absl::Duration waited() const { return waited_; }

 private:
  // Called on the caller's thread.
  absl::Status Enqueue();
  void LearnLayout(Queued& queued);
  std::shared_ptr<Queued> WaitForFirst();
  absl::StatusOr<std::optional<Batch>> NextOfPass();
  absl::StatusOr<Batch> Finish(Queued& queued);
  absl::Status Skip(const BatchInProgress& batch);
  void EndPass();

  // Called on the workers.
  void Work();
  std::shared_ptr<Queued> Claimable() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void Fill(Queued& queued, size_t place, at::Generator& random);
  void Seed(at::Generator& random, const Queued& queued, size_t place) const {
    random.set_current_seed(SeedOf(options_.seed, queued.epoch, queued.batch.index(place)));
  }

  const Dataset& dataset_;
  sampler::Sampler& sampler_;
  const LoaderOptions options_;
  const std::optional<internal::DeviceCopy> device_copy_;  // none if batches stay on the CPU

  // Used by the caller's thread only.
  internal::BatchMemory memory_;
  std::optional<Batch> layout_;  // an example with the shapes and dtypes of all
  at::Generator random_ = at::detail::createCPUGenerator();
  int64_t epoch_ = 0;
  bool in_pass_ = false;
  bool sampler_at_end_ = false;
  int64_t consumed_ = 0;
  std::vector<Skipped> skipped_;
  absl::Duration waited_;

  absl::Mutex mutex_;
  std::deque<std::shared_ptr<Queued>> queue_ ABSL_GUARDED_BY(mutex_);
  int starting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

Loader::Impl::~Impl() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

// The workers run in parallel, so a LibTorch operation inside a worker must not start more threads. LibTorch keeps a
// number of threads for each thread, and one for future threads, which is restored here.
absl::Status Loader::Impl::StartThreads() {
  const int intra_op_threads = at::get_num_threads();
  const MutexLock lock(mutex_);
  while (static_cast<int>(threads_.size()) < options_.num_workers) {
    absl::StatusOr<std::thread> thread = StartThread("a worker", [this] { Work(); });
    if (!thread.ok()) {
      if (threads_.empty()) return Annotate(thread.status(), "Loader");
      LOG(WARNING) << "Loader: continues with " << threads_.size() << " of " << options_.num_workers
                   << " workers: " << thread.status().message();
      break;
    }
    threads_.push_back(*std::move(thread));
    ++starting_;
  }
  mutex_.Await(absl::Condition(
      +[](int* starting) { return *starting == 0; }, &starting_));
  at::set_num_threads(intra_op_threads);
  return absl::OkStatus();
}

absl::Status Loader::Impl::Start(int64_t epoch) {
  EndPass();
  epoch_ = epoch;
  consumed_ = 0;
  skipped_.clear();
  waited_ = absl::ZeroDuration();
  sampler_at_end_ = false;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("Loader: the sampler's reset", [&] { sampler_.reset(std::nullopt); }));
  for (int64_t i = 0; i < options_.prefetch && !sampler_at_end_; ++i) LOCKSTEP_RETURN_IF_ERROR(Enqueue());
  in_pass_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Batch>> Loader::Impl::Next() {
  if (!in_pass_) return absl::FailedPreconditionError("Loader: expected a Start() before Next()");
  absl::StatusOr<std::optional<Batch>> batch = NextOfPass();
  if (!batch.ok() || !batch->has_value()) EndPass();
  return batch;
}

absl::StatusOr<std::optional<Batch>> Loader::Impl::NextOfPass() {
  while (const std::shared_ptr<Queued> first = WaitForFirst()) {
    LOCKSTEP_RETURN_IF_ERROR(Enqueue());
    LOCKSTEP_ASSIGN_OR_RETURN(Batch batch, Finish(*first));
    if (batch.data.defined()) return batch;
  }
  return std::nullopt;
}

// The sampler is called here and not by the workers, so the caller may get its state at the same time.
absl::Status Loader::Impl::Enqueue() {
  if (sampler_at_end_) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::optional<std::vector<size_t>> indices,
      TorchStatusOr("Loader: the sampler's next", [&] { return sampler_.next(options_.batch_size); }));
  const bool short_one = !indices || static_cast<int64_t>(indices->size()) < options_.batch_size;
  sampler_at_end_ = !indices;
  if (!indices || (short_one && options_.drop_last)) return absl::OkStatus();
  auto queued = std::make_shared<Queued>(*std::move(indices));
  queued->epoch = epoch_;
  if (!layout_) LearnLayout(*queued);
  if (layout_) {
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus("Loader: a batch", [&] { queued->batch.Allocate(*layout_, memory_); }));
  }
  const MutexLock lock(mutex_);
  queue_.push_back(std::move(queued));
  return absl::OkStatus();
}

// Learns from the first example that does not fail. That example is made again in its place. This happens once.
void Loader::Impl::LearnLayout(Queued& queued) {
  for (size_t place = 0; place < queued.batch.size(); ++place) {
    Seed(random_, queued, place);
    absl::StatusOr<Batch> example = Make(dataset_, queued.batch.index(place), random_);
    if (example.ok()) {
      layout_ = *std::move(example);
      return;
    }
    queued.batch.Fail(place, example.status());
    queued.claimed = queued.done = place + 1;
  }
}

std::shared_ptr<Queued> Loader::Impl::WaitForFirst() {
  const MutexLock lock(mutex_);
  if (queue_.empty()) return nullptr;
  const std::shared_ptr<Queued> first = queue_.front();
  const auto is_done = [&first] { return first->done == first->batch.size(); };
  if (!is_done()) {
    const absl::Time start = absl::Now();
    mutex_.Await(absl::Condition(&is_done));
    waited_ += absl::Now() - start;
  }
  queue_.pop_front();
  return first;
}

absl::StatusOr<Batch> Loader::Impl::Finish(Queued& queued) {
  LOCKSTEP_RETURN_IF_ERROR(Skip(queued.batch));
  consumed_ += queued.batch.size();
  return TorchStatusOr("Loader: a batch", [&] {
    Batch batch = queued.batch.Take();
    return device_copy_ && batch.data.defined() ? (*device_copy_)(batch) : batch;
  });
}

// Goes through the examples in the order of the sampler, so the example that exceeds the limit does not depend on the
// threads.
absl::Status Loader::Impl::Skip(const BatchInProgress& batch) {
  for (size_t place = 0; place < batch.size(); ++place) {
    const absl::Status& error = batch.error(place);
    if (error.ok()) continue;
    if (options_.max_skipped == 0) return error;
    if (static_cast<int64_t>(skipped_.size()) == options_.max_skipped)
      return Annotate(error,
                      absl::StrCat("after max_skipped = ", options_.max_skipped, " examples that were left out"));
    skipped_.push_back({batch.index(place), error});
  }
  return absl::OkStatus();
}

void Loader::Impl::EndPass() {
  in_pass_ = false;
  const MutexLock lock(mutex_);
  queue_.clear();
}

void Loader::Impl::Work() {
  at::get_num_threads();  // a thread's first call sets the number for future threads
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  at::Generator random = at::detail::createCPUGenerator();
  const MutexLock lock(mutex_);
  --starting_;
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || Claimable(); };
  while (true) {
    mutex_.Await(absl::Condition(&has_work));
    if (stopped_) return;
    const std::shared_ptr<Queued> queued = Claimable();
    const size_t place = queued->claimed++;
    UnlockMutex(mutex_);
    Fill(*queued, place, random);
    LockMutex(mutex_);
    ++queued->done;
  }
}

std::shared_ptr<Queued> Loader::Impl::Claimable() const {
  for (const std::shared_ptr<Queued>& queued : queue_)
    if (queued->claimed < queued->batch.size()) return queued;
  return nullptr;
}

void Loader::Impl::Fill(Queued& queued, size_t place, at::Generator& random) {
  Seed(random, queued, place);
  queued.batch.Fill(place, dataset_, random);
}

Loader::Loader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Loader::~Loader() = default;

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(const Dataset* dataset, sampler::Sampler* sampler,
                                                       const LoaderOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(Check(options));
  LOCKSTEP_ASSIGN_OR_RETURN(auto device_copy, MakeDeviceCopy(options.device));
  if (options.pin_memory || device_copy) LOCKSTEP_RETURN_IF_ERROR(CheckPinning());
  auto impl = std::make_unique<Impl>(dataset, sampler, options, std::move(device_copy));
  LOCKSTEP_RETURN_IF_ERROR(impl->StartThreads());
  return std::unique_ptr<Loader>(new Loader(std::move(impl)));
}

absl::Status Loader::Start(int64_t epoch) { return impl_->Start(epoch); }
absl::StatusOr<std::optional<Batch>> Loader::Next() { return impl_->Next(); }
int64_t Loader::consumed() const { return impl_->consumed(); }
const std::vector<Loader::Skipped>& Loader::skipped() const { return impl_->skipped(); }
absl::Duration Loader::waited() const { return impl_->waited(); }

}  // namespace lockstep::data
