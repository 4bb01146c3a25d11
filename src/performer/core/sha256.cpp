#include "performer/core/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "performer/core/error.h"
#include "performer/core/file.h"

namespace performer {
namespace {

void require(int ok) {
  if (ok != 1) {
    fail(ExitCode::kFailure, "sha256: the OpenSSL library refused to work");
  }
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  require(context_ ? EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) : 0);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text))); }

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  require(EVP_DigestFinal_ex(context_.get(), digest.data(), &size));
  require(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
  std::string hex;
  hex.reserve(std::size_t{2} * size);
  for (unsigned int i = 0; i < size; ++i) {
    fmt::format_to(std::back_inserter(hex), "{:02x}", digest[i]);
  }
  return hex;
}

std::string sha256_of(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  Sha256 hash;
  read_pieces(path, [&](std::span<const std::byte> piece) { hash.update(piece); });
  return hash.finish();
}

}  // namespace performer
