// The tokens of several files, one after the other.
#pragma once

#include <tessera/comm.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/env.hpp"
#include "data/file_list.hpp"

namespace tessera {

/// Text files as one stream of byte tokens (0 to 255): the files are concatenated in their order,
/// with nothing in between. Bytes are read when they are asked for; a few files are kept open.
/// For one thread.
class TokenStream {
 public:
  TokenStream() = default;
  TokenStream(Env& env, std::vector<DataFile> files);

  std::uint64_t tokens() const { return tokens_; }
  /// Reads the tokens [begin, begin + destination.size()), which lie inside the stream.
  void read(std::uint64_t begin, std::span<std::uint8_t> destination);
  /// The file and the offset in it of a token.
  std::pair<std::string, std::uint64_t> locate(std::uint64_t token) const;
  const std::vector<DataFile>& files() const { return files_; }

 private:
  std::size_t file_of(std::uint64_t token) const;
  const RandomAccessFile& opened(std::size_t file);

  struct OpenFile {
    std::size_t file;
    std::unique_ptr<RandomAccessFile> reader;
  };

  Env* env_ = nullptr;
  std::vector<DataFile> files_;
  std::vector<std::uint64_t> starts_;  // of each file in the stream
  std::uint64_t tokens_ = 0;
  std::vector<OpenFile> open_;  // most recently used last
};

/// Reads the whole stream, the ranks sharing the work, and returns a hash (32 hexadecimal digits)
/// of its content, whatever the number of ranks and however it is divided into files. Raises
/// Error{kData} on all ranks, naming file and offset, for the first token that is not below
/// `vocab_size`; 0 allows all. Collective.
std::string check_and_hash(TokenStream& stream, Communicator& comm, int vocab_size,
                           const std::string& key);

}  // namespace tessera
