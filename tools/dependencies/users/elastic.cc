#include "lockstep/elastic/world.h"

int main() {
  const auto world = lockstep::elastic::World::Join();
  int64_t step = 0;
  return world.ok() && (*world)->Keep("step", &step).ok() ? 0 : 1;
}
