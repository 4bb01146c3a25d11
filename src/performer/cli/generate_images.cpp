#include <fmt/format.h>

#include <algorithm>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "performer/cli/generate.h"
#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/data/image_output.h"

namespace performer::cli {
namespace {

namespace fs = std::filesystem;

data::Image image_of(const std::vector<std::int64_t>& tokens, const data::TokenSpace& space) {
  data::Image image{{}, space.shape};
  image.values.reserve(tokens.size());
  for (const auto token : tokens) image.values.push_back(static_cast<std::uint8_t>(token));
  return image;
}

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_write(folder, error.value());
}

}  // namespace

ImageFolder::ImageFolder(const GenerateOptions& o, const infer::LoadedModel& loaded)
    : folder_(o.output), values_(data::num_values(loaded.space.shape)) {
  if (folder_.empty()) {
    fail(ExitCode::kUsage, "{}: makes images; name a folder for them by -o DIR", o.model.path);
  }
  if (!o.prompt.empty()) {
    fail(ExitCode::kUsage, "--prompt: {} makes images, which begin with no text", o.model.path);
  }
  if (o.length > 0 && o.length != values_) {
    fail(ExitCode::kUsage, "--length: an image of {} has {} values, got {}; leave it out",
         o.model.path, values_, o.length);
  }
  for (std::int64_t i = 1; i <= o.n; ++i) {
    files_.push_back((fs::path(folder_) / fmt::format("sample-{:03}.png", i)).string());
  }
  if (o.n > 1) data::sheet_shape(loaded.space.shape, o.n, data::visible_scale(loaded.space.shape));
  if (o.n > 1) sheet_ = (fs::path(folder_) / "sheet.png").string();
  make_folder(folder_);
  auto all = files_;
  if (!sheet_.empty()) all.push_back(sheet_);
  const auto old =
      std::find_if(all.begin(), all.end(), [](const auto& file) { return is_there(file); });
  if (old != all.end() && !o.overwrite) {
    fail(ExitCode::kUsage, "{}: already exists; name another folder, or pass --overwrite", *old);
  }
  first_file_ = std::make_unique<AtomicFile>(files_.front());
  if (!sheet_.empty()) sheet_file_ = std::make_unique<AtomicFile>(sheet_);
}

void ImageFolder::write(const GenerateOptions& o, const Sampled& sampled) {
  std::vector<data::Image> images;
  images.reserve(files_.size());
  for (const auto& tokens : sampled.generated.sequences) {
    images.push_back(image_of(tokens, sampled.loaded.space));
  }
  first_file_->writer().write(data::png_bytes(images.front()));
  first_file_->commit();
  for (std::size_t i = 1; i < images.size(); ++i) {
    write_file_atomic(files_[i], data::png_bytes(images[i]));
  }
  if (!sheet_.empty()) {
    const auto scale = data::visible_scale(sampled.loaded.space.shape);
    sheet_file_->writer().write(data::png_bytes(data::contact_sheet(images, scale)));
    sheet_file_->commit();
  }
  if (o.json) {
    auto all = report_of(sampled);
    all["files"] = files_;
    all["sheet"] = sheet_.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(sheet_);
    using Handler = nlohmann::ordered_json::error_handler_t;
    fmt::print("{}\n", all.dump(-1, ' ', false, Handler::replace));
    return;
  }
  for (const auto& file : files_) fmt::print("{}\n", file);
  if (!sheet_.empty()) fmt::print("{}\n", sheet_);
}

}  // namespace performer::cli
