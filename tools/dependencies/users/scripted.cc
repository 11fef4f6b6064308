#include "lockstep/models/scripted/file.h"

int main(int, char** argv) { return lockstep::models::scripted::Load(argv[1]).ok() ? 0 : 1; }
