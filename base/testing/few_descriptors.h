// Descriptors that the system refuses, for tests.

#ifndef LOCKSTEP_BASE_TESTING_FEW_DESCRIPTORS_H_
#define LOCKSTEP_BASE_TESTING_FEW_DESCRIPTORS_H_

#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::testing {

// While one is in scope this process can open `free` more descriptors: fewer if some above the lowest free one are
// open.
class FewDescriptors {
 public:
  explicit FewDescriptors(int free) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = UniqueFd(dup(STDERR_FILENO)).get();  // the lowest that is free
    rlimit few = before_;
    few.rlim_cur = next + free;
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace lockstep::testing

#endif  // LOCKSTEP_BASE_TESTING_FEW_DESCRIPTORS_H_
