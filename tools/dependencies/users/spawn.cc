#include "lockstep/launch/spawn.h"

int main() {
  return lockstep::launch::Spawn(/*nprocs=*/2, [](int) { return absl::OkStatus(); }).ok() ? 0 : 1;
}
