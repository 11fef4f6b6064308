#include "lockstep/comm/watch/watch.h"

int main() { return lockstep::comm::Watch::Create({}).ok() ? 0 : 1; }
