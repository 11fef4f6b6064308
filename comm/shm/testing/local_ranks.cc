#include "lockstep/comm/shm/testing/local_ranks.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"

namespace lockstep::comm::shm::testing {
namespace {

struct Map {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
};

}  // namespace

Exchange LocalExchange() {
  auto map = std::make_shared<Map>();
  Exchange exchange;
  exchange.set = [map](const std::string& key, const std::string& value) {
    std::lock_guard<std::mutex> lock(map->mutex);
    map->values[key] = value;
    map->changed.notify_all();
    return absl::OkStatus();
  };
  exchange.get = [map](const std::string& key, absl::Time deadline) -> absl::StatusOr<std::string> {
    std::unique_lock<std::mutex> lock(map->mutex);
    if (!map->changed.wait_until(lock, absl::ToChronoTime(deadline), [&] { return map->values.count(key) != 0; })) {
      return absl::DeadlineExceededError(absl::StrCat("no key ", key));
    }
    return map->values[key];
  };
  return exchange;
}

std::vector<absl::Status> RunLocalRanks(int size, const std::function<absl::Status(Communicator&)>& body) {
  const Exchange exchange = LocalExchange();
  std::vector<absl::Status> results(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options;
      options.rank = rank;
      options.size = size;
      options.exchange = exchange;
      options.deadline = absl::Now() + absl::Seconds(30);
      options.heap_bytes = size_t{64} << 20;
      const auto communicator = Communicator::Create(options);
      results[rank] = communicator.ok() ? body(**communicator) : communicator.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

absl::Status RunLocalRanksOk(int size, const std::function<absl::Status(Communicator&)>& body) {
  const std::vector<absl::Status> results = RunLocalRanks(size, body);
  for (int rank = 0; rank < size; ++rank) {
    if (!results[rank].ok()) return Annotate(results[rank], absl::StrCat("rank ", rank, " of ", size));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::comm::shm::testing
