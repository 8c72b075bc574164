#include "checkpoint/format.hpp"

#include <tessera/error.hpp>

#include <algorithm>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "checkpoint/crc32c.hpp"

namespace tessera {

namespace {

// zstd reserves 0x184D2A50 to 0x184D2A5F for skippable frames; tools may tell ours apart by these.
constexpr std::uint32_t kHeaderFrame = 0x184D2A5Au;
constexpr std::uint32_t kIndexFrame = 0x184D2A5Bu;
constexpr std::uint32_t kFooterFrame = 0x184D2A5Cu;
constexpr std::uint32_t kPaddingFrame = 0x184D2A5Du;

constexpr std::string_view kHeaderMagic = "TSRSHARD";
constexpr std::string_view kIndexMagic = "TSRINDEX";
constexpr std::string_view kFooterMagic = "TSRFOOTR";

constexpr std::size_t kHeaderFields = 48;  // the checksummed part of the header
constexpr std::size_t kFooterFields = 52;
constexpr std::size_t kChunkEntryBytes = 48;
constexpr std::size_t kIndexFields = 32;
constexpr std::size_t kSliceFields = 32;  // of a slice entry, before sizes and name

[[noreturn]] void damaged(const std::string& what) { throw Error(ErrorCode::kCheckpoint, what); }

std::uint32_t crc_of(std::string_view bytes) {
  return crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

std::string framed(std::uint32_t magic, const std::string& content) {
  if (content.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kData, "a checkpoint shard has too many chunks for one index");
  }
  std::string frame;
  frame.reserve(content.size() + kSkippableHeaderBytes);
  put_integer(frame, magic);
  put_integer(frame, static_cast<std::uint32_t>(content.size()));
  return frame += content;
}

// The content of a skippable frame that takes up exactly `bytes`.
std::string_view unframed(std::string_view bytes, std::uint32_t magic, std::string_view what) {
  if (bytes.size() < kSkippableHeaderBytes) damaged(fmt::format("the {} is cut short", what));
  ByteReader reader(bytes);
  if (reader.integer<std::uint32_t>() != magic) damaged(fmt::format("there is no {}", what));
  if (reader.integer<std::uint32_t>() != reader.rest().size()) {
    damaged(fmt::format("the {}'s frame has a wrong size", what));
  }
  return reader.rest();
}

void put_save_id(std::string& out, const SaveId& id) {
  put_integer(out, id.high);
  put_integer(out, id.low);
}

SaveId get_save_id(ByteReader& reader) {
  SaveId id;
  id.high = reader.integer<std::uint64_t>();
  id.low = reader.integer<std::uint64_t>();
  return id;
}

void check_version(std::uint32_t version, std::uint32_t features) {
  if (version != kShardVersion) {
    damaged(fmt::format("it has format version {}, this program reads {}", version, kShardVersion));
  }
  if ((features & ~kKnownFeatures) != 0) {
    damaged(fmt::format("it needs features {:#x} that this program has not", features));
  }
}

void put_chunk(std::string& out, const ChunkEntry& chunk) {
  put_integer(out, chunk.offset);
  put_integer(out, chunk.stored_bytes);
  put_integer(out, chunk.raw_bytes);
  put_integer(out, chunk.stored_crc);
  put_integer(out, chunk.raw_crc);
  put_integer(out, static_cast<std::uint16_t>(chunk.filter));
  put_integer<std::uint16_t>(out, 0);
  for (const std::uint32_t bytes : chunk.plane_bytes) put_integer(out, bytes);
  put_integer<std::uint32_t>(out, 0);
}

ChunkEntry get_chunk(ByteReader reader) {
  ChunkEntry chunk;
  chunk.offset = reader.integer<std::uint64_t>();
  chunk.stored_bytes = reader.integer<std::uint32_t>();
  chunk.raw_bytes = reader.integer<std::uint32_t>();
  chunk.stored_crc = reader.integer<std::uint32_t>();
  chunk.raw_crc = reader.integer<std::uint32_t>();
  chunk.filter = static_cast<ChunkFilter>(reader.integer<std::uint16_t>());
  reader.integer<std::uint16_t>();
  for (std::uint32_t& bytes : chunk.plane_bytes) bytes = reader.integer<std::uint32_t>();
  return chunk;
}

void put_slice(std::string& out, const SliceEntry& slice) {
  put_integer(out, static_cast<std::uint8_t>(slice.dtype));
  put_integer(out, static_cast<std::uint8_t>(slice.shape.rank()));
  put_integer(out, static_cast<std::uint16_t>(slice.name.size()));
  put_integer<std::uint32_t>(out, 0);
  put_integer(out, static_cast<std::uint64_t>(slice.begin));
  put_integer(out, static_cast<std::uint64_t>(slice.count));
  put_integer(out, slice.first_chunk);
  for (const std::int64_t size : slice.shape.sizes()) {
    put_integer(out, static_cast<std::uint64_t>(size));
  }
  out += slice.name;
}

SliceEntry get_slice(ByteReader& reader) {
  SliceEntry slice;
  const auto dtype = reader.integer<std::uint8_t>();
  const auto rank = reader.integer<std::uint8_t>();
  const auto name_bytes = reader.integer<std::uint16_t>();
  reader.integer<std::uint32_t>();
  const auto begin = reader.integer<std::uint64_t>();
  const auto count = reader.integer<std::uint64_t>();
  slice.first_chunk = reader.integer<std::uint64_t>();
  if (dtype > static_cast<std::uint8_t>(DType::kI64)) damaged("a slice has an unknown type");
  if (rank > kMaxTensorRank) damaged("a slice has too many dimensions");
  std::vector<std::int64_t> sizes(rank);
  for (std::int64_t& size : sizes) {
    size = static_cast<std::int64_t>(reader.integer<std::uint64_t>());
  }
  slice.name = reader.take(name_bytes);
  std::int64_t elements = 0;
  if (!is_plausible_shape(sizes, elements)) damaged("a slice has an impossible shape");
  const auto limit = static_cast<std::uint64_t>(elements);
  if (begin > limit || count > limit - begin) damaged("a slice lies outside its tensor");
  slice.dtype = static_cast<DType>(dtype);
  slice.shape = Shape(std::move(sizes));
  slice.begin = static_cast<std::int64_t>(begin);
  slice.count = static_cast<std::int64_t>(count);
  return slice;
}

// The slice's chunks follow those of the slice before it, and each has the size it must have.
// Returns the first chunk of the slice after it.
std::uint64_t check_chunks_of(const SliceEntry& slice, const ShardIndex& index,
                              std::uint64_t next_chunk) {
  const std::uint64_t wanted = chunk_count(slice.count, slice.dtype, index.chunk_bytes);
  if (slice.first_chunk != next_chunk || wanted > index.chunks.size() - next_chunk) {
    damaged("the slice of '" + slice.name + "' lacks chunks");
  }
  std::uint64_t left = static_cast<std::uint64_t>(slice.count) * size_of(slice.dtype);
  for (std::uint64_t i = 0; i < wanted; ++i) {
    const std::uint64_t bytes = std::min<std::uint64_t>(left, index.chunk_bytes);
    if (index.chunks[slice.first_chunk + i].raw_bytes != bytes) {
      damaged("a chunk of '" + slice.name + "' has a wrong size");
    }
    left -= bytes;
  }
  return next_chunk + wanted;
}

}  // namespace

std::string SaveId::to_hex() const { return fmt::format("{:016x}{:016x}", high, low); }

bool parse_save_id(std::string_view text, SaveId& id) {
  if (text.size() != 32) return false;
  std::uint64_t parts[2] = {0, 0};
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(text[i]);
    if (digit == std::string_view::npos) return false;
    parts[i / 16] = parts[i / 16] << 4 | digit;
  }
  id = {parts[0], parts[1]};
  return true;
}

