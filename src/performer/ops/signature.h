#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

// How a list of fields (favor/fields.h is the longest) becomes what the dispatcher wants: a
// schema's text, a function that takes the arguments by position, and a call of one. All template
// code of this is here:
//   fields_with<kFields, kRoles>()   the fields that have a role
//   for_each_field(list, f)          f(field) in order; for_each_tensor: of those that are tensors
//   Wire<T, kGiven>                  how one C++ type travels
//   Signature<kFields, ...>          text(), function<body>, call(op, structs...)
namespace performer {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// An argument or a result of an operator: its name in the schema and the member that holds it.
template <class Struct, class T>
struct SchemaField {
  using Owner = Struct;
  using Type = T;
  const char* name;
  T Struct::*member;
  unsigned roles = 0;
  const char* default_value = nullptr;  // in the schema
};
template <class Struct, class T>
SchemaField(const char*, T Struct::*, unsigned = 0, const char* = nullptr)
    -> SchemaField<Struct, T>;  // clang before 17 deduces none for an aggregate

/// The fields of the list kFields that have any of `kRoles`, as a list.
template <const auto& kFields, unsigned kRoles>
constexpr auto fields_with() {
  constexpr auto kTake = []<std::size_t kIndex>() {
    constexpr auto kField = std::get<kIndex>(kFields);
    if constexpr ((kField.roles & kRoles) != 0) {
      return std::tuple{kField};
    } else {
      return std::tuple{};
    }
  };
  return [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::tuple_cat(kTake.template operator()<kIndex>()...);
  }
  (std::make_index_sequence<std::tuple_size_v<std::remove_cvref_t<decltype(kFields)>>>());
}

template <class Fields, class Visit>
constexpr void for_each_field(const Fields& fields, Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, fields);
}

template <class T>
inline constexpr bool kIsTensor = std::is_same_v<T, Tensor>;

template <class Fields, class Visit>
constexpr void for_each_tensor(const Fields& fields, Visit&& visit) {
  for_each_field(fields, [&]<class Struct, class T>(const SchemaField<Struct, T>& field) {
    if constexpr (kIsTensor<T>) visit(field);
  });
}

/// A type on its way through the dispatcher: its word in a schema, the parameter of a registered
/// function, and the way in and out. A tensor may be missing unless it is `kGiven`.
template <class T, bool kGiven>
struct Wire {
  using Parameter = T;
  static const T& out(const T& value) { return value; }
  static T in(T value) { return value; }
  static std::string word() {
    if constexpr (std::is_same_v<T, bool>) {
      return "bool";
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      return "int";
    } else if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) {
      return "int?";
    } else if constexpr (std::is_same_v<T, std::optional<double>>) {
      return "float?";
    } else {
      static_assert(std::is_same_v<T, std::optional<c10::SymInt>>, "no word for this type");
      return "SymInt?";
    }
  }
};

template <bool kGiven>
struct Wire<std::string, kGiven> {
  using Parameter = c10::string_view;
  static c10::string_view out(const std::string& value) { return value; }
  static std::string in(c10::string_view value) { return std::string(value); }
  static std::string word() { return "str"; }
};

template <std::size_t kSize, bool kGiven>
struct Wire<std::array<bool, kSize>, kGiven> {
  using Parameter = std::array<bool, kSize>;
  static Parameter out(const Parameter& value) { return value; }
  static Parameter in(const Parameter& value) { return value; }
  static std::string word() { return "bool[" + std::to_string(kSize) + "]"; }
};

template <>
struct Wire<Tensor, true> {
  using Parameter = const Tensor&;
  static const Tensor& out(const Tensor& value) { return value; }
  static const Tensor& in(const Tensor& value) { return value; }
  static std::string word() { return "Tensor"; }
};

template <>
struct Wire<Tensor, false> {
  using Parameter = const OptionalTensor&;
  static OptionalTensor out(const Tensor& t) {
    return t.defined() ? OptionalTensor(t) : std::nullopt;
  }
  static Tensor in(const OptionalTensor& value) { return value.value_or(Tensor()); }
  static std::string word() { return "Tensor?"; }
};

/// The arguments of one operator: `kFields` in order, members of `Structs`. Tensors with a role of
/// `kGivenRoles` are never missing; those with one of `kWrittenRoles` are written in place.
template <const auto& kFields, unsigned kGivenRoles, unsigned kWrittenRoles, class... Structs>
class Signature {
  using Fields = std::remove_cvref_t<decltype(kFields)>;
  template <std::size_t kIndex>
  using FieldAt = std::tuple_element_t<kIndex, Fields>;
  template <std::size_t kIndex>
  static constexpr FieldAt<kIndex> kField = std::get<kIndex>(kFields);
  template <std::size_t kIndex>
  using WireAt = Wire<typename FieldAt<kIndex>::Type, (kField<kIndex>.roles & kGivenRoles) != 0>;

  template <class Indices>
  struct Positional;

  template <std::size_t... kIndex>
  struct Positional<std::index_sequence<kIndex...>> {
    template <class Result>
    using Function = Result(typename WireAt<kIndex>::Parameter...);

    template <auto kBody>
    static std::invoke_result_t<decltype(kBody), Structs...> function(
        typename WireAt<kIndex>::Parameter... values) {
      std::tuple<Structs...> all;
      ((member<kIndex>(all) = WireAt<kIndex>::in(std::forward<decltype(values)>(values))), ...);
      return kBody(std::move(std::get<Structs>(all))...);
    }
    template <class Op>
    static auto call(const Op& op, const std::tuple<const Structs&...>& all) {
      return op.call(WireAt<kIndex>::out(member<kIndex>(all))...);
    }
    static std::string text() {
      std::string text;
      char alias = 'a';
      (add_argument<kIndex>(text, alias), ...);
      return text;
    }
  };

  template <std::size_t kIndex>
  static auto& member(std::tuple<Structs...>& all) {
    return std::get<typename FieldAt<kIndex>::Owner>(all).*kField<kIndex>.member;
  }
  template <std::size_t kIndex>
  static const auto& member(const std::tuple<const Structs&...>& all) {
    return std::get<const typename FieldAt<kIndex>::Owner&>(all).*kField<kIndex>.member;
  }
  template <std::size_t kIndex>
  static void add_argument(std::string& text, char& alias) {
    if (!text.empty()) text += ", ";
    std::string word = WireAt<kIndex>::word();
    if ((kField<kIndex>.roles & kWrittenRoles) != 0) {  // "Tensor(a!)", "Tensor(a!)?"
      word.insert(std::string("Tensor").size(), std::string("(") + alias++ + "!)");
    }
    text += word;
    (text += ' ') += kField<kIndex>.name;
    if (const char* value = kField<kIndex>.default_value) (text += '=') += value;
  }

  using All = Positional<std::make_index_sequence<std::tuple_size_v<Fields>>>;

 public:
  /// The operator's own signature.
  template <class Result>
  using Function = typename All::template Function<Result>;

  /// What TORCH_LIBRARY_IMPL takes: kBody(structs...) behind that signature.
  template <auto kBody>
  static constexpr auto* kFunction = &All::template function<kBody>;

  /// Calls a typed operator with the members of `structs`.
  template <class Op>
  static auto call(const Op& op, const Structs&... structs) {
    return All::call(op, std::tie(structs...));
  }

  /// "Tensor q, Tensor k, ..."
  static std::string text() { return All::text(); }
};

}  // namespace performer
