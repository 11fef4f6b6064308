#include "lockstep/checkpoint/sharded/load_whole.h"

int main(int, char** argv) { return lockstep::checkpoint::LoadWhole(argv[1]).ok() ? 0 : 1; }
