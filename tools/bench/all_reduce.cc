// Times all-reduce between processes of this host, through the public API: what compare.py runs for our side.
//
//   ./bazelw run //tools/bench:all_reduce -- --ranks=2 --cases=in_place/4096/float32,ordinary/26214400/bfloat16
//
// Prints a JSON line a case. Inputs are new for every call and every sum is checked; neither is timed. Calls of less
// than 4 MiB are timed in batches, each call on a tensor of its own. A batch begins at a barrier and takes as long as
// its slowest rank; the figures are medians over batches.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gflags/gflags.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/launch/spawn.h"

DEFINE_int32(ranks, 2, "processes");
DEFINE_string(cases, "in_place/4096/float32", "placement/bytes/dtype, separated by commas");
DEFINE_string(backend, "shm", "as in InitOptions::backend");
DEFINE_int32(batches, 0, "how many batches of a case are timed, after a third as many; 0: as the size has it");
DEFINE_int32(nnodes, 1, "hosts; start this program on each, with --ranks of them there");
DEFINE_int32(node_rank, 0, "which of the hosts this is");
DEFINE_string(master_addr, "", "with --nnodes: the address of the first host");
DEFINE_int32(master_port, 0, "with --nnodes: a free port there");

namespace lockstep {
namespace {

struct Case {
  std::string name;
  bool in_place = false;
  int64_t bytes = 0;
  at::ScalarType dtype = at::kFloat;

