#include "data/file_list.hpp"

#include <tessera/error.hpp>

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fnmatch.h>

#include "base/agreement.hpp"
#include "base/bytes.hpp"
#include "base/check.hpp"

namespace tessera {

namespace {

bool is_pattern(std::string_view text) { return text.find_first_of("*?[") != text.npos; }

std::string joined(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : join_path(directory, name);
}

// Appends the files under `directory` ("" = the working directory) that match `pattern`.
void match(Env& env, const std::string& directory, std::string_view pattern,
           std::set<std::string>& found) {
  const std::size_t slash = pattern.find('/');
  const std::string name(pattern.substr(0, slash));
  const bool last = slash == std::string_view::npos;
  const std::string_view rest = last ? std::string_view() : pattern.substr(slash + 1);
  if (name.empty() && !last) return match(env, directory, rest, found);
  const std::string here = directory.empty() ? "." : directory;

  if (name == "**" && !last) {
    match(env, directory, rest, found);
    for (const std::string& entry : env.list_directory(here)) {
      const std::string path = joined(directory, entry);
      if (entry.front() != '.' && env.is_directory(path)) match(env, path, pattern, found);
    }
  } else if (is_pattern(name)) {
    for (const std::string& entry : env.list_directory(here)) {
      if (::fnmatch(name.c_str(), entry.c_str(), FNM_PERIOD) != 0) continue;
      const std::string path = joined(directory, entry);
      const bool is_directory = env.is_directory(path);
      if (last && !is_directory) found.insert(path);
      if (!last && is_directory) match(env, path, rest, found);
    }
  } else {
    const std::string path = joined(directory, name);
    if (last && env.exists(path) && !env.is_directory(path)) found.insert(path);
    if (!last && env.is_directory(path)) match(env, path, rest, found);
  }
}

std::uint64_t checked_size(Env& env, const std::string& path) {
  // Opened, not only looked up: it must be readable by this rank.
  const std::uint64_t bytes = env.open_for_read(path)->size();
  if (bytes == 0) fail(ErrorCode::kData, "'{}' is empty", path);
  return bytes;
}

}  // namespace

std::vector<std::string> expand_patterns(Env& env, const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    if (!is_pattern(pattern) || env.exists(pattern)) {
      paths.push_back(pattern);
      continue;
    }
    std::set<std::string> found;
    match(env, pattern.starts_with('/') ? "/" : "", pattern, found);
    if (found.empty()) fail(ErrorCode::kData, "no file matches '{}'", pattern);
    paths.insert(paths.end(), found.begin(), found.end());
  }
  return paths;
}

std::vector<DataFile> agree_on_files(Env& env, Communicator& comm,
                                     const std::vector<std::string>& patterns,
                                     const std::string& key, std::vector<std::string>& repeated) {
  const std::string label = "files of " + key;
  const auto with_key = [&](const std::function<std::string()>& body) {
    return [&key, body] {
      try {
        return body();
      } catch (const Error& error) {
        throw Error(error.code(), error.message(), key);
      }
    };
  };

  const std::string decision =
      decide_on_root(comm, label, with_key([&] {
                       std::string list;
                       std::set<std::string> seen;
                       for (const std::string& path : expand_patterns(env, patterns)) {
                         const bool again = !seen.insert(path).second;
                         put_integer<std::uint64_t>(list, again ? 0 : checked_size(env, path));
                         put_string(list, path);
                       }
                       return list;
                     }));

  std::vector<DataFile> files;
  for (ByteReader reader(decision); !reader.rest().empty();) {
    const auto bytes = reader.integer<std::uint64_t>();
    std::string path(reader.string());
    if (bytes == 0) {
      repeated.push_back(std::move(path));
    } else {
      files.push_back({std::move(path), bytes});
    }
  }
  gather_outcomes(comm, label, with_key([&] {
                    for (const DataFile& file : files) {
                      const std::uint64_t bytes = checked_size(env, file.path);
                      if (bytes != file.bytes) {
                        fail(ErrorCode::kData, "'{}' has {} bytes here and {} on rank 0", file.path,
                             bytes, file.bytes);
                      }
                    }
                    return std::string();
                  }));
  return files;
}

}  // namespace tessera
