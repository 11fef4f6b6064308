#include "lockstep/comm/store/store.h"

int main() {
  const auto store = lockstep::comm::Store::ConnectTcp("node0", 29600, {});
  return store.ok() && store->Set("ready", "1").ok() ? 0 : 1;
}
