#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "performer/models/model_config.h"

/// Models of other programs, as folders in Hugging Face's layout: import, export and conversion.
namespace performer::pretrained {

/// How a tensor of a file lies in a parameter of ours.
enum class Layout : std::uint8_t {
  kRows,        // as rows of it
  kTransposed,  // the whole, transposed (GPT-2)
  // As rows of it, in another order: rotary positions turn the pairs (i, i + D/2) of a head there,
  // the pairs (2i, 2i + 1) here. Scores are sums over pairs, so that the order is free.
  kRotaryRows,
};

/// Where a tensor of a file goes; the same list serves both directions.
struct Place {
  std::string name;                 // in the file, without the prefix
  std::string parameter;            // of models::Transformer, or its buffer
  std::vector<std::int64_t> shape;  // in the file
  Layout layout = Layout::kRows;
  std::int64_t first_row = 0;  // of the parameter's rows
};

/// A model of another program: what it is in our terms, and where its tensors go.
struct Description {
  std::string architecture;  // BertForMaskedLM
  models::ModelConfig model;
  std::string prefix;       // "bert.": of all names but the bare ones; files may lack it
  std::string bare_prefix;  // "cls.": what begins so stands beside the prefix
  std::vector<Place> places;
  /// Other names of the same tensor: of tied weights, of older files. A file that has several must
  /// have the same numbers under each.
  std::map<std::string, std::string> other_names;
  std::vector<std::string> kept;             // tensors to carry along for an export
  std::vector<std::string> ignored_endings;  // constants that older files have
  bool base = false;                         // without a head: written without the prefix

  /// The name of a place, of kept tensors or of none, for a name as a file spells it.
  std::string own_name(std::string_view name) const;
  /// The name that transformers writes.
  std::string file_name(const std::string& own_name) const;
  bool ignores(std::string_view own_name) const;
};

/// Puts the tensors of layers into Description::places.
class PlaceList {
 public:
  explicit PlaceList(Description& description) : places_(description.places) {}

  using Shape = std::vector<std::int64_t>;
  void add(Place place) { places_.push_back(std::move(place)); }
  /// name.weight [out, in] and, where the parameter has one, name.bias [out], from `first_row` on.
  void linear(const std::string& name, const std::string& parameter, const Shape& shape, bool bias,
              std::int64_t first_row = 0, Layout layout = Layout::kRows);
  /// name.weight and name.bias [width].
  void layer_norm(const std::string& name, const std::string& parameter, std::int64_t width);

 private:
  std::vector<Place>& places_;
};

}  // namespace performer::pretrained
