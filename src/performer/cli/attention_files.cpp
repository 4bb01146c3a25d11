#include <ATen/ATen.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "performer/cli/attention.h"
#include "performer/data/image_output.h"
#include "performer/infer/mutation.h"
#include "performer/report/color_scale.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

// Lines "layer head map row_begin row_end column_begin column_end weight [exact]" of one head.
struct MapLines {
  const AttentionResult& result;
  std::int64_t layer, head;
  std::string& text;

  void add(const char* name, const at::Tensor& map, const at::Tensor& exact, bool tiles) const {
    if (!map.defined()) return;
    const at::Tensor own = map[head].contiguous();
    const at::Tensor other = exact.defined() ? exact[head].contiguous() : at::Tensor();
    const auto size = own.size(0);
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = 0; j < size; ++j) {
        const auto rows = range(i, tiles), columns = range(j, tiles);
        fmt::format_to(std::back_inserter(text), "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{:.6g}", layer, head,
                       name, rows.begin, rows.end, columns.begin, columns.end,
                       own.const_data_ptr<float>()[i * size + j]);
        if (other.defined()) {
          fmt::format_to(std::back_inserter(text), "\t{:.6g}",
                         other.const_data_ptr<float>()[i * size + j]);
        }
        text += '\n';
      }
    }
  }

 private:
  TokenRange range(std::int64_t i, bool tiles) const {
    if (tiles) return result.tile_range(i);
    return {result.window.begin + i, result.window.begin + i + 1};
  }
};

std::array<std::uint8_t, 3> color_of(double share) {
  const auto level = static_cast<std::int64_t>(share * (report::kLevels - 1));
  const auto text = report::level_color(report::Scale::kSequential,
                                        std::clamp<std::int64_t>(level, 0, report::kLevels - 1));
  std::array<std::uint8_t, 3> color{};
  for (std::size_t i = 0; i < color.size(); ++i) {
    color.at(i) = static_cast<std::uint8_t>(std::stoi(text.substr(1 + 2 * i, 2), nullptr, 16));
  }
  return color;
}

}  // namespace

TokenRange AttentionResult::tile_range(std::int64_t number) const {
  return {number * tile, std::min((number + 1) * tile, std::ssize(labels))};
}

std::string heads_text(const AttentionResult& result) {
  std::string text = "layer\thead\tdiagonal\tvertical\n";
  for (std::size_t i = 0; i < result.layers.size(); ++i) {
    for (std::size_t h = 0; h < result.scores[i].size(); ++h) {
      text += fmt::format("{}\t{}\t{:.6f}\t{:.6f}\n", result.layers[i].layer, h,
                          result.scores[i][h].diagonal, result.scores[i][h].vertical);
    }
  }
  return text;
}

std::string maps_text(const AttentionResult& result) {
  const bool exact = !result.layers.empty() && result.layers.front().exact_tiles.defined();
  std::string text =
      fmt::format("layer\thead\tmap\trow_begin\trow_end\tcolumn_begin\tcolumn_end\tweight{}\n",
                  exact ? "\texact" : "");
  for (const auto& maps : result.layers) {
    for (const auto head : result.shown_heads) {
      const MapLines lines{result, maps.layer, head, text};
      lines.add("tiles", maps.tiles, maps.exact_tiles, true);
      lines.add("window", maps.window, maps.exact_window, false);
    }
  }
  return text;
}

std::string residues_text(const AttentionResult& result) {
  std::string text = "from\tto\tattention\tblosum62\n";
  for (std::int64_t a = 0; a < infer::kStandardResidues; ++a) {
    for (std::int64_t b = 0; b < infer::kStandardResidues; ++b) {
      const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
      const auto ratio = result.ratios[a][b].item<double>();
      text += fmt::format("{}\t{}\t{}\t{}\n", infer::kResidues[i], infer::kResidues[j],
                          std::isnan(ratio) ? "nan" : fmt::format("{:.6f}", ratio),
                          infer::kBlosum62.at(i).at(j));
    }
  }
  return text;
}

std::string grid_png(const AttentionResult& result) {
  constexpr std::int64_t kGap = 2;
  const auto side = result.layers.front().tiles.size(1);
  const auto scale = std::max<std::int64_t>(1, 96 / side);
  const auto step = side * scale + kGap;
  const auto heads = result.layers.front().tiles.size(0);
  data::Image image;
  image.shape = {std::ssize(result.layers) * step - kGap, heads * step - kGap, 3};
  image.values.assign(static_cast<std::size_t>(data::num_values(image.shape)), 255);
  for (std::size_t layer = 0; layer < result.layers.size(); ++layer) {
    const at::Tensor maps = result.layers[layer].tiles.clamp_min(0);
    for (std::int64_t head = 0; head < heads; ++head) {
      // The square root shows what is small beside the largest weight of a head.
      const double most = std::max(maps[head].max().item<double>(), 1e-30);
      const at::Tensor shares = (maps[head] / most).sqrt().contiguous();
      for (std::int64_t y = 0; y < side * scale; ++y) {
        for (std::int64_t x = 0; x < side * scale; ++x) {
          const auto share = shares.const_data_ptr<float>()[(y / scale) * side + x / scale];
          const auto color = color_of(std::isfinite(share) ? static_cast<double>(share) : 0);
          const auto row = static_cast<std::int64_t>(layer) * step + y;
          const auto at = (row * image.shape[1] + head * step + x) * 3;
          std::ranges::copy(color, image.values.begin() + at);
        }
      }
    }
  }
  return data::png_bytes(image);
}

Json attention_json(const AttentionResult& result) {
  Json heads = Json::array();
  for (std::size_t i = 0; i < result.layers.size(); ++i) {
    for (std::size_t h = 0; h < result.scores[i].size(); ++h) {
      heads.push_back({{"layer", result.layers[i].layer},
                       {"head", h},
                       {"diagonal", result.scores[i][h].diagonal},
                       {"vertical", result.scores[i][h].vertical}});
    }
  }
  Json json = {{"checkpoint", result.model}, {"id", result.id}, {"tokens", result.labels.size()},
               {"tile", result.tile},        {"heads", heads},  {"residues", nullptr}};
  if (result.agreement) {
    json["residues"] = {{"sequences", result.sequences},
                        {"correlation_with_blosum62", result.agreement->correlation},
                        {"p_value", result.agreement->p_value},
                        {"pairs", result.agreement->pairs}};
  }
  return json;
}

}  // namespace performer::cli
