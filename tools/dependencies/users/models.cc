#include "lockstep/models/registry.h"

int main() { return lockstep::models::Make("resnet18").ok() ? 0 : 1; }
