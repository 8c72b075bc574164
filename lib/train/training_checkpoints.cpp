#include <tessera/training_checkpoints.hpp>
#include <tessera/version.hpp>

#include <string>

#include <fmt/format.h>

#include "base/agreement.hpp"
#include "base/env.hpp"
#include "base/philox.hpp"

namespace tessera {

namespace {

std::string directory_of(const Config& config) {
  return config.checkpoint.dir.empty() ? join_path(config.run.dir, "checkpoints")
                                       : config.checkpoint.dir;
}

}  // namespace

TrainingCheckpoints::TrainingCheckpoints(const Config& config, World& world, Engine& engine,
                                         DataLoader& data)
    : config_(&config),
      world_(&world),
      engine_(&engine),
      data_(&data),
      store_(config.checkpoint, directory_of(config), world, config.resolved_yaml) {}

VersionTriple TrainingCheckpoints::versions() const {
  const std::string code_and_config = std::string(version_string()) + "\n" + config_->resolved_yaml;
  return {engine_->fingerprint(), data_->fingerprint(),
          fmt::format("{:016x}", hash_name(code_and_config))};
}

void TrainingCheckpoints::check_writable() {
  if (config_->checkpoint.save_interval > 0) store_.check_writable();
}

std::optional<std::int64_t> TrainingCheckpoints::resume_latest() {
  const auto step = store_.load_latest(sources(), versions());
  if (step) saved_step_ = *step;
  return step;
}

std::int64_t TrainingCheckpoints::resume(const std::string& path) {
  return store_.load(path, sources(), versions());
}

std::int64_t TrainingCheckpoints::set_aside_after(std::int64_t step) {
  return std::stoll(decide_on_root(world_->comm(), "checkpoints set aside", [&] {
    Env& env = Env::posix();
    const std::string place = join_path(directory(), "set-aside");
    std::int64_t moved = 0;
    for (const CheckpointInfo& info : list_checkpoints(directory())) {
      if (info.step <= step) continue;
      env.make_directories(place);
      const std::string name = join_path(place, fmt::format("step-{:08}", info.step));
      std::string target = name;
      for (int copy = 2; env.exists(target); ++copy) target = fmt::format("{}-{}", name, copy);
      env.rename(info.path, target);
      ++moved;
    }
    if (moved > 0) env.sync_directory(directory());
    return std::to_string(moved);
  }));
}

bool TrainingCheckpoints::due() const {
  const std::int64_t interval = config_->checkpoint.save_interval;
  if (interval <= 0) return false;
  return engine_->step() % interval == 0 || engine_->step() >= config_->trainer.max_steps;
}

void TrainingCheckpoints::save() {
  if (saved_step_ == engine_->step()) return;
  store_.save(engine_->step(), sources(), versions());
  saved_step_ = engine_->step();
}

}  // namespace tessera
