#include "lockstep/base/status.h"

int main(int argc, char**) {
  const absl::Status status = argc > 1 ? absl::InvalidArgumentError("too many arguments") : absl::OkStatus();
  return lockstep::Annotate(status, "status").ok() ? 0 : 1;
}
