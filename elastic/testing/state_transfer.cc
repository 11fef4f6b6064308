// Measures how fast a rank that has come gets a state of 1 GiB, by hand:
//
//   launch --standalone --nproc_per_node=4 state_transfer                  # over shared memory
//   BACKEND=gloo launch --standalone --nproc_per_node=4 state_transfer     # over TCP
//
// The state is a module's parameters and Adam's two averages, a third each. The last rank has none of it, and gets it
// from all others. For comparison, one thread writes 1 GiB to a TCP socket of the loopback interface, and another one
// reads it.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/elastic/internal/healing.h"

namespace lockstep::elastic::testing {
namespace {

using checkpoint::Value;

constexpr int64_t kBytes = int64_t{1} << 30;
constexpr int kTensors = 64, kRuns = 5;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < kTensors; ++i) {
      register_parameter(absl::StrCat("weight", i), at::ones({kBytes / 3 / 4 / kTensors}));
    }
  }
};
TORCH_MODULE(Net);

// One training.
struct State {
  State() : optimizer(net->parameters(), 0.1) {
    internal::KeptThing module, adam;
    module.shares_memory = adam.shares_memory = true;
    module.save = [this]() -> absl::StatusOr<Value> { return checkpoint::StateDict(*net); };
    module.load = [this](const Value& value) { return checkpoint::LoadStateDict(*net, value); };
    adam.save = [this] { return checkpoint::OptimizerStateDict(optimizer); };
    adam.load = [this](const Value& value) {
      return checkpoint::LoadOptimizerStateDict(optimizer, value, /*copy=*/false);
    };
    kept.Add("net", module).IgnoreError();
    kept.Add("optimizer", adam).IgnoreError();
  }

  void Step() {
    for (at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::ones_like(parameter);
    optimizer.step();
    optimizer.zero_grad();
  }

  Net net;
  torch::optim::Adam optimizer;
  internal::KeptState kept;
};

// Seconds.
absl::StatusOr<double> Once(comm::ProcessGroup& group, State* healthy) {
  const int last = group.size() - 1;
  internal::Healing healing;
  for (int rank = 0; rank < last; ++rank) healing.sources.push_back(rank);
  healing.receivers = {last};
  healing.newest = 1;
  std::unique_ptr<State> fresh;
  if (!healthy) fresh = std::make_unique<State>();
  LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
  const absl::Time start = absl::Now();
  LOCKSTEP_RETURN_IF_ERROR(internal::Heal(group, healing, /*in_place=*/true, healthy ? &healthy->kept : &fresh->kept));
  return absl::ToDoubleSeconds(absl::Now() - start);
}

double SocketCopy() {
  const UniqueFd server = ListenAt(Resolve("127.0.0.1", 0)->front()), client(socket(AF_INET, SOCK_STREAM, 0));
  const SocketAddress address = BoundAddress(server.get());
  const bool connected = connect(client.get(), address.get(), address.size) == 0;
  const UniqueFd reader(connected ? accept(server.get(), nullptr, nullptr) : -1);
  if (!reader.valid()) return 0;
  std::string source(kBytes, 'x'), target(kBytes, 'y');
  const absl::Time start = absl::Now();
  std::thread writer([&] {
    for (int64_t at = 0; at < kBytes;) {
      const ssize_t n = write(client.get(), source.data() + at, std::min<int64_t>(kBytes - at, 4 << 20));
      if (n <= 0) return;
      at += n;
    }
  });
  for (int64_t at = 0; at < kBytes;) {
    const ssize_t n = read(reader.get(), target.data() + at, std::min<int64_t>(kBytes - at, 4 << 20));
    if (n <= 0) break;
    at += n;
  }
  writer.join();
  return absl::ToDoubleSeconds(absl::Now() - start);
}

absl::Status Measure() {
  comm::InitOptions options;
  if (const char* backend = getenv("BACKEND")) options.backend = backend;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(options));
  at::set_num_threads(1);
  const bool comes = group->rank() == group->size() - 1;
  std::unique_ptr<State> healthy;
  if (!comes) {
    healthy = std::make_unique<State>();
    healthy->Step();
  }
  for (int run = 0; run < kRuns; ++run) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double seconds, Once(*group, healthy.get()));
    if (comes) printf("healed 1 GiB in %.3f s\n", seconds);
  }
  LOCKSTEP_RETURN_IF_ERROR(group->Barrier());
  for (int run = 0; run < kRuns; ++run) {
    if (comes) printf("socket copied 1 GiB in %.3f s\n", SocketCopy());
    LOCKSTEP_RETURN_IF_ERROR(group->Barrier());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::elastic::testing

int main() {
  absl::Status status;
  status.Update(lockstep::TorchStatus("", [&] { status.Update(lockstep::elastic::testing::Measure()); }));
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
