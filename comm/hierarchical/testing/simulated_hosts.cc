#include "lockstep/comm/hierarchical/testing/simulated_hosts.h"

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::comm::hierarchical::testing {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

std::vector<RankIdentity> RanksOn(const std::vector<int>& hosts) {
  std::vector<RankIdentity> ranks;
  for (const int host : hosts) {
    RankIdentity identity;
    identity.rank = static_cast<int>(ranks.size());
    identity.host = identity.boot_id = absl::StrCat("host", host);
    ranks.push_back(identity);
  }
  return ranks;
}

}  // namespace

BackendContext ContextOf(const std::vector<int>& hosts, int rank) {
  BackendContext context;
  context.rank = rank;
  context.size = static_cast<int>(hosts.size());
  context.timeout = absl::Seconds(30);
  context.master_addr = "127.0.0.1";
  context.group = "world";
  context.ranks = RanksOn(hosts);
  return context;
}

absl::Status RunOn(const std::vector<int>& hosts, const std::function<void(c10d::Backend&)>& body,
                   bool meet_at_the_end) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<absl::Status> results(hosts.size());
  std::vector<BackendPtr> backends(hosts.size());  // they outlive the bodies: a connection closes at the end only
  std::vector<std::thread> threads;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] = TorchStatus(absl::StrCat("rank ", rank), [&] {
        BackendContext context = ContextOf(hosts, rank);
        context.store = store;
        const absl::StatusOr<BackendPtr> backend = FindBackend("hierarchical")->create(context);
        ThrowIfError(backend.status());
        backends[rank] = *backend;
        body(**backend);
        if (meet_at_the_end) (*backend)->barrier()->wait();
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) {
    if (!result.ok()) return result;
  }
  return absl::OkStatus();
}

}  // namespace lockstep::comm::hierarchical::testing
