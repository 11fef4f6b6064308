#include "lockstep/checkpoint/internal/in_threads.h"

#include <system_error>
#include <thread>
#include <vector>

namespace lockstep::checkpoint::internal {

void InThreads(size_t count, const std::function<void()>& work) {
  std::vector<std::thread> others;
  try {
    while (others.size() + 1 < count) others.emplace_back(work);
  } catch (const std::system_error&) {
    // A limit on the processes of a user or a container: those that there are do all of it.
  }
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace lockstep::checkpoint::internal
