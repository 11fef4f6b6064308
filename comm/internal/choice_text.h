#ifndef LOCKSTEP_COMM_INTERNAL_CHOICE_TEXT_H_
#define LOCKSTEP_COMM_INTERNAL_CHOICE_TEXT_H_

#include <map>
#include <string>

#include "lockstep/comm/backend.h"

namespace lockstep::comm::internal {

// One line that says which backends a group has, and why:
//
//   rank 0 of 2: group "world" over cpu:shm (all ranks on one host; hierarchical is for ranks on several hosts; also
//   linked: gloo)
//
// `is_auto`: the program did not name the backends. Then the line also says if the ranks could share memory but the
// program has not linked the backend for it.
std::string ChoiceText(const std::map<c10::DeviceType, BackendChoice>& choices, bool is_auto,
                       const BackendContext& context);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_CHOICE_TEXT_H_