  int64_t batch() const { return std::min<int64_t>(64, std::max<int64_t>(1, (int64_t{4} << 20) / bytes)); }
  int64_t batches() const {
    if (FLAGS_batches > 0) return FLAGS_batches;
    return std::min<int64_t>(100, std::max<int64_t>(5, (int64_t{512} << 20) / (bytes * batch())));
  }
  int64_t warm_up() const { return FLAGS_batches > 0 ? (FLAGS_batches + 2) / 3 : std::min<int64_t>(batches(), 5); }
};

// A rank has seven tensors' bytes at a time, for large ones.
constexpr int64_t kMostBytes = int64_t{16} << 30;

absl::StatusOr<Case> ParseCase(absl::string_view text) {
  const std::vector<std::string> fields = absl::StrSplit(text, '/');
  Case parsed;
  parsed.name = std::string(text);
  if (fields.size() != 3 || !absl::SimpleAtoi(fields[1], &parsed.bytes) || parsed.bytes < 4 ||
      parsed.bytes > kMostBytes || (fields[0] != "in_place" && fields[0] != "ordinary") ||
      (fields[2] != "float32" && fields[2] != "bfloat16")) {
    return FlagError("cases", FLAGS_cases,
                     absl::StrCat("PLACEMENT/BYTES/DTYPE with a comma between two; PLACEMENT is in_place or ordinary, "
                                  "BYTES is from 4 to ",
                                  kMostBytes, ", DTYPE is float32 or bfloat16"));
  }
  parsed.in_place = fields[0] == "in_place";
  parsed.dtype = fields[2] == "float32" ? at::kFloat : at::kBFloat16;
  return parsed;
}

double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double Median(const at::Tensor& values) { return values.median().item<double>(); }

// Whole numbers that are exact in every dtype, also summed over some ranks; they depend on rank, element and batch.
int64_t Offset(int64_t batch, int rank) { return batch % 5 + rank; }

absl::Status RunCase(comm::ProcessGroup& group, const Case& spec) {
  const int64_t count = spec.bytes / static_cast<int64_t>(c10::elementSize(spec.dtype));
  const at::Tensor base = at::arange(count, at::kLong).remainder(13).to(spec.dtype);
  std::vector<at::Tensor> tensors;
  for (int64_t i = 0; i < spec.batch(); ++i) {
    absl::StatusOr<at::Tensor> shared = at::Tensor();
    if (spec.in_place) shared = group.AllocateShared({count}, spec.dtype);
    if (!shared.ok()) return shared.status();
    tensors.push_back(spec.in_place ? *shared : at::empty({count}, spec.dtype));
  }
  const int64_t warm_up = spec.warm_up();
  at::Tensor seconds = at::zeros({spec.batches()}, at::kDouble), cpu = at::zeros({1}, at::kDouble);
  for (int64_t batch = -warm_up; batch < spec.batches(); ++batch) {
    for (at::Tensor& tensor : tensors) tensor.copy_(base).add_(Offset(batch + warm_up, group.rank()));
    LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
    const double cpu_begin = CpuSeconds();
    const auto begin = std::chrono::steady_clock::now();
    for (const at::Tensor& tensor : tensors) LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(tensor));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (batch >= 0) {
      seconds[batch] = took.count() / static_cast<double>(spec.batch());
      cpu += CpuSeconds() - cpu_begin;
    }
    int64_t offsets = 0;
    for (int r = 0; r < group.size(); ++r) offsets += Offset(batch + warm_up, r);
    const at::Tensor expected = base * group.size() + offsets;
    for (const at::Tensor& tensor : tensors) {
      if (!at::equal(tensor, expected)) return absl::DataLossError(absl::StrCat(spec.name, ": a sum is wrong"));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(seconds, comm::ReduceOp::kMax));
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(cpu, comm::ReduceOp::kSum));
  if (group.rank() == 0) {
    const double reduced = static_cast<double>(spec.bytes * spec.batch() * spec.batches());
    std::cout << nlohmann::json({{"case", spec.name},
                                 {"seconds", Median(seconds)},
                                 {"cpu_ns_per_byte", cpu.item<double>() * 1e9 / reduced}})
              << std::endl;
  }
  return absl::OkStatus();
}

// Measures how much a rank copies a second while all others copy too.
absl::Status RunMemcpy(comm::ProcessGroup& group) {
  constexpr size_t kBytes = size_t{25} << 20;
  const std::vector<char> from(kBytes, 'x');
  std::vector<char> to(kBytes);
  at::Tensor seconds = at::zeros({20}, at::kDouble);
  for (int i = 0; i < 20; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
    const auto begin = std::chrono::steady_clock::now();
    memcpy(to.data(), from.data(), kBytes);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    seconds[i] = took.count() + (to[kBytes / 2] == 'x' ? 0 : 1);
  }
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(seconds, comm::ReduceOp::kMax));
  if (group.rank() == 0) {
    std::cout << nlohmann::json({{"case", "memcpy"}, {"seconds", Median(seconds)}, {"bytes", kBytes}}) << std::endl;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Case>> Cases() {
  std::vector<Case> cases;
  for (const absl::string_view text : absl::StrSplit(FLAGS_cases, ',')) {
    LOCKSTEP_ASSIGN_OR_RETURN(cases.emplace_back(), ParseCase(text));
  }
  return cases;
}

absl::Status RunRank(const std::vector<Case>& cases) {
  at::set_num_threads(1);
  comm::InitOptions options;
  options.backend = FLAGS_backend;
  options.timeout = absl::Minutes(2);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(options));
  LOCKSTEP_RETURN_IF_ERROR(RunMemcpy(*group));
  std::optional<Progress> progress;
  if (group->rank() == 0) progress.emplace("all_reduce");
  for (const Case& spec : cases) {
    if (progress) progress->Doing(spec.name);
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus(spec.name, [&] { ThrowIfError(RunCase(*group, spec)); }));
  }
  return absl::OkStatus();
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"ranks", static_cast<double>(FLAGS_ranks), 1, 256},
                                        {"batches", static_cast<double>(FLAGS_batches), 0, 1000000},
                                        {"nnodes", static_cast<double>(FLAGS_nnodes), 1, 256}}));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Case> cases, Cases());
  launch::SpawnOptions hosts;
  hosts.nnodes = FLAGS_nnodes;
  hosts.node_rank = FLAGS_node_rank;
  hosts.master_addr = FLAGS_master_addr;
  hosts.master_port = FLAGS_master_port;
  return launch::Spawn(
      FLAGS_ranks, [&](int) { return RunRank(cases); }, hosts);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Times all-reduce between processes of this host and prints a JSON line a case.

  all_reduce --ranks=2 --cases=in_place/4096/float32,ordinary/26214400/bfloat16
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::Run();
  if (!status.ok()) std::cerr << absl::StrCat("all_reduce: ", status.message(), "\n");
  return lockstep::launch::ExitCode(status);
}
