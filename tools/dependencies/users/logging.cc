#include "lockstep/base/logging.h"

int main(int, char** argv) {
  google::InitGoogleLogging(argv[0]);
  LOG(INFO) << "started";
}
