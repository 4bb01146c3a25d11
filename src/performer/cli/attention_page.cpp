#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "performer/cli/attention.h"
#include "performer/infer/mutation.h"
#include "performer/report/heat_map.h"
#include "performer/report/page.h"
#include "performer/report/picture.h"
#include "performer/report/table.h"

namespace performer::cli {
namespace {

constexpr std::size_t kShown = 2;  // heads of each kind whose maps are on the page

struct Head {
  std::size_t layer;  // among those of the result
  std::int64_t head;
  infer::HeadScore score;
};

std::string name_of(const AttentionResult& result, const Head& head) {
  return fmt::format("{}-{}", result.layers[head.layer].layer, head.head);
}

std::vector<Head> all_heads(const AttentionResult& result) {
  std::vector<Head> heads;
  for (std::size_t i = 0; i < result.layers.size(); ++i) {
    for (const auto h : result.shown_heads) {
      heads.push_back({i, h, result.scores[i][static_cast<std::size_t>(h)]});
    }
  }
  return heads;
}

// The most diagonal ones, then the most vertical ones that are not among them.
std::vector<Head> notable_heads(const AttentionResult& result) {
  auto heads = all_heads(result);
  std::vector<Head> notable;
  const auto take = [&](auto score) {
    std::ranges::stable_sort(heads, std::ranges::greater(), score);
    const auto count = std::min(kShown, heads.size());
    notable.insert(notable.end(), heads.begin(),
                   heads.begin() + static_cast<std::ptrdiff_t>(count));
    heads.erase(heads.begin(), heads.begin() + static_cast<std::ptrdiff_t>(count));
  };
  take([](const Head& head) { return head.score.diagonal; });
  take([](const Head& head) { return head.score.vertical; });
  return notable;
}

std::vector<std::string> names_of(const AttentionResult& result, bool tiles, std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = tiles ? result.tile_range(i).begin : result.window.begin + i;
    const auto last = tiles ? result.tile_range(i).end - 1 : first;
    names.push_back(first == last
                        ? fmt::format("{}{}", result.labels[static_cast<std::size_t>(first)], first)
                        : fmt::format("{}-{}", first, last));
  }
  return names;
}

report::HeatMap map_of(const AttentionResult& result, const at::Tensor& map, bool tiles,
                       std::string title) {
  const auto names = names_of(result, tiles, map.size(0));
  const at::Tensor numbers = map.to(at::kDouble).contiguous();
  report::HeatMap drawn{std::move(title), "token", "attends to", names, names, {}};
  drawn.values.assign(numbers.const_data_ptr<double>(),
                      numbers.const_data_ptr<double>() + numbers.numel());
  drawn.low = 0;
  return drawn;
}

void add_head(report::Page& page, const AttentionResult& result, const Head& head) {
  const auto& maps = result.layers[head.layer];
  const auto name = name_of(result, head);
  const auto add = [&](const at::Tensor& map, bool tiles, const char* what) {
    if (map.defined()) {
      page.figure(
          draw(map_of(result, map[head.head], tiles, fmt::format("Head {}{}", name, what))));
    }
  };
  add(maps.tiles, true, "");
  add(maps.exact_tiles, true, ", exact softmax of the same queries and keys");
  add(maps.window, false, ", the window");
  add(maps.exact_window, false, ", the window, exact softmax");
}

double worst_row(const AttentionResult& result) {
  double worst = 0;
  for (const auto& maps : result.layers) {
    worst = std::max(worst, (maps.tiles.to(at::kDouble).sum(2) - 1).abs().max().item<double>());
  }
  return worst;
}

void add_heads(report::Page& page, const AttentionResult& result) {
  page.section("Heads");
  page.paragraph(
      "Each row of the picture is a layer, each column a head; both count from 0. In each map, "
      "rows are the tokens that attend, columns those that are attended to, from dark (nothing) to "
      "yellow (the head's largest weight); the colour is that of the square root.");
  page.figure(report::picture(grid_png(result), "Attention maps of all heads, layers by heads"));
  report::Table table{"Heads by score", {"head", "diagonal", "vertical"}, {}};
  for (const auto& head : all_heads(result)) {
    table.rows.push_back({name_of(result, head), head.score.diagonal, head.score.vertical});
  }
  page.paragraph(
      "Diagonal is the weight on tokens close by, beyond what averaging would give. Vertical is "
      "the "
      "weight that would have to move for all tokens to be seen evenly.");
  page.add(draw(table));
}

void add_residues(report::Page& page, const AttentionResult& result) {
  if (!result.agreement) return;
  page.section("Residues");
  page.paragraph(fmt::format(
      "How much residues attend to residues, over {} sequences, relative to averaging (1). The "
      "correlation of the {} pairs of different residues with BLOSUM62 is {:.3f}; among random "
      "renamings of the residues, a share of {:.4f} does as well.",
      result.sequences, result.agreement->pairs, result.agreement->correlation,
      result.agreement->p_value));
  std::vector<std::string> names;
  for (const char letter : infer::kResidues) names.emplace_back(1, letter);
  const at::Tensor ratios = result.ratios.contiguous();
  report::HeatMap own{"Attention", "residue", "attends to", names, names, {}};
  own.values.assign(ratios.const_data_ptr<double>(), ratios.const_data_ptr<double>() + 400);
  report::HeatMap blosum{"BLOSUM62", "residue", "residue", names, names, {}};
  blosum.scale = report::Scale::kDiverging;
  for (const auto& row : infer::kBlosum62) {
    blosum.values.insert(blosum.values.end(), row.begin(), row.end());
  }
  page.figure(draw(own));
  page.figure(draw(blosum));
}

}  // namespace

std::string attention_page(const AttentionResult& result) {
  report::Page page("Attention of " + result.id, result.model);
  page.add(report::key_figures({{"tokens", report::count_text(std::ssize(result.labels))},
                                {"tokens in a tile", report::count_text(result.tile)},
                                {"rows sum to 1 within", report::number_text(worst_row(result))}}));
  add_heads(page, result);
  page.section("Maps");
  page.paragraph(
      "The heads that look most along the diagonal, then those that look most at certain tokens. "
      "Point at a cell, or focus a map and use the arrow keys, to read its numbers.");
  for (const auto& head : notable_heads(result)) add_head(page, result, head);
  add_residues(page, result);
  return page.html();
}

}  // namespace performer::cli
