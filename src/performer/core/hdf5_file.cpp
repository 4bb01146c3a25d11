#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "performer/core/array_formats.h"
#include "performer/core/error.h"

// HDF5's library where it is installed, loaded when it is asked for: a program that needs it for one
// format of one command should run without it. The declarations are those of its C interface, which
// has been stable since version 1.10.
namespace performer {
namespace {

using Id = std::int64_t;
using Extent = unsigned long long;

constexpr unsigned kTruncate = 2;
constexpr int kScalar = 0, kSelectSet = 0, kUtf8 = 1;
constexpr std::size_t kVariable = static_cast<std::size_t>(-1);

class Library {
 public:
  Library() {
    // Its own lock would meet that of TemporaryFile.
    ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
    for (const char* name : {"libhdf5_serial.so.103", "libhdf5.so.310", "libhdf5.so.200",
                             "libhdf5.so.103", "libhdf5.so", "libhdf5_serial.so"}) {
      handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) break;
    }
    if (handle_ == nullptr) return;
    found_ = true;
    load("H5open", open);
    load("H5Eset_auto2", set_errors);
    load("H5Fcreate", create_file);
    load("H5Fclose", close_file);
    load("H5Screate", create_space);
    load("H5Screate_simple", create_simple_space);
    load("H5Sselect_hyperslab", select);
    load("H5Sclose", close_space);
    load("H5Tcopy", copy_type);
    load("H5Tset_size", set_size);
    load("H5Tset_cset", set_letters);
    load("H5Tclose", close_type);
    load("H5Dcreate2", create_data);
    load("H5Dwrite", write_data);
    load("H5Dclose", close_data);
    load("H5Acreate2", create_attribute);
    load("H5Awrite", write_attribute);
    load("H5Aclose", close_attribute);
    load("H5T_IEEE_F32LE_g", float32);
    load("H5T_STD_I64LE_g", int64);
    load("H5T_C_S1_g", text);
    found_ = found_ && open() >= 0;
    if (found_) set_errors(0, nullptr, nullptr);
  }

  bool found() const { return found_; }

  int (*open)() = nullptr;
  int (*set_errors)(Id, void*, void*) = nullptr;
  Id (*create_file)(const char*, unsigned, Id, Id) = nullptr;
  int (*close_file)(Id) = nullptr;
  Id (*create_space)(int) = nullptr;
  Id (*create_simple_space)(int, const Extent*, const Extent*) = nullptr;
  int (*select)(Id, int, const Extent*, const Extent*, const Extent*, const Extent*) = nullptr;
  int (*close_space)(Id) = nullptr;
  Id (*copy_type)(Id) = nullptr;
  int (*set_size)(Id, std::size_t) = nullptr;
  int (*set_letters)(Id, int) = nullptr;
  int (*close_type)(Id) = nullptr;
  Id (*create_data)(Id, const char*, Id, Id, Id, Id, Id) = nullptr;
  int (*write_data)(Id, Id, Id, Id, Id, const void*) = nullptr;
  int (*close_data)(Id) = nullptr;
  Id (*create_attribute)(Id, const char*, Id, Id, Id, Id) = nullptr;
  int (*write_attribute)(Id, Id, const void*) = nullptr;
  int (*close_attribute)(Id) = nullptr;
  const Id *float32 = nullptr, *int64 = nullptr, *text = nullptr;  // set by open()

 private:
  template <class T>
  void load(const char* name, T& target) {
    target = reinterpret_cast<T>(::dlsym(handle_, name));
    found_ = found_ && target != nullptr;
  }

  void* handle_ = nullptr;  // stays loaded: the library keeps threads and handlers of its own
  bool found_ = false;
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

// An object of the library, closed with its owner; a negative number is a failure.
class Object {
 public:
  Object(Id id, int (*close)(Id), const std::string& file) : id_(id), close_(close) {
    if (id_ < 0) fail(ExitCode::kNoSpace, "{}: cannot be written as HDF5", file);
  }
  ~Object() {
    if (id_ >= 0) close_(id_);
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  Id get() const { return id_; }
  int close() {
    const Id id = id_;
    id_ = -1;
    return close_(id);
  }

 private:
  Id id_;
  int (*close_)(Id);
};

class Hdf5File {
 public:
  Hdf5File(const std::string& path, const std::string& name)
      : name_(name), file_(h_.create_file(path.c_str(), kTruncate, 0, 0), h_.close_file, name) {}

  void add(const Array& array) {
    std::vector<Extent> shape(array.shape.begin(), array.shape.end());
    const Object space(
        h_.create_simple_space(static_cast<int>(shape.size()), shape.data(), nullptr),
        h_.close_space, name_);
    const Id type = array.type == ArrayType::kFloat32 ? *h_.float32 : *h_.int64;
    const Object data(h_.create_data(file_.get(), array.name.c_str(), type, space.get(), 0, 0, 0),
                      h_.close_data, name_);
    std::size_t row_bytes = size_of(array.type);
    for (std::size_t i = 1; i < shape.size(); ++i) row_bytes *= shape[i];
    std::vector<Extent> start(shape.size(), 0);
    array.pieces([&](std::span<const std::byte> piece) {
      if (piece.empty()) return;
      std::vector<Extent> count = shape;
      count[0] = piece.size() / row_bytes;
      const Object part(
          h_.create_simple_space(static_cast<int>(count.size()), count.data(), nullptr),
          h_.close_space, name_);
      check(h_.select(space.get(), kSelectSet, start.data(), nullptr, count.data(), nullptr));
      check(h_.write_data(data.get(), type, part.get(), space.get(), 0, piece.data()));
      start[0] += count[0];
    });
  }

  void add(const std::string& name, const std::vector<std::string>& texts) {
    const Extent count = texts.size();
    const Object space(h_.create_simple_space(1, &count, nullptr), h_.close_space, name_);
    const Object type = text_type();
    const Object data(h_.create_data(file_.get(), name.c_str(), type.get(), space.get(), 0, 0, 0),
                      h_.close_data, name_);
    std::vector<const char*> pointers;
    pointers.reserve(texts.size());
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    if (count > 0) check(h_.write_data(data.get(), type.get(), 0, 0, 0, pointers.data()));
  }

  void add_attribute(const std::string& name, const std::string& text) {
    const Object space(h_.create_space(kScalar), h_.close_space, name_);
    const Object type = text_type();
    const Object attribute(
        h_.create_attribute(file_.get(), name.c_str(), type.get(), space.get(), 0, 0),
        h_.close_attribute, name_);
    const char* pointer = text.c_str();
    check(h_.write_attribute(attribute.get(), type.get(), &pointer));
  }

  void finish() { check(file_.close()); }

 private:
  Object text_type() const {
    const Id type = h_.copy_type(*h_.text);
    if (type >= 0) h_.set_size(type, kVariable), h_.set_letters(type, kUtf8);
    return {type, h_.close_type, name_};
  }

  void check(int status) const {
    if (status < 0) fail(ExitCode::kNoSpace, "{}: cannot be written as HDF5", name_);
  }

  const Library& h_ = library();
  const std::string& name_;
  Object file_;
};

}  // namespace

bool has_hdf5() { return library().found(); }

void write_hdf5(const std::string& path, const std::string& name, const ArrayFile& file) {
  Hdf5File out(path, name);
  for (const Array& array : file.arrays) out.add(array);
  out.add("ids", file.ids);
  out.add_attribute("about", about_json(file));
  out.finish();
}

}  // namespace performer
