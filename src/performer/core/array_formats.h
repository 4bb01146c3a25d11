#pragma once

#include <string>

#include "performer/core/array_file.h"
#include "performer/core/file.h"

// The writers of array_file.cpp, one a format.
namespace performer {

std::size_t size_of(ArrayType type);

void write_npz(FileWriter& out, const ArrayFile& file);
void write_array_tensors(FileWriter& out, const ArrayFile& file);

/// Whether HDF5's library can be loaded.
bool has_hdf5();
/// Into the file that can be opened as `path`; kNoSpace, telling of `name`, where HDF5 cannot write it.
void write_hdf5(const std::string& path, const std::string& name, const ArrayFile& file);

/// {"key": "value", ...} of file.about.
std::string about_json(const ArrayFile& file);

}  // namespace performer
