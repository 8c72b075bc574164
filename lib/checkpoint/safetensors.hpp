// The safetensors file format, read and written: weights in exchange with other systems.
//
// A file is: the header's length N in bytes (8 bytes, little endian), the header (N bytes of JSON,
// beginning with '{' and padded with spaces), and the data of all tensors without gaps. The header
// maps each name to {"dtype", "shape", "data_offsets": [begin, end]}, offsets counted from the
// header's end; the name "__metadata__" maps to an object of strings instead. Elements are little
// endian, row-major.
#pragma once

#include <tessera/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/env.hpp"

namespace tessera {

/// A longer header is refused, as in the format's reference implementation.
inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
/// A tensor with more dimensions is refused.
inline constexpr std::size_t kMaxSafetensorsRank = 64;

using SafetensorsMetadata = std::map<std::string, std::string>;

/// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  std::string stored_type;     ///< as in the file, such as "F32" or "BOOL"
  std::optional<DType> dtype;  ///< empty for types of the format that Tessera has not (BOOL, U16 …)
  std::vector<std::int64_t> shape;  ///< outermost first; empty is a scalar of one element
  std::uint64_t begin = 0;          ///< bytes from the first byte of data
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
};

/// An open file. The header is read and checked once; data is read when asked for.
/// Const functions may be called by several threads at once.
class SafetensorsFile {
 public:
  /// Opens a file and checks all of its header against the file's size, without reading data.
  /// Raises Error{kData} with the path and the reason for anything that is not exactly the format:
  /// a header cut short, too long or not JSON of this form; an unknown type; data that overlaps,
  /// has gaps, does not fit its shape, is cut short or is followed by more bytes; a name given
  /// twice. Allocates in proportion to the header only, which is part of the file.
  static SafetensorsFile open(Env& env, const std::string& path);

  /// All tensors, in the order of their data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::string& path() const { return file_->path(); }

  /// The tensor of that name, or null.
  const SafetensorsEntry* find(std::string_view name) const;
  /// As find(); raises Error{kData} where there is none.
  const SafetensorsEntry& at(std::string_view name) const;

  /// Reads a whole tensor. destination.size() must be the tensor's bytes (a failed check
  /// otherwise). Raises Error{kData} when there is no such tensor, its type is one that Tessera has
  /// not, or the file cannot be read.
  void read(std::string_view name, std::span<std::byte> destination) const;
  /// Reads destination.size() bytes of a tensor, from byte `offset` of it on.
  void read(std::string_view name, std::uint64_t offset, std::span<std::byte> destination) const;
  /// All elements of a tensor whose type is that of T (float, double or a signed integer, or
  /// uint8_t); raises Error{kData} naming both types otherwise.
  template <typename T>
  std::vector<T> values(std::string_view name) const;

 private:
  SafetensorsFile() = default;
  const SafetensorsEntry& readable(std::string_view name) const;

  std::unique_ptr<RandomAccessFile> file_;
  std::uint64_t data_begin_ = 0;  // offset of the data in the file
  std::vector<SafetensorsEntry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
  SafetensorsMetadata metadata_;
};

/// A tensor to be written, without its data.
struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
};

/// Writes a file tensor by tensor, so that not all of them need be in memory at once. The layout is
/// the reference implementation's: widest types first, then by name; the same content gives the
/// same bytes. The file appears under its name only at finish(); without it, nothing stays behind.
class SafetensorsWriter {
 public:
  /// Lays the file out and writes the header. Raises Error{kUsage} for a name given twice,
  /// reserved, or not UTF-8, a negative size, or a header above the limit; Error{kData} from the
  /// file.
  SafetensorsWriter(Env& env, std::string path, std::vector<SafetensorsSpec> tensors,
                    const SafetensorsMetadata& metadata);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// The tensors in the order in which their data must be appended.
  const std::vector<SafetensorsSpec>& order() const { return tensors_; }
  /// Appends data, in any number of pieces.
  void append(std::span<const std::byte> data);
  /// Syncs, closes and gives the file its name. A failed check when the appended bytes are not
  /// those of all tensors.
  void finish();

 private:
  void discard() noexcept;  // closes and removes the temporary file

  Env* env_;
  std::string path_;
  std::string temporary_path_;
  std::vector<SafetensorsSpec> tensors_;
  std::uint64_t missing_bytes_ = 0;  // data not yet appended
  std::unique_ptr<WritableFile> file_;
};

/// A tensor with its data: size_of(dtype) bytes for each element of the shape.
struct SafetensorsTensor {
  SafetensorsSpec spec;
  std::span<const std::byte> data;
};

/// Writes a whole file. Errors as SafetensorsWriter; data of another size is Error{kUsage}.
void write_safetensors(Env& env, const std::string& path,
                       const std::vector<SafetensorsTensor>& tensors,
                       const SafetensorsMetadata& metadata = {});

}  // namespace tessera
