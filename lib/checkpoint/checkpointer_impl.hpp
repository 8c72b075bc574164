// What the parts of Checkpointer share: saving (save.cpp), loading (load.cpp).
#pragma once

#include <tessera/checkpoint.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/env.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/shard_writer.hpp"

namespace tessera {

struct Checkpointer::Impl {
  Impl(const CheckpointOptions& options_in, std::string directory_in, World& world_in,
       std::string config_in, Env& env_in);

  bool is_root() const { return world.rank() == 0; }
  void warn(const std::string& message) const {
    if (is_root()) world.logger().warning(message);
  }

  // save.cpp
  void save(std::int64_t step, const std::vector<StateSource*>& sources,
            const VersionTriple& versions);
  void save_into(std::string& target, Manifest manifest, const std::vector<StateSource*>& sources);
  std::string prepare(const Manifest& manifest, std::int64_t raw_bytes, std::string& target);
  void publish(const std::string& target, Manifest& manifest,
               const std::vector<std::string>& summaries);
  void take_place(const std::string& target, const std::string& place);
  void tidy(std::int64_t step);

  // load.cpp
  std::optional<std::int64_t> load_latest(const std::vector<StateSource*>& sources,
                                          const VersionTriple& versions,
                                          const LoadOptions& options);
  std::int64_t load(const std::string& path, const std::vector<StateSource*>& sources,
                    const VersionTriple& versions, const LoadOptions& options);
  std::string choose_newest(const std::string& from, const std::vector<std::string>& rejected,
                            bool must_exist);
  std::vector<StateSlice> check_fit(const std::string& path, const Manifest& manifest,
                                    const std::vector<StateSource*>& sources,
                                    const VersionTriple& versions, const LoadOptions& options);
  void finish_load(const std::string& path, const Manifest& manifest,
                   const std::vector<StateSource*>& sources);

  CheckpointOptions options;
  std::string directory;
  World& world;
  std::string config;
  Env& env;
  std::string run_id;  // of the run that is continued; made on the first save otherwise (root)
  ShardScratch scratch;
};

/// 32 random hexadecimal digits.
std::string random_id();

}  // namespace tessera
