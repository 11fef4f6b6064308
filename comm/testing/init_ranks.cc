#include "lockstep/comm/testing/init_ranks.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::comm::testing {
namespace {

std::string NewPath() {
  static std::atomic<int> made{0};
  const char* directory = getenv("TEST_TMPDIR");
  return absl::StrCat(directory ? directory : "/tmp", "/ranks_", getpid(), "_", made.fetch_add(1));
}

using Body = std::function<absl::Status(ProcessGroup& group)>;

// Each rank's thread does its part within inside(rank, part).
std::vector<absl::Status> Run(const InitOptions& options, int world_size, const Body& body,
                              const std::function<void(int rank, const std::function<void()>& part)>& inside) {
  std::vector<std::unique_ptr<ProcessGroup>> groups(world_size);
  std::vector<absl::Status> results(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto part = [&, rank] {
      InitOptions own = options;
      own.rank = rank;
      own.world_size = world_size;
      auto group = InitProcessGroup(own);
      results[rank] = group.status();
      if (!group.ok()) return;
      groups[rank] = *std::move(group);
      const absl::Status thrown = TorchStatus("", [&] { results[rank] = body(*groups[rank]); });
      results[rank].Update(thrown);
    };
    threads.emplace_back([&inside, rank, part] { inside(rank, part); });
  }
  for (std::thread& thread : threads) thread.join();
  // At the same time, as processes end, since a group may wait for the others' part in its last calls.
  std::vector<std::thread> ends;
  for (std::unique_ptr<ProcessGroup>& group : groups) ends.emplace_back([&group] { group.reset(); });
  for (std::thread& end : ends) end.join();
  return results;
}

}  // namespace

std::vector<absl::Status> InitRanks(const InitOptions& options, int world_size, const Body& body) {
  const std::string path = NewPath();
  InitOptions meeting = options;
  meeting.init_method = absl::StrCat("file://", path);
  std::vector<absl::Status> results =
      Run(meeting, world_size, body, [](int /*rank*/, const std::function<void()>& part) { part(); });
  unlink(path.c_str());
  return results;
}

std::vector<absl::Status> InitRanksOn(const NetworkHosts& hosts, const std::vector<int>& host_of,
                                      const InitOptions& options, const Body& body,
                                      const std::function<void(int rank)>& before) {
  InitOptions meeting = options;
  meeting.init_method = absl::StrCat("tcp://", hosts.Address(0), ":29500");
  return Run(meeting, static_cast<int>(host_of.size()), body, [&](int rank, const std::function<void()>& part) {
    hosts.Run(host_of[rank], [&] {
      if (before) before(rank);
      part();
    });
  });
}

}  // namespace lockstep::comm::testing
