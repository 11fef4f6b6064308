#include "lockstep/checkpoint/manager/manager.h"

int main(int, char** argv) {
  const auto manager = lockstep::checkpoint::Manager::Create(argv[1], /*group=*/nullptr);
  return manager.ok() && (*manager)->LoadLatest().ok() ? 0 : 1;
}
