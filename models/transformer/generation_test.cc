#include "lockstep/models/transformer/generation.h"

#include <ATen/ATen.h>

#include <limits>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/models/transformer/testing/tiny.h"

namespace lockstep::models {
namespace {

using Text = std::vector<int64_t>;

CausalLM Make(const CausalLMConfig& config) {
  at::manual_seed(1);
  CausalLM net(config);
  testing::Disturb(*net);
  return net;
}

Text Generated(CausalLM& net, const Text& prompt, const SamplingOptions& options) {
  auto text = Generate(net, prompt, options);
  ThrowIfError(text.status());
  return *text;
}

SamplingOptions Options(double temperature, int64_t max_new_tokens) {
  SamplingOptions options;
  options.temperature = temperature;
  options.max_new_tokens = max_new_tokens;
  return options;
}

// Without a cache: the whole context at each token.
Text Slowly(CausalLM& net, Text text, const SamplingOptions& options) {
  const at::NoGradGuard no_grad;
  at::Generator random = at::detail::createCPUGenerator(options.seed);
  const int64_t most = net->config().max_position_embeddings, prompt = text.size();
  int64_t begin = 0;
  while (static_cast<int64_t>(text.size()) < prompt + options.max_new_tokens) {
    if (static_cast<int64_t>(text.size()) - begin > most) begin = text.size() - most / 2;
    const at::Tensor ids = at::tensor(Text(text.begin() + begin, text.end())).unsqueeze(0);
    text.push_back(SampleToken(net(ids)[0][-1], options, random));
  }
  return Text(text.begin() + prompt, text.end());
}

TEST(Generate, GivesTheTextThatIsComputedWithoutACache) {
  for (const CausalLMConfig& config : testing::TinyConfigs()) {
    CausalLM net = Make(config);
    for (const double temperature : {0.0, 1.0}) {
      const SamplingOptions options = Options(temperature, 60);  // the context moves on twice
      EXPECT_EQ(Generated(net, {5, 3, 8}, options), Slowly(net, {5, 3, 8}, options)) << config.model_type;
    }
  }
}

TEST(Generate, TakesAPromptThatIsLongerThanTheContext) {
  CausalLM net = Make(testing::TinyConfigs()[0]);
  Text prompt(100, 7);
  prompt.back() = 2;
  EXPECT_EQ(Generated(net, prompt, Options(0, 5)),
            Generated(net, Text(prompt.end() - 12, prompt.end()), Options(0, 5)));
}

TEST(Generate, DependsOnItsSeedAndNotOnTheDefaultGenerator) {
  CausalLM net = Make(testing::TinyConfigs()[1]);
  SamplingOptions options = Options(1, 30);
  at::manual_seed(9);
  const double expected = at::rand({}).item<double>();
  at::manual_seed(9);
  const Text text = Generated(net, {1}, options);
  EXPECT_EQ(at::rand({}).item<double>(), expected);
  EXPECT_EQ(Generated(net, {1}, options), text);
  options.seed = 1;
  EXPECT_NE(Generated(net, {1}, options), text);
}

TEST(Generate, UsesNoDropoutAndRestoresTraining) {
  CausalLMConfig config = testing::TinyConfigs()[0];
  config.resid_pdrop = 0.5;
  CausalLM net = Make(config);
  const Text text = Generated(net, {1}, Options(0, 10));
  EXPECT_TRUE(net->is_training());
  net->eval();
  EXPECT_EQ(Generated(net, {1}, Options(0, 10)), text);
  EXPECT_FALSE(net->is_training());
}

TEST(Generate, StopsAtTheToken) {
  CausalLM net = Make(testing::TinyConfigs()[0]);
  SamplingOptions options = Options(1, 50);
  const Text text = Generated(net, {1}, options);
  options.stop = text[20];
  Text told;
  const auto stopped = Generate(net, {1}, options, [&](int64_t token) { told.push_back(token); });
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(stopped->back(), text[20]);
  EXPECT_LE(stopped->size(), 21);
  EXPECT_EQ(*stopped, Text(text.begin(), text.begin() + stopped->size()));
  EXPECT_EQ(told, *stopped);
}

TEST(Generate, NamesWhatIsOutOfRange) {
  CausalLM net = Make(testing::TinyConfigs()[0]);
  const auto message = [&](const Text& prompt, const SamplingOptions& options) {
    return std::string(Generate(net, prompt, options).status().message());
  };
  EXPECT_EQ(message({}, {}), "the prompt is empty, expected at least one token");
  EXPECT_EQ(message({1, 61}, {}), "token 1 of the prompt is 61, expected 0 to vocab_size - 1, 60");
  EXPECT_EQ(message({1}, Options(-1, 5)), "temperature is -1, expected at least 0, and finite");
  EXPECT_EQ(message({1}, Options(1, -5)), "max_new_tokens is -5, expected at least 0");
  SamplingOptions options;
  options.top_p = 0;
  EXPECT_EQ(message({1}, options), "top_p is 0, expected more than 0 and at most 1");
}

// Frequencies of tokens with the given probabilities.
std::map<int64_t, double> Frequencies(const std::vector<double>& probabilities, const SamplingOptions& options) {
  constexpr int kDraws = 2000;
  at::Generator random = at::detail::createCPUGenerator(1);
  std::map<int64_t, double> frequencies;
  for (int i = 0; i < kDraws; ++i)
    frequencies[SampleToken(at::tensor(probabilities).log(), options, random)] += 1.0 / kDraws;
  return frequencies;
}

TEST(SampleToken, DrawsByTheProbabilitiesThatAreKept) {
  const std::vector<double> probabilities = {0.15, 0.5, 0.05, 0.3};
  SamplingOptions options;
  auto found = Frequencies(probabilities, options);
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], probabilities[i], 0.04);
  options.top_k = 2;
  found = Frequencies(probabilities, options);
  EXPECT_EQ(found.size(), 2);
  EXPECT_NEAR(found[1], 0.5 / 0.8, 0.04);
  options = SamplingOptions();
  options.top_p = 0.79;  // 0.5 + 0.3 reach it
  EXPECT_EQ(Frequencies(probabilities, options).size(), 2);
  options.top_p = 0.81;
  EXPECT_EQ(Frequencies(probabilities, options).size(), 3);
  options.top_p = 1e-9;
  EXPECT_EQ(Frequencies(probabilities, options).size(), 1);
  options = SamplingOptions();
  options.temperature = 0.5;  // squares them
  EXPECT_NEAR(Frequencies(probabilities, options)[1], 0.25 / 0.365, 0.04);
}

}  // namespace
}  // namespace lockstep::models
