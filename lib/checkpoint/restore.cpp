#include "checkpoint/restore.hpp"

#include <tessera/error.hpp>

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/check.hpp"
#include "checkpoint/catalog.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/shard_reader.hpp"

namespace tessera {

namespace {

constexpr std::size_t kMaxOpenShards = 8;

std::int64_t elements_of(const StateSlice& slice) {
  return slice.data.defined() ? slice.data.elements() : 0;
}

class Restorer {
 public:
  Restorer(Env& env, const std::string& path, const Manifest& manifest)
      : env_(env), path_(path), manifest_(manifest) {}

  void restore(const StateSlice& wanted) {
    const std::int64_t end = wanted.begin + elements_of(wanted);
    const ManifestTensor& tensor = *manifest_.find(wanted.name);
    const std::vector<ManifestSlice>& slices = tensor.slices;
    auto slice = std::upper_bound(
        slices.begin(), slices.end(), wanted.begin,
        [](std::int64_t begin, const ManifestSlice& other) { return begin < other.begin; });
    if (slice != slices.begin()) --slice;
    for (; slice != slices.end() && slice->begin < end; ++slice) {
      restore_part(tensor, *slice, wanted, std::max(wanted.begin, slice->begin),
                   std::min(end, slice->begin + slice->count));
    }
  }

 private:
  // Elements [begin, end) of the tensor, which `slice` holds.
  void restore_part(const ManifestTensor& tensor, const ManifestSlice& slice,
                    const StateSlice& wanted, std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    const ShardReader& shard = opened(slice.shard);
    check_slice(tensor, slice, shard);
    const auto per_chunk = static_cast<std::int64_t>(manifest_.chunk_bytes / size_of(tensor.dtype));
    const DType to = wanted.data.dtype();
    auto* destination = static_cast<std::byte*>(wanted.data.raw_data());

    for (std::int64_t chunk = (begin - slice.begin) / per_chunk;; ++chunk) {
      const std::int64_t chunk_begin = slice.begin + chunk * per_chunk;
      if (chunk_begin >= end) break;
      const std::int64_t chunk_end = std::min(chunk_begin + per_chunk, slice.begin + slice.count);
      const std::int64_t from = std::max(begin, chunk_begin);
      const std::int64_t until = std::min(end, chunk_end);
      const std::uint64_t number = slice.first_chunk + static_cast<std::uint64_t>(chunk);
      const auto raw_bytes =
          static_cast<std::size_t>(chunk_end - chunk_begin) * size_of(tensor.dtype);
      std::byte* place = destination + static_cast<std::size_t>(from - wanted.begin) * size_of(to);
      if (to == tensor.dtype && from == chunk_begin && until == chunk_end) {
        shard.read_chunk(number, std::span(place, raw_bytes), stored_, decompressor_);
        continue;
      }
      raw_.resize(raw_bytes);
      shard.read_chunk(number, raw_, stored_, decompressor_);
      copy_elements(
          raw_.data() + static_cast<std::size_t>(from - chunk_begin) * size_of(tensor.dtype),
          tensor.dtype, place, to, static_cast<std::size_t>(until - from));
    }
  }

  // The shard must say the same of this slice as the manifest does.
  static void check_slice(const ManifestTensor& tensor, const ManifestSlice& slice,
                          const ShardReader& shard) {
    const auto& entries = shard.index().slices;
    auto entry = std::lower_bound(
        entries.begin(), entries.end(), slice.first_chunk,
        [](const SliceEntry& other, std::uint64_t chunk) { return other.first_chunk < chunk; });
    // Slices without elements share their first chunk with the one after them.
    while (entry != entries.end() && entry->count == 0) ++entry;
    if (entry == entries.end() || entry->first_chunk != slice.first_chunk ||
        entry->name != tensor.name || entry->dtype != tensor.dtype || entry->begin != slice.begin ||
        entry->count != slice.count) {
      fail(ErrorCode::kCheckpoint, "'{}' does not hold '{}' where the manifest says",
           shard.file().path(), tensor.name);
    }
  }

  const ShardReader& opened(std::uint32_t shard) {
    const auto found = std::find_if(open_.begin(), open_.end(),
                                    [shard](const auto& open) { return open.first == shard; });
    if (found != open_.end()) {
      std::rotate(found, found + 1, open_.end());
    } else {
      if (open_.size() == kMaxOpenShards) open_.erase(open_.begin());
      const auto shards = static_cast<std::uint32_t>(manifest_.shards.size());
      auto reader = std::make_unique<ShardReader>(
          env_, join_path(path_, shard_file_name(shard, shards)), identity_of(manifest_, shard));
      if (reader->index().chunk_bytes != manifest_.chunk_bytes ||
          reader->index().chunks.size() != manifest_.shards[shard].chunks) {
        fail(ErrorCode::kCheckpoint, "'{}' has other chunks than the manifest says",
             reader->file().path());
      }
      open_.emplace_back(shard, std::move(reader));
    }
    return *open_.back().second;
  }

  Env& env_;
  const std::string& path_;
  const Manifest& manifest_;
  std::vector<std::pair<std::uint32_t, std::unique_ptr<ShardReader>>> open_;  // newest last
  std::vector<std::byte> stored_;
  std::vector<std::byte> raw_;
  Decompressor decompressor_;
};

}  // namespace

void check_wanted(const Manifest& manifest, std::span<const StateSlice> wanted) {
  for (const StateSlice& slice : wanted) {
    const ManifestTensor* tensor = manifest.find(slice.name);
    if (tensor == nullptr) {
      fail(ErrorCode::kCheckpoint, "the checkpoint has no tensor '{}'", slice.name);
    }
    if (!(tensor->shape == slice.shape)) {
      fail(ErrorCode::kCheckpoint, "'{}' has the shape {} in the checkpoint and {} here",
           slice.name, tensor->shape.to_string(), slice.shape.to_string());
    }
    const std::int64_t count = elements_of(slice);
    TESSERA_CHECK(slice.begin >= 0 && count <= slice.shape.elements() - slice.begin,
                  "'{}' wants elements {} to {} of {}", slice.name, slice.begin,
                  slice.begin + count, slice.shape.to_string());
    if (count > 0 && !can_convert(tensor->dtype, slice.data.dtype())) {
      fail(ErrorCode::kCheckpoint, "'{}' is {} in the checkpoint and cannot become {}", slice.name,
           to_string(tensor->dtype), to_string(slice.data.dtype()));
    }
  }
}

void restore_slices(Env& env, const std::string& path, const Manifest& manifest,
                    std::span<const StateSlice> wanted) {
  Restorer restorer(env, path, manifest);
  for (const StateSlice& slice : wanted) {
    if (elements_of(slice) > 0) restorer.restore(slice);
  }
}

}  // namespace tessera
