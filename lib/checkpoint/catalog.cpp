#include "checkpoint/catalog.hpp"

#include <tessera/error.hpp>

#include <algorithm>
#include <charconv>
#include <tuple>

#include <fmt/format.h>

#include "base/check.hpp"

namespace tessera {

namespace {

constexpr std::string_view kPrefix = "step-";

// Parses "step-<digits>[.new|.old]"; false for other names.
bool parse_name(const std::string& name, std::int64_t& step, int& kind) {
  if (!name.starts_with(kPrefix)) return false;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  if (begin == end || *begin < '0' || *begin > '9') return false;
  const auto [rest, problem] = std::from_chars(begin, end, step);
  if (problem != std::errc{}) return false;
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  kind = suffix == ".old" ? 0 : suffix == ".new" ? 1 : 2;
  return kind != 2 || suffix.empty();
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::vector<CheckpointEntry> find_checkpoints(Env& env, const std::string& directory) {
  struct Found {
    std::int64_t step;
    int kind;
    std::string name;
    bool operator<(const Found& other) const {
      return std::tie(step, kind, name) < std::tie(other.step, other.kind, other.name);
    }
  };
  if (!env.exists(directory)) return {};
  std::vector<Found> found;
  for (const std::string& name : env.list_directory(directory)) {
    Found entry{0, 0, name};
    if (!parse_name(name, entry.step, entry.kind)) continue;
    if (env.is_directory(join_path(directory, name))) found.push_back(std::move(entry));
  }
  std::sort(found.begin(), found.end());
  std::vector<CheckpointEntry> entries;
  for (const Found& entry : found) {
    const std::string path = join_path(directory, entry.name);
    const bool has_manifest = env.exists(join_path(path, kManifestName));
    entries.push_back({path, entry.name, entry.step, entry.kind == 2, has_manifest});
  }
  return entries;
}

Manifest read_manifest(Env& env, const std::string& path, std::string* text) {
  try {
    if (!env.exists(path)) fail(ErrorCode::kCheckpoint, "there is no checkpoint at '{}'", path);
    const std::string file = join_path(path, kManifestName);
    if (!env.exists(file)) {
      fail(ErrorCode::kCheckpoint, "'{}' has no {}: it is not complete", path, kManifestName);
    }
    std::string content = env.read_file(file, kMaxManifestBytes);
    Manifest manifest = decode_manifest(content);
    if (text != nullptr) *text = std::move(content);
    return manifest;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    const bool named = error.message().find(path) != std::string::npos;
    throw Error(ErrorCode::kCheckpoint,
                named ? error.message() : fmt::format("'{}': {}", path, error.message()));
  }
}

ShardIdentity identity_of(const Manifest& manifest, std::uint32_t shard) {
  return {manifest.save_id, shard, static_cast<std::uint32_t>(manifest.shards.size()),
          manifest.shards[shard].bytes};
}

Manifest inspect_checkpoint(Env& env, const std::string& path, std::string* text) {
  Manifest manifest = read_manifest(env, path, text);
  const auto shards = static_cast<std::uint32_t>(manifest.shards.size());
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    const std::string file = join_path(path, shard_file_name(shard, shards));
    try {
      check_shard_ends(*env.open_for_read(file), identity_of(manifest, shard));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kData) throw;
      throw Error(ErrorCode::kCheckpoint, error.message());
    }
  }
  return manifest;
}

Manifest inspect_checkpoint(Env& env, const CheckpointEntry& entry, std::string* text) {
  Manifest manifest = inspect_checkpoint(env, entry.path, text);
  if (manifest.step != entry.step) {
    fail(ErrorCode::kCheckpoint, "'{}' holds step {}", entry.path, manifest.step);
  }
  return manifest;
}

void remove_checkpoint(Env& env, const std::string& path) {
  const std::string manifest = join_path(path, kManifestName);
  if (env.exists(manifest)) {
    env.remove_file(manifest);
    env.sync_directory(path);
  }
  env.remove_tree(path);
}

std::vector<CheckpointEntry> checkpoints_to_drop(Env& env, const std::string& directory,
                                                 const std::string& run_id, std::int64_t saved_step,
                                                 std::int64_t keep_last) {
  if (keep_last <= 0) return {};
  std::vector<CheckpointEntry> complete;
  for (const CheckpointEntry& entry : find_checkpoints(env, directory)) {
    if (!entry.has_manifest || entry.step >= saved_step) continue;
    try {
      if (inspect_checkpoint(env, entry).run_id == run_id) complete.push_back(entry);
    } catch (const Error&) {
      // Not one that could be loaded: it neither counts nor is it ours to remove.
    }
  }
  const auto kept = static_cast<std::size_t>(keep_last - 1);
  complete.resize(complete.size() > kept ? complete.size() - kept : 0);
  return complete;
}

}  // namespace tessera
