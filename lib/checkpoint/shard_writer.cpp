#include "checkpoint/shard_writer.hpp"

#include <algorithm>
#include <string_view>

#include "base/check.hpp"
#include "checkpoint/crc32c.hpp"

namespace tessera {

namespace {

constexpr std::size_t kPendingBytes = std::size_t{2} << 20;

// Gathers small pieces into large writes and keeps the checksum of all of them.
class ShardOutput {
 public:
  ShardOutput(std::unique_ptr<WritableFile> file, std::vector<std::byte>& pending)
      : file_(std::move(file)), pending_(pending) {
    pending_.clear();
    pending_.reserve(kPendingBytes);
  }

  void append(std::span<const std::byte> data) {
    summary_.crc = crc32c(data, summary_.crc);
    summary_.bytes += data.size();
    if (pending_.size() + data.size() > kPendingBytes) flush();
    if (data.size() > kPendingBytes) {
      file_->append(data);
    } else {
      pending_.insert(pending_.end(), data.begin(), data.end());
    }
  }
  void append(std::string_view text) { append(std::as_bytes(std::span(text.data(), text.size()))); }

  std::uint64_t offset() const { return summary_.bytes; }

  ShardSummary finish() {
    flush();
    file_->sync();
    file_->close();
    return summary_;
  }

 private:
  void flush() {
    if (!pending_.empty()) file_->append(pending_);
    pending_.clear();
  }

  std::unique_ptr<WritableFile> file_;
  std::vector<std::byte>& pending_;
  ShardSummary summary_;
};

std::span<const std::byte> bytes_of(const StateSlice& slice) {
  if (!slice.data.defined() || slice.data.elements() == 0) return {};
  return {static_cast<const std::byte*>(slice.data.raw_data()), slice.data.bytes()};
}

}  // namespace

ShardScratch::ShardScratch(int compression_level) : compressor(compression_level) {}

ShardSummary write_shard(Env& env, const std::string& path, const ShardHeader& header,
                         std::span<const StateSlice> slices, ShardScratch& scratch) {
  ShardOutput output(env.open_for_write(path, OpenMode::kExclusive), scratch.pending);
  output.append(encode_header(header));

  ShardIndex index;
  for (const StateSlice& slice : slices) {
    const std::span<const std::byte> bytes = bytes_of(slice);
    const auto count = static_cast<std::int64_t>(bytes.size() / size_of(slice.dtype));
    index.slices.push_back(
        {slice.name, slice.dtype, slice.shape, slice.begin, count, index.chunks.size()});
    for (std::size_t begin = 0; begin < bytes.size(); begin += kChunkBytes) {
      const auto raw =
          bytes.subspan(begin, std::min<std::size_t>(kChunkBytes, bytes.size() - begin));
      const std::span<const std::byte> stored = scratch.compressor.compress(raw);
      ChunkEntry& chunk = index.chunks.emplace_back();
      chunk.offset = output.offset();
      chunk.stored_bytes = static_cast<std::uint32_t>(stored.size());
      chunk.raw_bytes = static_cast<std::uint32_t>(raw.size());
      chunk.stored_crc = crc32c(stored);
      chunk.raw_crc = crc32c(raw);
      output.append(stored);
    }
  }

  const std::uint64_t gap = padding_bytes(output.offset(), kShardPageBytes);
  if (gap != 0) output.append(encode_padding(gap));
  const std::string encoded = encode_index(index);
  ShardFooter footer;
  footer.index_offset = output.offset();
  footer.index_bytes = encoded.size();
  footer.save_id = header.save_id;
  footer.shard = header.shard;
  const std::string_view content = std::string_view(encoded).substr(kSkippableHeaderBytes);
  footer.index_crc = crc32c(std::as_bytes(std::span(content.data(), content.size())));
  output.append(encoded);
  output.append(encode_footer(footer));
  return output.finish();
}

}  // namespace tessera
