#include "base/env.hpp"

#include <tessera/error.hpp>

#include "base/check.hpp"

namespace tessera {

namespace {

std::string_view without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

}  // namespace

std::string Env::read_file(const std::string& path, std::uint64_t limit) {
  const auto file = open_for_read(path);
  const std::uint64_t size = file->size();
  if (size > limit) {
    fail(ErrorCode::kData, "'{}' has {} bytes, more than the {} that are read at once", path, size,
         limit);
  }
  std::string content(size, '\0');
  file->read(0, std::as_writable_bytes(std::span(content.data(), content.size())));
  return content;
}

void Env::write_file_atomically(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  {
    const auto file = open_for_write(temporary, OpenMode::kTruncate);
    file->append(std::as_bytes(std::span(content.data(), content.size())));
    file->sync();
    file->close();
  }
  try {
    rename(temporary, path);
  } catch (const Error&) {
    // A network file system may have renamed and lost the reply.
    const bool renamed = !exists(temporary) && exists(path) && file_size(path) == content.size() &&
                         read_file(path) == content;
    if (!renamed) throw;
  }
  sync_directory(parent_path(path));
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty() || (!name.empty() && name.front() == '/')) return std::string(name);
  std::string joined(directory);
  if (joined.back() != '/') joined += '/';
  return joined.append(name);
}

std::string parent_path(std::string_view path) {
  path = without_trailing_slashes(path);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  if (slash == 0) return "/";
  return std::string(without_trailing_slashes(path.substr(0, slash)));
}

}  // namespace tessera