std::string encode_header(const ShardHeader& header) {
  std::string content(kHeaderMagic);
  put_integer(content, kShardVersion);
  put_integer<std::uint32_t>(content, 0);  // features
  put_save_id(content, header.save_id);
  put_integer(content, header.shard);
  put_integer(content, header.shards);
  put_integer(content, header.page_bytes);
  put_integer<std::uint32_t>(content, 0);
  TESSERA_CHECK(content.size() == kHeaderFields);
  put_integer(content, crc_of(content));
  content.resize(kShardHeaderBytes - kSkippableHeaderBytes, '\0');
  return framed(kHeaderFrame, content);
}

ShardHeader decode_header(std::string_view bytes) {
  const std::string_view content = unframed(bytes, kHeaderFrame, "header");
  if (content.size() < kHeaderFields + 4) damaged("the header is cut short");
  ByteReader reader(content);
  if (reader.take(kHeaderMagic.size()) != kHeaderMagic) damaged("there is no header");
  const auto version = reader.integer<std::uint32_t>();
  const auto features = reader.integer<std::uint32_t>();
  ShardHeader header;
  header.save_id = get_save_id(reader);
  header.shard = reader.integer<std::uint32_t>();
  header.shards = reader.integer<std::uint32_t>();
  header.page_bytes = reader.integer<std::uint32_t>();
  reader.integer<std::uint32_t>();
  if (reader.integer<std::uint32_t>() != crc_of(content.substr(0, kHeaderFields))) {
    damaged("the header's checksum is wrong");
  }
  check_version(version, features);
  return header;
}

std::string encode_index(const ShardIndex& index) {
  std::string content(kIndexMagic);
  put_integer<std::uint64_t>(content, index.chunks.size());
  put_integer<std::uint64_t>(content, index.slices.size());
  put_integer(content, index.chunk_bytes);
  put_integer<std::uint32_t>(content, 0);
  TESSERA_CHECK(content.size() == kIndexFields);
  content.reserve(content.size() + index.chunks.size() * kChunkEntryBytes);
  for (const ChunkEntry& chunk : index.chunks) put_chunk(content, chunk);
  for (const SliceEntry& slice : index.slices) put_slice(content, slice);
  return framed(kIndexFrame, content);
}

