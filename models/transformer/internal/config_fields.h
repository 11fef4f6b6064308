// The names that errors of a configuration call its fields by.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_CONFIG_FIELDS_H_
#define LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_CONFIG_FIELDS_H_

#include <string>

#include "absl/status/status.h"
#include "lockstep/models/transformer/config.h"

namespace lockstep::models::internal {

// CausalLMConfig's own names, or those in the config.json of a family. The other fields have the same names in both.
struct FieldNames {
  const char *hidden_size, *layers, *heads, *intermediate_size, *positions, *norm_eps, *attention_dropout, *activation;
};

// InvalidArgument: no family has this name.
absl::Status CheckModelType(const std::string& model_type);

// The public CheckConfig(), whose errors call fields by `names`.
absl::Status CheckConfig(const CausalLMConfig& config, const FieldNames& names);

}  // namespace lockstep::models::internal

#endif  // LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_CONFIG_FIELDS_H_
