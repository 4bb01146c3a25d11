#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "performer/cli/data.h"
#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/data/byte_source.h"
#include "performer/data/encoding.h"
#include "performer/data/hf/open_tokenizer.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostInput = std::int64_t{1} << 31;

struct TokenizeOptions {
  std::string folder;
  std::string file = "-";
  bool bare = false;
  bool strings = false;
  bool decode = false;
};

Json parse_line(std::string_view line, const std::string& place) {
  const JsonLimits limits{
      .bytes = kMostInput, .values = kMostInput, .failure = ExitCode::kBadInput};
  return parse_json(line, place, limits);
}

void print_text(const data::TokenSpace& space, std::string_view line, const std::string& place) {
  const Json json = parse_line(line, place);
  const auto ids = JsonView(json, place, ExitCode::kBadInput).integers(0);
  fmt::print("{}\n", Json(space.decode(ids)).dump());
}

void print_ids(const TokenizeOptions& o, const data::TokenSpace& space, std::string_view line,
               const std::string& place) {
  std::string text(line);
  if (o.strings) {
    const Json json = parse_line(line, place);
    text = JsonView(json, place, ExitCode::kBadInput).string();
  }
  data::check_utf8(text, place);
  const auto ids = o.bare ? space.encode(text) : space.encode_whole(text);
  fmt::print("{}\n", Json(ids).dump());
}

void run_tokenize(const TokenizeOptions& o) {
  const data::TokenSpace space = data::open_hf_tokenizer(o.folder);
  const std::string name = o.file == "-" ? "standard input" : o.file;
  const std::string input = data::read_all(o.file, kMostInput);
  std::string_view rest = input;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t feed = std::min(rest.find('\n'), rest.size());
    const auto line = rest.substr(0, feed);
    rest.remove_prefix(std::min(feed + 1, rest.size()));
    const auto place = fmt::format("{}:{}", name, number);
    if (o.decode) {
      print_text(space, line, place);
    } else {
      print_ids(o, space, line, place);
    }
  }
}

}  // namespace

void add_data_tokenize(CLI::App& data) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App* app = data.add_subcommand(
      "tokenize", "Tokens of text by the tokenizer of a Hugging Face folder, a JSON list a line");
  app->add_option("folder", o->folder,
                  "Folder with tokenizer.json, vocab.txt (BERT, ESM-2), vocab.json and merges.txt "
                  "(GPT-2, RoBERTa), or a SentencePiece tokenizer.model")
      ->required();
  app->add_option("file", o->file, "Text, plain or gzip, each line on its own; - is standard input")
      ->capture_default_str();
  app->add_flag("--bare", o->bare, "Leave out what stands around a text, as [CLS] and [SEP]");
  app->add_flag("--strings", o->strings,
                "Lines are JSON strings, which may hold line feeds and all else");
  app->add_flag("--decode", o->decode, "The other way: JSON lists of ids in, JSON strings out")
      ->excludes("--bare")
      ->excludes("--strings");
  app->footer("Example: echo 'Hello world' | performer data tokenize models/all-MiniLM-L6-v2");
  app->callback([o] { run_tokenize(*o); });
}

}  // namespace performer::cli
