// The checkpoints in a directory: their names, which are complete, and which may go.
//
// A checkpoint of step 500 is the directory `step-00000500`. When a step that is complete already
// is saved again, the new one is written to `step-00000500.new`; then the old one becomes
// `step-00000500.old`, the new one takes its place, and the old one is removed. Whatever of this a
// crash interrupts, one complete checkpoint of the step can be found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/shard_reader.hpp"

namespace tessera {

/// "step-00000500".
std::string checkpoint_name(std::int64_t step);

/// A directory whose name says that it is a checkpoint.
struct CheckpointEntry {
  std::string path;
  std::string name;
  std::int64_t step = 0;
  bool plain = true;          ///< false for .new and .old
  bool has_manifest = false;  ///< some, valid or not
};

/// The directories in `directory` by step as a number, oldest first. Of one step, .old comes before
/// .new and both before the plain one. A missing directory holds none.
std::vector<CheckpointEntry> find_checkpoints(Env& env, const std::string& directory);

/// The manifest of the checkpoint at `path`. Raises Error{kCheckpoint} naming path and reason.
Manifest read_manifest(Env& env, const std::string& path, std::string* text = nullptr);

/// What `shard` of a checkpoint must be.
ShardIdentity identity_of(const Manifest& manifest, std::uint32_t shard);

/// Reads the manifest and checks every shard's size, header and footer, without reading more.
/// Raises Error{kCheckpoint}. `text` gets the manifest's text.
Manifest inspect_checkpoint(Env& env, const std::string& path, std::string* text = nullptr);
/// The same for an entry, whose step must be the manifest's too.
Manifest inspect_checkpoint(Env& env, const CheckpointEntry& entry, std::string* text = nullptr);

/// Reads every byte of the checkpoint at `path` once and checks it; returns how many there are.
/// Raises Error{kCheckpoint} naming the first fault.
std::int64_t verify_checkpoint(Env& env, const std::string& path);

/// Removes the checkpoint at `path`, its manifest first: what is left of an interrupted removal is
/// not a checkpoint.
void remove_checkpoint(Env& env, const std::string& path);

/// The checkpoints to drop after `saved_step` was saved: those of the run `run_id` that are
/// complete and older, but for the newest `keep_last` - 1. None when keep_last is 0. Those of other
/// runs, incomplete ones and ones of later steps stay.
std::vector<CheckpointEntry> checkpoints_to_drop(Env& env, const std::string& directory,
                                                 const std::string& run_id, std::int64_t saved_step,
                                                 std::int64_t keep_last);

}  // namespace tessera