ShardIndex decode_index(std::string_view bytes, std::uint64_t index_offset) {
  const std::string_view content = unframed(bytes, kIndexFrame, "index");
  if (content.size() < kIndexFields) damaged("the index is cut short");
  ByteReader reader(content);
  if (reader.take(kIndexMagic.size()) != kIndexMagic) damaged("there is no index");
  const auto chunks = reader.integer<std::uint64_t>();
  const auto slices = reader.integer<std::uint64_t>();
  ShardIndex index;
  index.chunk_bytes = reader.integer<std::uint32_t>();
  reader.integer<std::uint32_t>();
  if (index.chunk_bytes == 0 || index.chunk_bytes > kMaxChunkBytes || index.chunk_bytes % 8 != 0) {
    damaged(fmt::format("the index has an impossible chunk size {}", index.chunk_bytes));
  }
  if (chunks > reader.rest().size() / kChunkEntryBytes) damaged("the index lacks chunks");

  std::uint64_t end = kShardHeaderBytes;
  index.chunks.reserve(chunks);
  for (std::uint64_t i = 0; i < chunks; ++i) {
    const ChunkEntry chunk = get_chunk(ByteReader(reader.take(kChunkEntryBytes)));
    if (chunk.offset < end || chunk.offset > index_offset ||
        chunk.stored_bytes > index_offset - chunk.offset) {
      damaged(fmt::format("chunk {} lies outside its place", i));
    }
    if (chunk.raw_bytes > index.chunk_bytes) damaged(fmt::format("chunk {} is too large", i));
    if (chunk.filter != ChunkFilter::kNone) {
      damaged(fmt::format("chunk {} has an unknown filter", i));
    }
    end = chunk.offset + chunk.stored_bytes;
    index.chunks.push_back(chunk);
  }
  if (slices > reader.rest().size() / kSliceFields) damaged("the index lacks slices");
  index.slices.reserve(slices);
  std::uint64_t next_chunk = 0;
  for (std::uint64_t i = 0; i < slices; ++i) {
    try {
      index.slices.push_back(get_slice(reader));
    } catch (const Error& error) {
      damaged(error.message());
    }
    next_chunk = check_chunks_of(index.slices.back(), index, next_chunk);
  }
  if (next_chunk != chunks) damaged("the index has chunks of no slice");
  if (!reader.rest().empty()) damaged("the index has bytes too many");
  return index;
}

std::string encode_footer(const ShardFooter& footer) {
  std::string content(kFooterMagic);
  put_integer(content, footer.index_offset);
  put_integer(content, footer.index_bytes);
  put_save_id(content, footer.save_id);
  put_integer(content, footer.shard);
  put_integer(content, footer.index_crc);
  put_integer(content, kShardVersion);
  TESSERA_CHECK(content.size() == kFooterFields);
  put_integer(content, crc_of(content));
  return framed(kFooterFrame, content);
}

ShardFooter decode_footer(std::string_view bytes) {
  const std::string_view content = unframed(bytes, kFooterFrame, "footer");
  if (content.size() != kFooterFields + 4) damaged("the footer has a wrong size");
  ByteReader reader(content);
  if (reader.take(kFooterMagic.size()) != kFooterMagic) damaged("there is no footer");
  ShardFooter footer;
  footer.index_offset = reader.integer<std::uint64_t>();
  footer.index_bytes = reader.integer<std::uint64_t>();
  footer.save_id = get_save_id(reader);
  footer.shard = reader.integer<std::uint32_t>();
  footer.index_crc = reader.integer<std::uint32_t>();
  const auto version = reader.integer<std::uint32_t>();
  if (reader.integer<std::uint32_t>() != crc_of(content.substr(0, kFooterFields))) {
    damaged("the footer's checksum is wrong");
  }
  check_version(version, 0);
  return footer;
}

std::string encode_padding(std::uint64_t bytes) {
  TESSERA_CHECK(bytes >= kSkippableHeaderBytes);
  return framed(kPaddingFrame, std::string(bytes - kSkippableHeaderBytes, '\0'));
}

std::uint64_t padding_bytes(std::uint64_t offset, std::uint64_t page_bytes) {
  const std::uint64_t gap = (page_bytes - offset % page_bytes) % page_bytes;
  return gap != 0 && gap < kSkippableHeaderBytes ? gap + page_bytes : gap;
}

std::uint64_t chunk_count(std::int64_t count, DType dtype, std::uint32_t chunk_bytes) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(count) * size_of(dtype);
  return (bytes + chunk_bytes - 1) / chunk_bytes;
}

std::string shard_file_name(std::uint32_t shard, std::uint32_t shards) {
  return fmt::format("shard-{:05}-of-{:05}.tsr", shard, shards);
}

bool is_plausible_shape(const std::vector<std::int64_t>& sizes, std::int64_t& elements) {
  if (sizes.size() > kMaxTensorRank) return false;
  elements = 1;
  // Zeros last, so that [huge, huge, 0] is judged by its non-zero sizes as well.
  bool empty = false;
  for (const std::int64_t size : sizes) {
    if (size < 0 || (size > 0 && elements > kMaxElements / size)) return false;
    if (size == 0) empty = true;
    if (size > 0) elements *= size;
  }
  if (empty) elements = 0;
  return true;
}

}  // namespace tessera
