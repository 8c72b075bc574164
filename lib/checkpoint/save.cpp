// Saving. Every step that can fail on one rank ends in an outcome that all ranks share; nothing
// that exists is touched before the new checkpoint is complete.
#include <tessera/error.hpp>
#include <tessera/version.hpp>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/agreement.hpp"
#include "base/bytes.hpp"
#include "base/check.hpp"
#include "checkpoint/catalog.hpp"
#include "checkpoint/checkpointer_impl.hpp"
#include "checkpoint/shard_reader.hpp"

namespace tessera {

namespace {

// The state rarely shrinks below 84 %; only a save that is very unlikely to fit is not tried.
constexpr double kLeastCompressedShare = 0.75;

// All slices of this rank in the order of the sources, checked.
std::vector<StateSlice> slices_of(const std::vector<StateSource*>& sources) {
  std::vector<StateSlice> slices;
  for (StateSource* source : sources) {
    for (StateSlice& slice : source->state_to_save()) {
      const std::int64_t count = slice.data.defined() ? slice.data.elements() : 0;
      if (slice.name.empty() || slice.name.size() > kMaxNameBytes) {
        fail(ErrorCode::kUsage, "a state has an empty or very long name: '{}'",
             slice.name.substr(0, 100));
      }
      std::int64_t elements = 0;
      if (!is_plausible_shape(slice.shape.sizes(), elements)) {
        fail(ErrorCode::kUsage, "'{}' has an impossible shape {}", slice.name,
             slice.shape.to_string());
      }
      if (slice.begin < 0 || slice.begin > elements || count > elements - slice.begin) {
        fail(ErrorCode::kUsage, "'{}' has elements {} to {}, which {} has not", slice.name,
             slice.begin, slice.begin + count, slice.shape.to_string());
      }
      if (count > 0 && slice.data.dtype() != slice.dtype) {
        fail(ErrorCode::kUsage, "'{}' is said to be {} and is {}", slice.name,
             to_string(slice.dtype), to_string(slice.data.dtype()));
      }
      slices.push_back(std::move(slice));
    }
  }
  return slices;
}

}  // namespace

void Checkpointer::Impl::save(std::int64_t step, const std::vector<StateSource*>& sources,
                              const VersionTriple& versions) {
  TESSERA_CHECK(step >= 0, "step {}", step);
  Manifest manifest;
  manifest.step = step;
  manifest.code_version = version_string();
  manifest.mesh = {{"data", world.size()}};
  manifest.versions = versions;
  manifest.config = config;
  std::string target;  // what this save made, on the root
  try {
    save_into(target, std::move(manifest), sources);
  } catch (const Error& error) {
    // When the ranks have lost each other, some may still be writing: leave it, it has no manifest.
    if (error.code() == ErrorCode::kPeer) throw;
    if (!target.empty()) {
      try {
        remove_checkpoint(env, target);
      } catch (const Error& second) {
        warn("the unfinished checkpoint stays behind: " + second.message());
      }
    }
    throw Error(
        error.code(),
        fmt::format("the checkpoint of step {} could not be saved: {}", step, error.message()),
        error.context());
  }
}

void Checkpointer::Impl::save_into(std::string& target, Manifest manifest,
                                   const std::vector<StateSource*>& sources) {
  Communicator& comm = world.comm();
  const std::string label = fmt::format("save step {}", manifest.step);

  std::vector<StateSlice> slices;
  const auto sizes = gather_outcomes(comm, label, [&] {
    for (StateSource* source : sources) source->save_common(manifest.common);
    slices = slices_of(sources);
    std::uint64_t bytes = 0;
    for (const StateSlice& slice : slices) bytes += slice.data.defined() ? slice.data.bytes() : 0;
    return std::to_string(bytes);
  });
  const std::int64_t raw_bytes = std::accumulate(
      sizes.begin(), sizes.end(), std::int64_t{0},
      [](std::int64_t sum, const std::string& size) { return sum + std::stoll(size); });

  const std::string decision =
      decide_on_root(comm, label, [&] { return prepare(manifest, raw_bytes, target); });
  ByteReader reader(decision);
  ShardHeader header;
  TESSERA_CHECK(parse_save_id(reader.string(), header.save_id));
  const std::string folder(reader.string());
  header.shard = static_cast<std::uint32_t>(world.rank());
  header.shards = static_cast<std::uint32_t>(world.size());
  manifest.save_id = header.save_id;

  const auto summaries = gather_outcomes(comm, label, [&] {
    const std::string path = join_path(folder, shard_file_name(header.shard, header.shards));
    const ShardSummary summary = write_shard(env, path, header, slices, scratch);
    std::string encoded;
    put_integer(encoded, summary.bytes);
    put_integer(encoded, summary.crc);
    return encoded;
  });
  decide_on_root(comm, label, [&] {
    publish(folder, manifest, summaries);
    target.clear();
    tidy(manifest.step);
    return std::string();
  });
}

// On the root: checks the space, makes the folder that all ranks write to; returns id and folder.
std::string Checkpointer::Impl::prepare(const Manifest& manifest, std::int64_t raw_bytes,
                                        std::string& target) {
  const bool is_new = !env.exists(directory);
  env.make_directories(directory);
  if (is_new) env.sync_directory(parent_path(directory));
  const std::uint64_t free = env.free_bytes(directory);
  if (static_cast<double>(raw_bytes) * kLeastCompressedShare > static_cast<double>(free)) {
    fail(ErrorCode::kData, "'{}' has {} bytes free, the state has {}", directory, free, raw_bytes);
  }

  std::string folder = join_path(directory, checkpoint_name(manifest.step));
  if (env.exists(join_path(folder, kManifestName))) folder += ".new";
  if (env.exists(folder)) {
    warn(fmt::format("'{}' is left from a save that did not end and is replaced", folder));
    remove_checkpoint(env, folder);
  }
  target = folder;
  env.make_directories(folder);
  if (run_id.empty()) run_id = random_id();
  std::string decision;
  put_string(decision, random_id());
  put_string(decision, folder);
  return decision;
}

// On the root, when all shards are written: checks them and writes the manifest.
void Checkpointer::Impl::publish(const std::string& folder, Manifest& manifest,
                                 const std::vector<std::string>& summaries) {
  env.sync_directory(folder);
  const auto shards = static_cast<std::uint32_t>(summaries.size());
  for (const std::string& summary : summaries) {
    ByteReader reader(summary);
    ManifestShard& shard = manifest.shards.emplace_back();
    shard.bytes = reader.integer<std::uint64_t>();
    shard.crc = reader.integer<std::uint32_t>();
  }
  // What the shards hold is read from them, as a reader will see it.
  std::vector<std::vector<SliceEntry>> slices;
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    const std::string path = join_path(folder, shard_file_name(shard, shards));
    try {
      const ShardReader reader(env, path, identity_of(manifest, shard));
      manifest.shards[shard].chunks = reader.index().chunks.size();
      slices.push_back(reader.index().slices);
    } catch (const Error& error) {
      throw Error(ErrorCode::kData, "a shard does not read back: " + error.message());
    }
  }
  manifest.tensors = merge_slices(slices);
  manifest.run_id = run_id;
  env.write_file_atomically(join_path(folder, kManifestName), encode_manifest(manifest));
  env.sync_directory(directory);

