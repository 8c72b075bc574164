// File access. Every file the library touches goes through an Env, so that tests can record, tear
// and fail operations. All functions raise Error{kData} with the path and the system's reason,
// unless they say otherwise. Paths are byte strings; sizes and offsets are bytes.
#pragma once

#include <tessera/export.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// A file opened for positional reads; may be used by several threads at once.
class TESSERA_API RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  /// Reads exactly destination.size() bytes at `offset`; a shorter file is an error.
  virtual void read(std::uint64_t offset, std::span<std::byte> destination) const = 0;
  virtual std::uint64_t size() const = 0;
  virtual const std::string& path() const = 0;
};

/// A file opened for writing from its start or its end on. Nothing is promised to be on disk before
/// sync() returned; close() must be called and reports what the system reports late (EDQUOT, EIO).
class TESSERA_API WritableFile {
 public:
  virtual ~WritableFile() = default;  ///< closes without reporting: the error path only
  virtual void append(std::span<const std::byte> data) = 0;
  virtual void sync() = 0;  ///< fsync; after an error the file's content is unknown
  virtual void close() = 0;
  virtual std::uint64_t size() const = 0;  ///< bytes written so far, the old content included
};

/// How a file to be written is opened.
enum class OpenMode {
  kExclusive,  ///< must not exist
  kTruncate,   ///< made or emptied
  kAppend,     ///< made or extended
};

/// The operations on files and directories.
class TESSERA_API Env {
 public:
  virtual ~Env() = default;

  virtual std::unique_ptr<RandomAccessFile> open_for_read(const std::string& path) = 0;
  virtual std::unique_ptr<WritableFile> open_for_write(const std::string& path, OpenMode mode) = 0;
  virtual bool exists(const std::string& path) = 0;
  virtual bool is_directory(const std::string& path) = 0;
  virtual std::uint64_t file_size(const std::string& path) = 0;
  /// Names (without the directory) of its entries, sorted, without "." and "..".
  virtual std::vector<std::string> list_directory(const std::string& path) = 0;
  virtual void make_directories(const std::string& path) = 0;  ///< existing ones are fine
  virtual void sync_directory(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void truncate(const std::string& path, std::uint64_t size) = 0;
  virtual void remove_file(const std::string& path) = 0;          ///< a missing file is an error
  virtual void remove_tree(const std::string& path) = 0;          ///< a missing tree is fine
  virtual std::uint64_t free_bytes(const std::string& path) = 0;  ///< for this user

  /// The whole file as bytes. Refuses files above `limit`.
  std::string read_file(const std::string& path, std::uint64_t limit = std::uint64_t{1} << 30);
  /// Writes `path` so that after a crash it holds the old or the new content: temporary file in the
  /// same directory, sync, close, rename, directory sync.
  void write_file_atomically(const std::string& path, std::string_view content);

  /// The operating system's files. The object lives as long as the program.
  static Env& posix();
};

/// "a/b" from "a" and "b"; an absolute second part wins.
TESSERA_API std::string join_path(std::string_view directory, std::string_view name);
/// "a" of "a/b", "." of "b".
TESSERA_API std::string parent_path(std::string_view path);

}  // namespace tessera
