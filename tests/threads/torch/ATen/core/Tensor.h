#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

/// What the batches of the data need of torch, so that every line of the program is instrumented:
/// shared memory of a size and a type.
namespace at {

enum class ScalarType : std::uint8_t { kLong, kBool };
inline constexpr auto kLong = ScalarType::kLong;
inline constexpr auto kBool = ScalarType::kBool;

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(std::size_t bytes) : bytes_(std::make_shared<std::vector<std::byte>>(bytes)) {}

  bool defined() const { return bytes_ != nullptr; }
  Tensor flatten() const { return *this; }
  template <class T>
  T* mutable_data_ptr() const {
    return reinterpret_cast<T*>(bytes_->data());
  }
  bool equal(const Tensor& other) const {
    return defined() == other.defined() && (!defined() || *bytes_ == *other.bytes_);
  }

 private:
  std::shared_ptr<std::vector<std::byte>> bytes_;
};

inline Tensor empty(std::initializer_list<std::int64_t> sizes, ScalarType type) {
  std::size_t bytes = type == kLong ? sizeof(std::int64_t) : sizeof(bool);
  for (const auto size : sizes) bytes *= static_cast<std::size_t>(size);
  return Tensor(bytes);
}

}  // namespace at