  const std::string place = join_path(directory, checkpoint_name(manifest.step));
  if (folder != place) take_place(folder, place);
}

// Replaces a complete checkpoint of the same step by the new one in `folder`.
void Checkpointer::Impl::take_place(const std::string& folder, const std::string& place) {
  const std::string old = place + ".old";
  if (env.exists(old)) remove_checkpoint(env, old);
  env.rename(place, old);
  try {
    env.rename(folder, place);
  } catch (const Error&) {
    env.rename(old, place);
    throw;
  }
  env.sync_directory(directory);
}

// After the checkpoint is complete: the hint, then what is superseded. Failures only warn.
void Checkpointer::Impl::tidy(std::int64_t step) {
  const auto warn_on_error = [this](const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      warn("after the checkpoint was saved: " + error.message());
    }
  };
  warn_on_error([&] {
    env.write_file_atomically(join_path(directory, "latest"), checkpoint_name(step) + "\n");
  });
  for (const char* suffix : {".old", ".new"}) {
    warn_on_error([&] {
      const std::string path = join_path(directory, checkpoint_name(step) + suffix);
      if (env.exists(path)) remove_checkpoint(env, path);
    });
  }
  warn_on_error([&] {
    for (const CheckpointEntry& entry :
         checkpoints_to_drop(env, directory, run_id, step, options.keep_last)) {
      remove_checkpoint(env, entry.path);
    }
  });
}

}  // namespace tessera
