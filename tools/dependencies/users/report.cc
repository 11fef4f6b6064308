#include "lockstep/launch/report/report.h"

int main() { return lockstep::launch::ReportError(absl::InternalError("the disk is full")) ? 1 : 0; }
