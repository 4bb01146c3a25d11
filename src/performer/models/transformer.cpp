#include "performer/models/transformer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "performer/core/error.h"
#include "performer/models/initialize.h"
#include "performer/models/recompute.h"
#include "performer/models/reversible.h"

namespace performer::models {
namespace {

constexpr std::uint64_t kEmbeddingSite = 1ULL << 32;  // beyond every layer

// A holder of the blocks, for names as layers.0.
class LayersImpl : public torch::nn::Module {
 public:
  void add(const Block& block) { register_module(std::to_string(children().size()), block.ptr()); }
};

const ModelConfig& checked(const ModelConfig& config) {
  check(config);
  return config;
}

}  // namespace

TransformerImpl::TransformerImpl(const ModelConfig& config, std::uint64_t seed)
    : config_(checked(config)), rotary_(config.head_dim(), config.rotary_base) {
  embedding_ = register_module("embedding", Embedding(config));
  auto layers = register_module("layers", std::make_shared<LayersImpl>());
  blocks_.reserve(static_cast<std::size_t>(config.layers));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    blocks_.emplace_back(config, i);
    layers->add(blocks_.back());
  }
  if (config.norm_position == "pre") norm_ = register_module("norm", Norm(config));
  if (config.head == "lm") {
    output_ = register_module("output", LmHead(config));
  } else if (config.head != "none") {
    head_ = register_module("head", make_class_head(config));
  }
  if (config.positions == "rotary" && config.rotary_frequencies == "stored") store_frequencies();
  initialize(*this, config, seed);
}

// A buffer: no optimizer moves it, and it stays float32 where the parameters become narrower.
void TransformerImpl::store_frequencies() {
  const Tensor even = at::arange(0, config_.head_dim(), 2, at::kDouble);
  const Tensor computed = at::pow(config_.rotary_base, even.div(-config_.head_dim()));
  auto holder = register_module("rotary", std::make_shared<torch::nn::Module>("Rotary"));
  rotary_ = RotaryTables(holder->register_buffer("frequencies", computed.to(at::kFloat)));
}

Tensor TransformerImpl::run_blocks(Tensor x, const Pass& pass) {
  if (config_.reversible) return run_reversible(blocks_, x, pass);
  for (auto& block : blocks_) {
    x = config_.checkpointing ? run_recomputed(*block, x, pass) : block->forward(x, pass);
  }
  return x;
}

// The blocks' input, and the positions that their attention turns by.
Tensor TransformerImpl::embed(const Tensor& tokens, Pass& pass) {
  const std::int64_t position = pass.decode == nullptr ? 0 : pass.decode->position;
  const Tensor index = pass.decode == nullptr ? Tensor() : pass.decode->index;
  const Tensor x = embedding_->forward(tokens, position, index, pass.key_mask);
  if (config_.positions == "rotary") {
    pass.turns = index.defined() ? rotary_.turns(index, x.options())
                                 : rotary_.turns(position, tokens.size(1), x.options());
  }
  return dropout(x, pass.dropout.child(kEmbeddingSite));
}

Tensor TransformerImpl::run(const Tensor& tokens, Pass pass) {
  const Tensor first = embed(tokens, pass);
  const Tensor x = run_blocks(first, pass);
  return norm_.is_empty() ? x : norm_->forward(x);
}

Tensor TransformerImpl::tower(const ModelInput& input, std::uint64_t number) {
  Pass pass;
  pass.key_mask = input.key_mask;
  if (is_training()) pass.dropout = DropoutKey{config_.dropout, dropout_seed_}.child(number);
  return run(input.tokens, pass);
}

Tensor TransformerImpl::hidden(const ModelInput& input) { return tower(input, 0); }

Tensor TransformerImpl::hidden_after(const ModelInput& input, std::int64_t layers,
                                     const SeeHeads& see) {
  TORCH_CHECK(layers >= 0 && layers <= config_.layers, "Transformer: hidden_after takes 0 to ",
              config_.layers, " layers, got ", layers);
  TORCH_CHECK(!config_.reversible || layers == config_.layers,
              "Transformer: layers of a reversible model have two streams, and no hidden state");
  Pass pass;
  pass.key_mask = input.key_mask;
  if (see) pass.see = &see;
  Tensor x = embed(input.tokens, pass);
  if (config_.reversible) return run_blocks(x, pass);
  for (std::int64_t i = 0; i < layers; ++i) x = block(i).forward(x, pass);
  return x;
}

std::vector<Tensor> TransformerImpl::all_hidden(const ModelInput& input, const SeeHeads& see) {
  TORCH_CHECK(!config_.reversible,
              "Transformer: layers of a reversible model have two streams, and no hidden state");
  Pass pass;
  pass.key_mask = input.key_mask;
  if (see) pass.see = &see;
  std::vector<Tensor> all = {embed(input.tokens, pass)};
  for (auto& block : blocks_) all.push_back(block->forward(all.back(), pass));
  if (!norm_.is_empty()) all.push_back(norm_->forward(all.back()));
  return all;
}

Tensor TransformerImpl::logits(const Tensor& hidden) {
  TORCH_CHECK(config_.head == "lm", "Transformer: logits need the head lm, this one is ",
              config_.head);
  return output_->forward(hidden, embedding_->weight);
}

Tensor TransformerImpl::classify(const ModelInput& input) {
  TORCH_CHECK(config_.head == "classify", "Transformer: classify needs the head classify, this is ",
              config_.head);
  return head_->forward(pool(tower(input, 0), input.key_mask));
}

Tensor TransformerImpl::match(const ModelInput& a, const ModelInput& b) {
  TORCH_CHECK(config_.head == "match", "Transformer: match needs the head match, this is ",
              config_.head);
  const Tensor first = pool(tower(a, 0), a.key_mask);
  return head_->forward(compare(first, pool(tower(b, 1), b.key_mask)));
}

Tensor TransformerImpl::decode(const Tensor& tokens, DecodeState& state) {
  const at::NoGradGuard no_grad;
  if (!config_.causal) {
    fail(ExitCode::kUsage,
         "decode: the model is bidirectional (model.causal = false) and cannot stream tokens");
  }
  TORCH_CHECK(tokens.dim() == 2 && tokens.size(1) > 0,
              "decode: tokens must be [batch, length >= 1], got ", tokens.sizes());
  TORCH_CHECK(!state.index.defined() || tokens.size(1) == 1,
              "decode: a state with an index takes one token at a time, got ", tokens.sizes());
  state.layers.resize(blocks_.size());
  Pass pass;
  pass.decode = &state;
  const Tensor x = run(tokens, pass);
  state.position += tokens.size(1);
  if (state.index.defined()) state.index.add_(1);
  return logits(x.select(1, tokens.size(1) - 1));
}

bool TransformerImpl::recordable() {
  return std::all_of(blocks_.begin(), blocks_.end(),
                     [](Block& block) { return block->core().recordable(); });
}

void TransformerImpl::redraw(std::int64_t draw) {
  for (auto& block : blocks_) block->core().redraw(draw);
  draw_ = draw;
}

}  // namespace performer::models
