// Looking at checkpoints without a run: listing, summary, full check.
#include <tessera/checkpoint.hpp>
#include <tessera/error.hpp>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "checkpoint/catalog.hpp"
#include "checkpoint/crc32c.hpp"
#include "checkpoint/shard_reader.hpp"

namespace tessera {

namespace {

// Reads a shard from its first byte to its last, once, and checks all of it.
class ShardCheck {
 public:
  ShardCheck(Env& env, const std::string& path, const Manifest& manifest, std::uint32_t number)
      : reader_(env, path, identity_of(manifest, number)),
        expected_(manifest.shards[number]),
        path_(path) {}

  void run() {
    const auto& chunks = reader_.index().chunks;
    if (chunks.size() != expected_.chunks) damaged("has other chunks than the manifest says");
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      skip_to(chunks[i].offset);
      stored_.resize(chunks[i].stored_bytes);
      read(stored_);
      raw_.resize(chunks[i].raw_bytes);
      reader_.decode_chunk(i, stored_, raw_, decompressor_);
    }
    skip_to(reader_.file().size());
    if (crc_ != expected_.crc) damaged("is damaged: its checksum is not the manifest's");
  }
  const std::vector<SliceEntry>& slices() const { return reader_.index().slices; }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    throw Error(ErrorCode::kCheckpoint, fmt::format("'{}' {}", path_, what));
  }
  void read(std::span<std::byte> destination) {
    try {
      reader_.file().read(offset_, destination);
    } catch (const Error& error) {
      throw Error(ErrorCode::kCheckpoint, error.message());
    }
    crc_ = crc32c(destination, crc_);
    offset_ += destination.size();
  }
  void skip_to(std::uint64_t offset) {
    while (offset_ < offset) {
      stored_.resize(std::min<std::uint64_t>(offset - offset_, kChunkBytes));
      read(stored_);
    }
  }

  ShardReader reader_;
  ManifestShard expected_;
  std::string path_;
  Decompressor decompressor_;
  std::vector<std::byte> stored_;
  std::vector<std::byte> raw_;
  std::uint64_t offset_ = 0;
  std::uint32_t crc_ = 0;
};

bool same_tensors(const std::vector<ManifestTensor>& a, const std::vector<ManifestTensor>& b) {
  const auto same_slice = [](const ManifestSlice& x, const ManifestSlice& y) {
    return x.begin == y.begin && x.count == y.count && x.shard == y.shard &&
           x.first_chunk == y.first_chunk;
  };
  const auto same = [&](const ManifestTensor& x, const ManifestTensor& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape &&
           std::equal(x.slices.begin(), x.slices.end(), y.slices.begin(), y.slices.end(),
                      same_slice);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

}  // namespace

std::vector<CheckpointInfo> list_checkpoints(const std::string& directory) {
  Env& env = Env::posix();
  std::vector<CheckpointInfo> infos;
  for (const CheckpointEntry& entry : find_checkpoints(env, directory)) {
    CheckpointInfo info{entry.path, entry.step, false, {}};
    try {
      inspect_checkpoint(env, entry);
      info.valid = true;
    } catch (const Error& error) {
      info.problem = error.message();
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

std::string describe_checkpoint(const std::string& path) {
  using Json = nlohmann::ordered_json;
  const Manifest manifest = read_manifest(Env::posix(), path);
  Json tensors = Json::object();
  std::int64_t elements = 0;
  std::uint64_t raw_bytes = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    tensors[tensor.name] = fmt::format("{} {}", to_string(tensor.dtype), tensor.shape.to_string());
    elements += tensor.shape.elements();
    raw_bytes += static_cast<std::uint64_t>(tensor.shape.elements()) * size_of(tensor.dtype);
  }
  std::uint64_t stored_bytes = 0;
  for (const ManifestShard& shard : manifest.shards) stored_bytes += shard.bytes;
  Json common = Json::object();
  for (const auto& [key, value] : manifest.common) common[key] = Json::parse(value);

  Json summary;
  summary["path"] = path;
  summary["step"] = manifest.step;
  summary["format_version"] = kManifestVersion;
  summary["code_version"] = manifest.code_version;
  summary["save_id"] = manifest.save_id.to_hex();
  summary["run_id"] = manifest.run_id;
  summary["world_size"] = manifest.shards.size();
  summary["mesh"] = manifest.mesh;
  summary["page_size"] = manifest.page_bytes;
  summary["stored_bytes"] = stored_bytes;
  summary["raw_bytes"] = raw_bytes;
  summary["elements"] = elements;
  summary["versions"] = {{"model", manifest.versions.model},
                         {"data", manifest.versions.data},
                         {"config", manifest.versions.config}};
  summary["common"] = std::move(common);
  summary["tensors"] = std::move(tensors);
  return summary.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::int64_t verify_checkpoint(const std::string& path) {
  return verify_checkpoint(Env::posix(), path);
}

std::int64_t verify_checkpoint(Env& env, const std::string& path) {
  std::string text;
  const Manifest manifest = inspect_checkpoint(env, path, &text);
  const auto shards = static_cast<std::uint32_t>(manifest.shards.size());
  std::uint64_t bytes = text.size();
  std::vector<std::vector<SliceEntry>> slices;
  for (std::uint32_t number = 0; number < shards; ++number) {
    ShardCheck check(env, join_path(path, shard_file_name(number, shards)), manifest, number);
    check.run();
    bytes += manifest.shards[number].bytes;
    slices.push_back(check.slices());
  }
  std::vector<ManifestTensor> tensors;
  try {
    tensors = merge_slices(slices);
  } catch (const Error& error) {
    fail(ErrorCode::kCheckpoint, "'{}': {}", path, error.message());
  }
  if (!same_tensors(tensors, manifest.tensors)) {
    fail(ErrorCode::kCheckpoint, "'{}': the shards hold other tensors than the manifest says",
         path);
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace tessera
