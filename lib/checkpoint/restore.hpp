// Reads the intervals that a rank wants out of a checkpoint's shards.
#pragma once

#include <tessera/checkpoint.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "checkpoint/manifest.hpp"

namespace tessera {

/// Compares what is wanted with what there is, without reading data. Raises Error{kCheckpoint}
/// naming the first tensor that is missing, has another shape or a type that cannot be converted.
void check_wanted(const Manifest& manifest, std::span<const StateSlice> wanted);

/// Fills the slices from the chunks they intersect, and from no others, checking each chunk. Chunks
/// that lie inside a slice of the same type are decompressed in place; beyond that, memory for one
/// chunk and a few shard indices is used. check_wanted() came before. Raises Error{kCheckpoint}
/// naming what is damaged; slices may be half overwritten then.
void restore_slices(Env& env, const std::string& path, const Manifest& manifest,
                    std::span<const StateSlice> wanted);

}  // namespace tessera
