#include "lockstep/checkpoint/checkpoint.h"

int main(int, char** argv) { return lockstep::checkpoint::Load(argv[1]).ok() ? 0 : 1; }
