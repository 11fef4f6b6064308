// Writes text with a model that train.cc, or anyone, has trained: bazel run //examples/gpt:generate -- --model=/tmp/gpt

#include <gflags/gflags.h>
#include <torch/torch.h>

#include <cstdint>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/data/tokens/load_tokenizer.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/models/transformer/causal_lm.h"
#include "lockstep/models/transformer/config.h"
#include "lockstep/models/transformer/pretrained.h"
#include "lockstep/models/transformer/text_generation.h"

DEFINE_string(model, "",
              "A folder of Hugging Face's, as --checkpoint_dir of a training is at its end, or a file step_*.pt.");
DEFINE_string(tokenizer, "bytes", "The one of the training: bytes, or the file of a sentencepiece model.");
DEFINE_string(prompt, "In the beginning ", "The beginning of the text.");
DEFINE_int64(tokens, 200, "Tokens to write.");
DEFINE_double(temperature, 0.8, "Divides the logits. 0: the likeliest token always.");
DEFINE_int64(top_k, 0, "Draw among so many of the likeliest tokens. 0: all.");
DEFINE_double(top_p, 1, "Draw among the likeliest tokens whose probabilities add up to this.");
DEFINE_int64(seed, 0, "The seed of the draws.");

namespace lockstep::examples {
namespace {

absl::StatusOr<models::CausalLM> Load(const std::string& path) {
  if (!absl::EndsWith(path, ".pt")) return models::LoadPretrained(path, at::kFloat);
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Value saved, checkpoint::Load(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string json, checkpoint::GetString(saved, "config"));
  LOCKSTEP_ASSIGN_OR_RETURN(const models::CausalLMConfig config, models::ParseConfig(json));
  LOCKSTEP_ASSIGN_OR_RETURN(models::CausalLM net, models::MakeCausalLM(config));
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Value state_dict, checkpoint::GetDict(saved, "state_dict"));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(checkpoint::LoadStateDict(*net, state_dict), path));
  return net;
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"temperature", FLAGS_temperature, 0}, {"top_k", FLAGS_top_k * 1.0, 0}}));
  if (FLAGS_model.empty()) return FlagError("model", "", "a folder or a file");
  LOCKSTEP_ASSIGN_OR_RETURN(const auto tokenizer, data::LoadTokenizer(FLAGS_tokenizer));
  LOCKSTEP_ASSIGN_OR_RETURN(models::CausalLM net, Load(FLAGS_model));
  const models::SamplingOptions options = {.temperature = FLAGS_temperature,
                                           .top_k = FLAGS_top_k,
                                           .top_p = FLAGS_top_p,
                                           .seed = static_cast<uint64_t>(FLAGS_seed),
                                           .max_new_tokens = FLAGS_tokens};
  return models::GenerateText(net, *tokenizer, FLAGS_prompt, options, std::cout);
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  const lockstep::ProgramUsage usage = {.source = __FILE__, .description = "Writes text with a trained GPT."};
  return ExampleMain(argc, argv, usage, {"tokens"}, Run);
}
