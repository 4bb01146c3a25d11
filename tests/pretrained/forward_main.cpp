// forward CHECKPOINT IN OUT [IN OUT]...: what a model gives for the tokens of safetensors files, for
// tests that compare it with another program's.
//   IN:  tokens int64 [B, L], and mask uint8 [B, L] (1: real)
//   OUT: hidden [B, L, E]; logits [B, L, V] where there is an output layer; for causal models
//        streamed [B, L, V], the same token by token behind a prompt of at most three
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

#include "performer/infer/load_model.h"
#include "performer/run/tensor_file.h"

namespace {

at::Tensor find(const performer::run::NamedTensors& tensors, const char* name) {
  for (const auto& [other, tensor] : tensors) {
    if (other == name) return tensor;
  }
  return {};
}

at::Tensor stream(performer::models::Transformer& model, const at::Tensor& tokens) {
  const std::int64_t prompt = std::min<std::int64_t>(3, tokens.size(1));
  performer::models::DecodeState state;
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 1; i <= prompt; ++i) {  // each length of a prompt, then steps
    performer::models::DecodeState fresh;
    rows.push_back(model->decode(tokens.narrow(1, 0, i), fresh));
    if (i == prompt) state = fresh;
  }
  for (std::int64_t i = prompt; i < tokens.size(1); ++i) {
    rows.push_back(model->decode(tokens.narrow(1, i, 1), state));
  }
  return at::stack(rows, 1);
}

performer::run::NamedTensors answer(performer::infer::LoadedModel& loaded,
                                    const performer::run::NamedTensors& given) {
  const auto tokens = find(given, "tokens");
  auto mask = find(given, "mask");
  if (mask.defined()) mask = mask.to(at::kBool);
  performer::run::NamedTensors results;
  const auto hidden = loaded.model->hidden({tokens, mask});
  results.emplace_back("hidden", hidden);
  if (loaded.recipe.model.head == "lm") {
    results.emplace_back("logits", loaded.model->logits(hidden));
    if (loaded.recipe.model.causal) results.emplace_back("streamed", stream(loaded.model, tokens));
  }
  return results;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<const char*> words(argv + 1, argv + argc);
    if (words.size() < 3 || words.size() % 2 == 0) {
      throw std::runtime_error("usage: forward CHECKPOINT IN OUT [IN OUT]...");
    }
    const at::NoGradGuard no_grad;
    auto loaded = performer::infer::load_model(words[0], {});
    for (std::size_t i = 1; i < words.size(); i += 2) {
      const auto given = performer::run::load_tensors(words[i]);
      performer::run::save_tensors(words[i + 1], answer(loaded, given));
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "forward: %s\n", error.what());
    return 1;
  }
}
