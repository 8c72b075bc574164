// Writes one rank's shard file.
#pragma once

#include <tessera/checkpoint.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "checkpoint/format.hpp"
#include "checkpoint/zstd_codec.hpp"

namespace tessera {

/// What a finished shard is, for the manifest.
struct ShardSummary {
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;  ///< CRC32C of the whole file
};

/// Buffers of writing, kept from one save to the next so that memory stays flat.
class ShardScratch {
 public:
  explicit ShardScratch(int compression_level);

  Compressor compressor;
  std::vector<std::byte> pending;  ///< bytes not yet handed to the file
};

/// Writes the file, flushes it to disk and closes it. The slices' data is read chunk by chunk, so
/// that no more than a chunk of it is held. Raises Error{kData} where the file exists or cannot be
/// written; a torn file stays behind then.
ShardSummary write_shard(Env& env, const std::string& path, const ShardHeader& header,
                         std::span<const StateSlice> slices, ShardScratch& scratch);

}  // namespace tessera
