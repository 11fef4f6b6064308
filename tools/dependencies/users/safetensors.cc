#include "lockstep/checkpoint/safetensors/safetensors.h"

int main(int, char** argv) { return lockstep::checkpoint::LoadSafetensors(argv[1]).ok() ? 0 : 1; }
