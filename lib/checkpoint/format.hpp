// The layout of a shard file, byte by byte (docs/checkpoint-format.md). A shard is a legal zstd
// stream: chunks are zstd frames, everything else lies in skippable frames.
//
//   header    one page: magic, version, save id, shard number
//   chunks    from the second page on, without gaps
//   padding   up to the next page
//   index     where each chunk is, and which tensors the chunks hold
//   footer    the last 64 bytes: where the index is
//
// The functions here turn structs into these bytes and back. Decoding raises Error{kCheckpoint}
// with the reason; it never allocates more than the bytes it was given justify.
#pragma once

#include <tessera/dtype.hpp>
#include <tessera/tensor.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr std::uint32_t kShardVersion = 1;
/// Bits of features that a reader must know; none are defined yet.
inline constexpr std::uint32_t kKnownFeatures = 0;
/// Extents (the chunks together, the index) start at multiples of this.
inline constexpr std::uint32_t kShardPageBytes = 4096;
/// Bytes before compression in every chunk of a slice but the last.
inline constexpr std::uint32_t kChunkBytes = 1u << 20;
/// No reader allocates more for a chunk, whatever a file says.
inline constexpr std::uint32_t kMaxChunkBytes = 16u << 20;
inline constexpr std::uint64_t kShardHeaderBytes = kShardPageBytes;
inline constexpr std::uint64_t kShardFooterBytes = 64;
inline constexpr std::uint64_t kSkippableHeaderBytes = 8;
inline constexpr std::size_t kMaxNameBytes = 4096;
inline constexpr std::size_t kMaxTensorRank = 32;
/// Elements of a tensor and bytes of a slice stay below this, so that products never overflow.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;

/// A random number that all files of one save carry.
struct SaveId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  bool operator==(const SaveId&) const = default;
  std::string to_hex() const;  ///< 32 digits
};

/// Parses 32 hexadecimal digits; false for anything else.
bool parse_save_id(std::string_view text, SaveId& id);

struct ShardHeader {
  SaveId save_id;
  std::uint32_t shard = 0;   ///< number of this shard
  std::uint32_t shards = 0;  ///< of the checkpoint
  std::uint32_t page_bytes = kShardPageBytes;
};

/// How a chunk's bytes were rearranged before compression.
enum class ChunkFilter : std::uint16_t { kNone = 0 };

/// Where a chunk lies and what its bytes are.
struct ChunkEntry {
  std::uint64_t offset = 0;  ///< of its zstd frame in the file
  std::uint32_t stored_bytes = 0;
  std::uint32_t raw_bytes = 0;
  std::uint32_t stored_crc = 0;
  std::uint32_t raw_crc = 0;
  ChunkFilter filter = ChunkFilter::kNone;
  std::array<std::uint32_t, 4> plane_bytes{};  ///< for filters that split into planes; else zero
};

/// An interval of a tensor in a shard: `count` elements from `begin` on, in the chunks from
/// `first_chunk` on, each with kChunkBytes of them.
struct SliceEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::uint64_t first_chunk = 0;
};

struct ShardIndex {
  std::uint32_t chunk_bytes = kChunkBytes;
  std::vector<ChunkEntry> chunks;
  std::vector<SliceEntry> slices;
};

struct ShardFooter {
  std::uint64_t index_offset = 0;  ///< of the index's frame
  std::uint64_t index_bytes = 0;   ///< of the frame, its 8 header bytes included
  SaveId save_id;
  std::uint32_t shard = 0;
  std::uint32_t index_crc = 0;  ///< of the frame's content
};

/// The header frame, kShardHeaderBytes long.
std::string encode_header(const ShardHeader& header);
ShardHeader decode_header(std::string_view bytes);
/// The index frame. Raises Error{kData} when it would exceed the 4 GiB of a frame.
std::string encode_index(const ShardIndex& index);
/// Checks too that chunks lie one after the other inside [kShardHeaderBytes, index_offset) and that
/// every slice's chunks exist and have the sizes they must have.
ShardIndex decode_index(std::string_view bytes, std::uint64_t index_offset);
/// The footer frame, kShardFooterBytes long.
std::string encode_footer(const ShardFooter& footer);
ShardFooter decode_footer(std::string_view bytes);
/// A skippable frame of `bytes` in all (at least 8), filled with zeros.
std::string encode_padding(std::uint64_t bytes);
/// Bytes from `offset` up to the next page boundary that a padding frame can fill: 0, or at
/// least 8.
std::uint64_t padding_bytes(std::uint64_t offset, std::uint64_t page_bytes);

/// Chunks of a slice of `count` elements.
std::uint64_t chunk_count(std::int64_t count, DType dtype, std::uint32_t chunk_bytes);
/// "shard-00002-of-00004.tsr".
std::string shard_file_name(std::uint32_t shard, std::uint32_t shards);
/// True when the shape's sizes are not negative and its elements at most kMaxElements.
bool is_plausible_shape(const std::vector<std::int64_t>& sizes, std::int64_t& elements);

}  // namespace tessera
