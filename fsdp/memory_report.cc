#include "lockstep/fsdp/memory_report.h"

#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/fsdp/internal/parameter_memory.h"
#include "lockstep/fsdp/internal/sharded_module.h"

namespace lockstep::fsdp {
namespace {

using checkpoint::Value;

int64_t BytesOf(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// The bytes of all tensors in a value.
int64_t BytesOf(const Value& value) {
  if (value.is_tensor()) return BytesOf(value.tensor());
  int64_t bytes = 0;
  if (value.is_dict()) {
    for (const Value::Entry& entry : value.entries()) bytes += BytesOf(entry.second);
  } else if (value.is_list() || value.is_tuple()) {
    for (const Value& item : value.items()) bytes += BytesOf(item);
  }
  return bytes;
}

// All but the optimizer's state and the peak.
MemoryReport ReportOf(const internal::ShardedModule& sharded) {
  const internal::ParameterMemory::Bytes bytes = sharded.memory().bytes();
  MemoryReport report;
  report.rank = sharded.group()->rank();
  report.shards = bytes.shards;
  report.pages = bytes.pages;
  report.gradients = sharded.gradient_bytes().sums + sharded.gradient_bytes().copies;
  report.units = bytes.buffers;
  return report;
}

// The most resident memory of the process; on a GPU, the most memory of tensors there.
int64_t PeakOn(c10::Device device) {
  if (!device.is_cpu()) {
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 9)
    return c10::getDeviceAllocator(device.type())->getDeviceStats(device.index()).allocated_bytes[0].peak;
#else
    return 0;
#endif
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

std::string Part(const char* name, int64_t bytes) {
  if (bytes == 0) return "";
  return absl::StrFormat("%s %.1f MiB, ", name, static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::string MemoryReport::ToString() const {
  return absl::StrFormat("rank %d: %s%s%s%s%sat peak %.1f MiB", rank, Part("shards", shards),
                         Part("shared pages", pages), Part("gradients", gradients), Part("optimizer", optimizer),
                         Part("units", units), static_cast<double>(peak) / (1 << 20));
}

namespace internal {

MemoryReport EstimateMemory(const ShardedModule& sharded, int states) {
  MemoryReport report = ReportOf(sharded);
  for (const at::Tensor& shard : sharded.shards()) report.optimizer += states * BytesOf(shard);
  int64_t whole = 0;
  for (const ShardedUnit* unit : sharded.units()) {
    if (!unit->parameters[0].tensor.requires_grad()) continue;
    int64_t gradients = 0;
    for (const NamedTensor& parameter : unit->parameters) gradients += BytesOf(parameter.tensor);
    // A chunk that has arrived. With one chunk, the unit has released its gradients by then.
    const int64_t received = report.pages > 0 ? 0 : unit->chunk_bytes();
    whole = std::max(whole, unit->layout.chunks > 1 ? gradients + received : std::max(gradients, received));
  }
  if (report.pages == 0) {
    // Autograd has the first unit's gradients before the next unit's are reduced, if it does not need the first one's
    // parameters in between.
    for (const NamedTensor& parameter : sharded.units()[0]->parameters) whole += BytesOf(parameter.tensor);
  }
  // By the time of the optimizer's step, no unit has gradients.
  const ShardReducer::GradientBytes gradients = sharded.gradient_bytes();
  report.peak = report.shards + report.pages + report.optimizer + report.units + gradients.sums +
                std::max(whole, gradients.copies);
  return report;
}

absl::StatusOr<MemoryReport> CountMemory(const ShardedModule& sharded, const torch::optim::Optimizer& optimizer) {
  MemoryReport report = ReportOf(sharded);
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, checkpoint::OptimizerStateDict(optimizer));
  report.optimizer = BytesOf(*state_dict.Find("state"));
  report.units = sharded.memory().buffers().allocated_bytes();
  report.peak = PeakOn(sharded.parameters()[0].device());
  return report;
}

}  // namespace internal
}  // namespace lockstep::fsdp
