#include "checkpoint/shard_reader.hpp"

#include <tessera/error.hpp>

#include <functional>
#include <string_view>

#include <fmt/format.h>

#include "base/check.hpp"
#include "checkpoint/crc32c.hpp"

namespace tessera {

namespace {

// Whatever goes wrong inside is a damaged checkpoint, and names the file.
template <typename Body>
auto naming(const std::string& path, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    const bool named = error.message().find(path) != std::string::npos;
    throw Error(ErrorCode::kCheckpoint,
                named ? error.message() : fmt::format("'{}': {}", path, error.message()));
  }
}

[[noreturn]] void damaged(const std::string& what) { throw Error(ErrorCode::kCheckpoint, what); }

std::string read_bytes(const RandomAccessFile& file, std::uint64_t offset, std::uint64_t count) {
  std::string bytes(count, '\0');
  file.read(offset, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
  return bytes;
}

}  // namespace

ShardFooter check_shard_ends(const RandomAccessFile& file, const ShardIdentity& identity) {
  return naming(file.path(), [&] {
    const std::uint64_t size = file.size();
    if (size != identity.bytes) {
      damaged(fmt::format("it has {} bytes, the manifest says {}", size, identity.bytes));
    }
    if (size < kShardHeaderBytes + kShardFooterBytes) damaged("it is cut short");
    const ShardHeader header = decode_header(read_bytes(file, 0, kShardHeaderBytes));
    const ShardFooter footer =
        decode_footer(read_bytes(file, size - kShardFooterBytes, kShardFooterBytes));
    if (header.save_id != identity.save_id || footer.save_id != identity.save_id) {
      damaged("it is of another save");
    }
    if (header.shard != identity.shard || footer.shard != identity.shard ||
        header.shards != identity.shards) {
      damaged(fmt::format("it is shard {} of {}, not {} of {}", header.shard, header.shards,
                          identity.shard, identity.shards));
    }
    if (footer.index_offset < kShardHeaderBytes || footer.index_offset > size ||
        footer.index_bytes != size - kShardFooterBytes - footer.index_offset) {
      damaged("the index is not where the footer says");
    }
    return footer;
  });
}

ShardReader::ShardReader(Env& env, const std::string& path, const ShardIdentity& identity) {
  naming(path, [&] {
    file_ = env.open_for_read(path);
    footer_ = check_shard_ends(*file_, identity);
    const std::string encoded = read_bytes(*file_, footer_.index_offset, footer_.index_bytes);
    if (encoded.size() < kSkippableHeaderBytes) damaged("the index is cut short");
    const std::string_view content = std::string_view(encoded).substr(kSkippableHeaderBytes);
    if (crc32c(std::as_bytes(std::span(content.data(), content.size()))) != footer_.index_crc) {
      damaged("the index's checksum is wrong");
    }
    index_ = decode_index(encoded, footer_.index_offset);
  });
}

void ShardReader::read_chunk(std::uint64_t chunk, std::span<std::byte> raw,
                             std::vector<std::byte>& stored, Decompressor& decompressor) const {
  naming(file_->path(), [&] {
    TESSERA_CHECK(chunk < index_.chunks.size());
    const ChunkEntry& entry = index_.chunks[chunk];
    stored.resize(entry.stored_bytes);
    file_->read(entry.offset, stored);
    decode_chunk(chunk, stored, raw, decompressor);
  });
}

void ShardReader::decode_chunk(std::uint64_t chunk, std::span<const std::byte> stored,
                               std::span<std::byte> raw, Decompressor& decompressor) const {
  naming(file_->path(), [&] {
    const ChunkEntry& entry = index_.chunks[chunk];
    TESSERA_CHECK(raw.size() == entry.raw_bytes && stored.size() == entry.stored_bytes);
    if (crc32c(stored) != entry.stored_crc) {
      damaged(fmt::format("chunk {} at byte {} is damaged", chunk, entry.offset));
    }
    decompressor.decompress(stored, raw);
    if (crc32c(raw) != entry.raw_crc) {
      damaged(fmt::format("chunk {} at byte {} decompresses to other bytes", chunk, entry.offset));
    }
  });
}

}  // namespace tessera
