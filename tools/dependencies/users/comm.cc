#include "lockstep/comm/process_group.h"

int main() {
  const auto group = lockstep::comm::InitProcessGroup({});
  return group.ok() && (*group)->Barrier().ok() ? 0 : 1;
}
