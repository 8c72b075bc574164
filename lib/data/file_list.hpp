// Which files a data set consists of.
#pragma once

#include <tessera/comm.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "base/env.hpp"

namespace tessera {

/// A file of a data set.
struct DataFile {
  std::string path;
  std::uint64_t bytes = 0;
};

/// Expands paths and patterns: `*`, `?`, `[…]` match within one name, a name of its own `**` any
/// number of directories, hidden names only where the pattern says so. Matches of one pattern are
/// sorted as bytes, patterns keep their order, directories that a pattern matches are left out. An
/// existing path is taken literally, whatever it contains. Raises Error{kData} for a pattern
/// without matches.
std::vector<std::string> expand_patterns(Env& env, const std::vector<std::string>& patterns);

/// Rank 0 expands the patterns and looks at the files; every rank gets its list and checks that it
/// sees the same files. A file that is listed twice is taken once, and named in `repeated`. Raises
/// the same Error{kData} on all ranks, naming the first file that is missing, empty, a directory or
/// unreadable on some rank, or has another size there. `key` ("data.train") becomes the error's
/// context. Collective.
std::vector<DataFile> agree_on_files(Env& env, Communicator& comm,
                                     const std::vector<std::string>& patterns,
                                     const std::string& key, std::vector<std::string>& repeated);

}  // namespace tessera
