#include "performer/core/array_file.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "performer/core/array_formats.h"
#include "performer/core/error.h"
#include "performer/core/safetensors.h"
#include "performer/core/temporary_file.h"

namespace performer {
namespace {

// HDF5 opens files by name, and wants to find that in a folder.
void write_hdf5_atomic(const std::filesystem::path& path, const ArrayFile& file) {
  TemporaryFile temporary(path, Naming::kFirst);
  const FileDescriptor open = temporary.duplicate();
  write_hdf5(fmt::format("/proc/self/fd/{}", open.get()), path.string(), file);
  if (::fsync(open.get()) != 0) fail_write(path, errno);
  temporary.publish();
  fsync_folder(folder_of(path));
}

}  // namespace

std::size_t size_of(ArrayType type) { return type == ArrayType::kFloat32 ? 4 : 8; }

std::string about_json(const ArrayFile& file) { return nlohmann::json(file.about).dump(); }

ArrayFormat array_format_of(const std::filesystem::path& path) {
  const auto ending = path.extension().string();
  if (ending == ".npz") return ArrayFormat::kNpz;
  if (ending == ".safetensors") return ArrayFormat::kSafetensors;
  if (ending != ".h5" && ending != ".hdf5") {
    fail(ExitCode::kUsage, "{}: the ending says the format: .npz, .safetensors, .h5 or .hdf5",
         path.string());
  }
  if (!has_hdf5()) {
    fail(ExitCode::kUsage,
         "{}: HDF5's library is not installed here (Debian: libhdf5-103-1); install it, or take "
         ".npz or .safetensors",
         path.string());
  }
  return ArrayFormat::kHdf5;
}

void write_array_tensors(FileWriter& out, const ArrayFile& file) {
  std::vector<safetensors::TensorSpec> specs;
  for (const Array& array : file.arrays) {
    const bool real = array.type == ArrayType::kFloat32;
    specs.push_back(
        {array.name, real ? safetensors::Dtype::kF32 : safetensors::Dtype::kI64, array.shape});
  }
  std::string ids;
  std::vector<std::int64_t> ends;
  for (const std::string& id : file.ids) {
    ids += id;
    ends.push_back(static_cast<std::int64_t>(ids.size()));
  }
  specs.push_back({"ids", safetensors::Dtype::kU8, {static_cast<std::int64_t>(ids.size())}});
  specs.push_back({"id_ends", safetensors::Dtype::kI64, {static_cast<std::int64_t>(ends.size())}});
  safetensors::write_pieces(out, specs, file.about,
                            [&](std::size_t i, const safetensors::TakePiece& take) {
                              if (i < file.arrays.size()) {
                                file.arrays[i].pieces(take);
                              } else if (specs[i].name == "ids") {
                                take(std::as_bytes(std::span(ids)));
                              } else {
                                take(std::as_bytes(std::span(ends)));
                              }
                            });
}

void write_arrays(const std::filesystem::path& path, const ArrayFile& file) {
  const auto format = array_format_of(path);
  if (format == ArrayFormat::kHdf5) {
    write_hdf5_atomic(path, file);
    return;
  }
  AtomicFile atomic(path);
  if (format == ArrayFormat::kNpz) {
    write_npz(atomic.writer(), file);
  } else {
    write_array_tensors(atomic.writer(), file);
  }
  atomic.commit();
}

}  // namespace performer
