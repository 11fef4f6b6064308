// Runs code: calls each instruction's operator through the dispatcher, in order.

#ifndef LOCKSTEP_MODELS_EXPORTED_RUN_H_
#define LOCKSTEP_MODELS_EXPORTED_RUN_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "lockstep/models/exported/code.h"

namespace lockstep::models::exported {

// Takes the code's inputs from `stack`, and leaves its outputs there. Each value is freed after its last use. Records
// autograd if it is on. Throws the exceptions of the operators; c10::Error gets the node's place as its context.
// Requires: as many inputs as the code has.
void Run(const Code& code, torch::jit::Stack& stack);

// Gives the buffer the value, in new memory, and with it the version by which graphs notice writes: they may have saved
// an alias with the old value. Drops the value's history.
void AssignBuffer(const at::Tensor& buffer, const at::Tensor& value);

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_RUN_H_
