// Saves and loads a checkpoint and prints a JSON line a measurement. Part of tools/bench:compare; by itself:
//
//   ./bazelw run //tools/bench:checkpoint -- --directory=/data [--case=save,load] [--mebibytes=1024] [--repeat=3]

#include "lockstep/checkpoint/checkpoint.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/async_saver.h"
#include "lockstep/checkpoint/value.h"
#include "nlohmann/json.hpp"

DEFINE_string(directory, "", "where the files go; must be on the disk to be measured");
DEFINE_string(case, "save,save_unsynced,load,async_stall,raw_o_direct", "which to measure");
DEFINE_int64(mebibytes, 1024, "the size of the tensors together; at most half of this machine's memory");
DEFINE_int32(tensors, 64, "their number");
DEFINE_int32(repeat, 3, "how often; figures are medians");

namespace lockstep {
namespace {

using checkpoint::Value;

Value MakeStateDict() {
  Value state_dict = Value::OrderedDict();
  const int64_t count = (FLAGS_mebibytes << 20) / 4 / FLAGS_tensors;
  for (int i = 0; i < FLAGS_tensors; ++i) {
    at::Tensor tensor = at::empty({count}, at::kInt);
    int32_t* const values = tensor.data_ptr<int32_t>();
    // Any bytes that do not repeat.
    uint32_t state = i + 1;
    for (int64_t j = 0; j < count; ++j) values[j] = static_cast<int32_t>(state = state * 1664525 + 1013904223);
    state_dict.Set(absl::StrCat("layer", i, ".weight"), tensor);
  }
  return state_dict;
}

// A loaded checkpoint is in memory beside the saved one.
double MostMebibytes() {
  const double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return std::floor(bytes / 2 / (1 << 20));
}

// The most that this process has taken since ForgetPeak, in bytes.
int64_t Peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

struct Measured {
  std::vector<double> seconds;
  int64_t extra_bytes = 0;
};

absl::StatusOr<Measured> Measure(absl::string_view name, Progress& progress, const std::function<absl::Status()>& work,
                                 const std::function<void()>& afterwards) {
  Measured measured;
  for (int i = 0; i < FLAGS_repeat; ++i) {
    progress.Doing(absl::StrCat(name, ", ", i + 1, " of ", FLAGS_repeat));
    ForgetPeak();
    const int64_t before = Peak();
    const absl::Time start = absl::Now();
    LOCKSTEP_RETURN_IF_ERROR(work());
    measured.seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
    measured.extra_bytes = std::max(measured.extra_bytes, Peak() - before);
    afterwards();
  }
  std::sort(measured.seconds.begin(), measured.seconds.end());
  return measured;
}

void Print(const std::string& name, const Measured& measured) {
  std::cout << nlohmann::json({{"case", name},
                               {"seconds", measured.seconds[measured.seconds.size() / 2]},
                               {"extra_bytes", measured.extra_bytes}})
            << std::endl;
}

// Writes blocks of 4 MiB past the page cache, one after another: the disk's own speed.
absl::Status WriteRaw(const std::string& path) {
  constexpr size_t kBlock = size_t{4} << 20;
  const std::unique_ptr<char, void (*)(void*)> block(static_cast<char*>(std::aligned_alloc(4096, kBlock)), &std::free);
  std::fill_n(block.get(), kBlock, 1);
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0666));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": open with O_DIRECT"));
  for (int64_t left = FLAGS_mebibytes << 20; left > 0; left -= kBlock) {
    if (write(file.get(), block.get(), kBlock) != static_cast<ssize_t>(kBlock))
      return absl::ErrnoToStatus(errno, "write");
  }
  return fsync(file.get()) == 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "fsync");
}

absl::Status MeasureSaving(const std::string& name, const Value& value, const std::string& path, Progress& progress) {
  checkpoint::SaveOptions options;
  options.sync = name == "save";
  const auto measured = Measure(
      name, progress, [&] { return checkpoint::Save(path, value, options); },
      [&] {
        unlink(path.c_str());
        sync();
      });
  LOCKSTEP_RETURN_IF_ERROR(measured.status());
  Print(name, *measured);
  return absl::OkStatus();
}

absl::Status MeasureLoading(const Value& value, const std::string& path, Progress& progress) {
  progress.Doing("saving what is to be loaded");
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::Save(path, value));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::Load(path).status());  // brings it into the page cache
  Value loaded;
  const auto measured = Measure(
      "load", progress,
      [&]() -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(loaded, checkpoint::Load(path));
        return absl::OkStatus();
      },
      [&] { loaded = Value(); });
  LOCKSTEP_RETURN_IF_ERROR(measured.status());
  Measured beyond_tensors = *measured;
  beyond_tensors.extra_bytes -= FLAGS_mebibytes << 20;
  Print("load", beyond_tensors);
  return absl::OkStatus();
}

// How long a save in the background keeps its caller.
absl::Status MeasureAsyncStall(const Value& value, const std::string& path, Progress& progress) {
  checkpoint::AsyncSaver saver;
  absl::Status saved;
  const auto measured = Measure(
      "async_stall", progress, [&] { return saver.Save(path, value); },
      [&] {
        saved.Update(saver.Wait());
        unlink(path.c_str());
        sync();
      });
  LOCKSTEP_RETURN_IF_ERROR(measured.status());
  LOCKSTEP_RETURN_IF_ERROR(saved);
  Print("async_stall", *measured);
  return absl::OkStatus();
}

absl::Status MeasureRaw(const std::string& path, Progress& progress) {
  const auto measured = Measure(
      "raw_o_direct", progress, [&] { return WriteRaw(path); }, [] { sync(); });
  LOCKSTEP_RETURN_IF_ERROR(measured.status());
  Print("raw_o_direct", *measured);
  return absl::OkStatus();
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"mebibytes", static_cast<double>(FLAGS_mebibytes), 1, MostMebibytes()},
                                        {"tensors", static_cast<double>(FLAGS_tensors), 1, 100000},
                                        {"repeat", static_cast<double>(FLAGS_repeat), 1, 10000}}));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<std::string> cases,
      FlagItems("case", FLAGS_case, {"save", "save_unsynced", "load", "async_stall", "raw_o_direct"}));
  if (FLAGS_directory.empty()) return absl::InvalidArgumentError("--directory: name a folder on the disk to measure");
  const std::string path = absl::StrCat(FLAGS_directory, "/lockstep_benchmark.pt");
  const auto remove = absl::MakeCleanup([&] { unlink(path.c_str()); });
  Progress progress("checkpoint");
  progress.Doing("making the tensors");
  LOCKSTEP_ASSIGN_OR_RETURN(const Value value, TorchStatusOr("the tensors", MakeStateDict));
  for (const std::string& name : cases) {
    if (name == "save" || name == "save_unsynced") {
      LOCKSTEP_RETURN_IF_ERROR(MeasureSaving(name, value, path, progress));
    } else if (name == "load") {
      LOCKSTEP_RETURN_IF_ERROR(MeasureLoading(value, path, progress));
    } else if (name == "async_stall") {
      LOCKSTEP_RETURN_IF_ERROR(MeasureAsyncStall(value, path, progress));
    } else {
      LOCKSTEP_RETURN_IF_ERROR(MeasureRaw(path, progress));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Saves and loads a checkpoint and prints a JSON line a measurement.

  checkpoint --directory=/data --case=save,load --mebibytes=1024
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::Run();
  if (!status.ok()) std::cerr << "checkpoint: " << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}
