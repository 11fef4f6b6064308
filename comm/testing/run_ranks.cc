#include "lockstep/comm/testing/run_ranks.h"

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/comm/testing/thread_backend.h"

namespace lockstep::comm::testing {

std::vector<absl::Status> RunRanks(int world_size, const std::function<absl::Status(ProcessGroup& group)>& body,
                                   absl::Duration timeout) {
  ThreadHub hub(world_size, timeout);
  auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(absl::ToChronoMilliseconds(timeout));
  std::vector<absl::Status> results(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = internal::GroupAccess::FromBackends(store, {{c10::DeviceType::CPU, MakeThreadBackend(hub, rank)}});
      absl::Status& result = results[rank];
      const absl::Status thrown = TorchStatus("", [&] { result = body(*group); });
      result.Update(thrown);
      hub.Leave(rank, result.ok() ? "it returned" : std::string(result.message()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

absl::Status RunRanksOk(int world_size, const std::function<void(ProcessGroup& group)>& body) {
  const std::vector<absl::Status> results = RunRanks(world_size, [&](ProcessGroup& group) {
    body(group);
    return absl::OkStatus();
  });
  for (int rank = 0; rank < world_size; ++rank) {
    if (!results[rank].ok()) return Annotate(results[rank], absl::StrCat("rank ", rank));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::comm::testing
