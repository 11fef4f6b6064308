// Where parameters are in a test, and over which backend; a net, and ranks.

#ifndef LOCKSTEP_FSDP_TESTING_SETTINGS_H_
#define LOCKSTEP_FSDP_TESTING_SETTINGS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/fsdp/options.h"

namespace lockstep::fsdp::testing {

struct Setting {
  const char* name;
  const char* backend;
  Residency residency;

  Options options() const {
    Options options;
    options.residency = residency;
    return options;
  }
};

// The suite's name is before each of their names.
inline auto AllSettings() {
  return ::testing::Values(Setting{"SharedPages", "shm", Residency::kAuto},
                           Setting{"PagedOverShm", "shm", Residency::kPaged},
                           Setting{"PagedOverGloo", "gloo", Residency::kAuto});
}

inline std::string NameOf(const ::testing::TestParamInfo<Setting>& setting) { return setting.param.name; }

// The statuses by rank. Waits end after 20 s.
inline std::vector<absl::Status> OnRanks(int ranks, const std::string& backend,
                                         const std::function<absl::Status(comm::ProcessGroup&)>& test) {
  comm::InitOptions options;
  options.backend = backend;
  options.timeout = absl::Seconds(20);
  return comm::testing::InitRanks(options, ranks, test);
}

// OnRanks() with rank r on the network host host_of[r], and a barrier behind the test.
inline std::vector<absl::Status> OnHosts(const std::vector<int>& host_of,
                                         const std::function<absl::Status(comm::ProcessGroup&)>& test,
                                         const std::string& backend = "auto") {
  const auto hosts = comm::testing::NetworkHosts::Create(*std::max_element(host_of.begin(), host_of.end()) + 1);
  if (!hosts.ok()) return {hosts.status()};
  comm::InitOptions options;
  options.backend = backend;
  options.timeout = absl::Seconds(30);
  return comm::testing::InitRanksOn(**hosts, host_of, options, [&](comm::ProcessGroup& group) {
    const absl::Status status = test(group);
    return status.ok() ? group.Barrier() : status;
  });
}

// Returns what `test` returns on rank 0; rank 1 must return OK or the same error.
inline absl::Status OnTwoRanks(const std::string& backend,
                               const std::function<absl::Status(comm::ProcessGroup&)>& test) {
  return OnRanks(2, backend, test)[0];
}

// A net of one weight, whose gradient is its input.
struct ScaleImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return (weight * x).sum(); }
  at::Tensor weight = register_parameter("weight", at::ones({50}));
  at::Tensor other = register_parameter("other", at::ones({3}));
};
TORCH_MODULE(Scale);

}  // namespace lockstep::fsdp::testing

#endif  // LOCKSTEP_FSDP_TESTING_SETTINGS_H_
