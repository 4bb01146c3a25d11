#include <string>
#include <string_view>

#include "performer/core/config.h"
#include "performer/data/data_config.h"
#include "performer/run/train_config.h"
#include "tests/fuzz/targets.h"

namespace performer::fuzz {
namespace {

struct Recipe {
  data::DataConfig data;
  run::OptimizerConfig optimizer;
  run::TrainConfig train;
};

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, Recipe>
void visit_fields(Config& c, Visitor&& field) {
  field("data", c.data, "");
  field("optimizer", c.optimizer, "");
  field("train", c.train, "");
}

}  // namespace

// The bytes as a recipe; the last line of them as --set too.
int toml(Bytes bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Recipe recipe;
  int taken = accepts("recipe.toml", [&] {
    const auto tree = ConfigTree::from_toml(text, "recipe.toml");
    tree.read_into(list_fields(recipe));
    const auto shown = fields_to_toml(list_fields(recipe));
    Recipe again;
    ConfigTree::from_toml(shown, "shown.toml").read_into(list_fields(again));
    require(fields_to_toml(list_fields(again)) == shown, "a recipe reads back as it was written");
  });
  taken += accepts("--set", [&] {
    ConfigTree tree;
    tree.set(text.substr(text.find_last_of('\n') + 1));
    tree.read_into(list_fields(recipe));
  });
  return taken;
}

}  // namespace performer::fuzz
