// The manifest: what a checkpoint holds and where. A checkpoint is complete when its manifest is.
#pragma once

#include <tessera/checkpoint.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format.hpp"

namespace tessera {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int kManifestVersion = 1;
/// A longer manifest is refused.
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 29;

/// An interval of a tensor and where it is stored.
struct ManifestSlice {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::uint32_t shard = 0;
  std::uint64_t first_chunk = 0;
};

struct ManifestTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  /// In order; together every element exactly once.
  std::vector<ManifestSlice> slices;
};

struct ManifestShard {
  std::uint64_t bytes = 0;
  std::uint64_t chunks = 0;
  std::uint32_t crc = 0;  ///< CRC32C of the whole file
};

struct Manifest {
  std::int64_t step = 0;
  SaveId save_id;
  std::string run_id;  ///< equal in all checkpoints of one run, resumed or not
  std::string code_version;
  std::uint32_t page_bytes = kShardPageBytes;
  std::uint32_t chunk_bytes = kChunkBytes;
  std::map<std::string, std::int64_t> mesh;  ///< axis -> size
  VersionTriple versions;
  StateMap common;
  std::string config;  ///< resolved YAML
  std::vector<ManifestShard> shards;
  std::vector<ManifestTensor> tensors;  ///< sorted by name

  const ManifestTensor* find(std::string_view name) const;  ///< or null
};

/// The file's text. Its last member, "commit", is a hash of all bytes before it. Raises
/// Error{kUsage} naming a key of the common state that is not JSON.
std::string encode_manifest(const Manifest& manifest);

/// Checks the hash, then every value: sizes are possible, names of files are the ones they must be,
/// every tensor is covered exactly once by slices whose chunks exist. Raises Error{kCheckpoint}
/// with the reason.
Manifest decode_manifest(std::string_view text);

/// Builds the table of tensors from the slices of all shards (element i: shard i). Raises
/// Error{kUsage} naming a tensor whose shapes or types differ between shards, or that is not
/// covered exactly once.
std::vector<ManifestTensor> merge_slices(const std::vector<std::vector<SliceEntry>>& shards);

/// What is wrong with the slices' cover of the tensor, or "".
std::string cover_problem(const ManifestTensor& tensor);

}  // namespace tessera
