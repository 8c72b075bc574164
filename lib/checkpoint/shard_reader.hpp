// Reads one shard file, chunk by chunk.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "checkpoint/format.hpp"
#include "checkpoint/zstd_codec.hpp"

namespace tessera {

/// What a shard must be to belong to a checkpoint.
struct ShardIdentity {
  SaveId save_id;
  std::uint32_t shard = 0;
  std::uint32_t shards = 0;
  std::uint64_t bytes = 0;
};

/// Checks size, header and footer of a file without reading the rest; returns the footer. Raises
/// Error{kCheckpoint} naming the file and the reason.
ShardFooter check_shard_ends(const RandomAccessFile& file, const ShardIdentity& identity);

/// An open shard with its index. For one thread.
class ShardReader {
 public:
  /// Opens the file and checks header, footer and index. Raises Error{kCheckpoint} naming the file
  /// and what is wrong with it, as all functions here do.
  ShardReader(Env& env, const std::string& path, const ShardIdentity& identity);

  const ShardIndex& index() const { return index_; }
  const RandomAccessFile& file() const { return *file_; }
  const ShardFooter& footer() const { return footer_; }

  /// Fills `raw`, which must have the chunk's raw size, and checks both checksums. `stored` is
  /// scratch.
  void read_chunk(std::uint64_t chunk, std::span<std::byte> raw, std::vector<std::byte>& stored,
                  Decompressor& decompressor) const;
  /// The same from stored bytes that were read already.
  void decode_chunk(std::uint64_t chunk, std::span<const std::byte> stored,
                    std::span<std::byte> raw, Decompressor& decompressor) const;

 private:
  std::unique_ptr<RandomAccessFile> file_;
  ShardFooter footer_;
  ShardIndex index_;
};

}  // namespace tessera
