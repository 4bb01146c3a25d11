#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "performer/cli/bounds.h"
#include "performer/cli/data.h"
#include "performer/cli/data_table.h"
#include "performer/data/train_tokenizer.h"

namespace performer::cli {
namespace {

struct TokenizerOptions {
  std::vector<std::string> files;
  std::string output;
  data::TokenizerOptions tokenizer;
  bool json = false;
};

void run_tokenizer(const TokenizerOptions& o) {
  const auto result = data::train_tokenizer(o.files, o.output, o.tokenizer);
  const double multiplier = static_cast<double>(result.tokens) / static_cast<double>(result.words);
  if (o.json) {
    const nlohmann::ordered_json json = {
        {"output", o.output},      {"vocabulary", result.vocabulary},
        {"bytes", result.bytes},   {"words", result.words},
        {"tokens", result.tokens}, {"word_multiplier", multiplier}};
    fmt::print("{}", json_line(json));
    return;
  }
  fmt::print("{}: {} pieces; {} bytes, {} words, {} tokens, {:.4f} tokens a word\n", o.output,
             result.vocabulary, result.bytes, result.words, result.tokens, multiplier);
}

}  // namespace

void add_data_tokenizer(CLI::App& data) {
  auto o = std::make_shared<TokenizerOptions>();
  CLI::App* app =
      data.add_subcommand("tokenizer", "Train a SentencePiece unigram model on text files");
  app->add_option("files", o->files, "Text files, plain or gzip")->required();
  app->add_option("-o,--output", o->output, "The model file to make")->required();
  bounded(app->add_option("--vocabulary", o->tokenizer.vocabulary, "Number of pieces")
              ->capture_default_str(),
          300, 1'000'000);
  bounded(app->add_option("--threads", o->tokenizer.threads, "Threads; last digits depend on it")
              ->capture_default_str(),
          1, 128);
  app->add_flag("--json", o->json, "Print one JSON object and nothing else");
  app->footer("Example: performer data tokenizer books/*.txt.gz -o books.model --vocabulary 8000");
  app->callback([o] { run_tokenizer(*o); });
}

}  // namespace performer::cli
