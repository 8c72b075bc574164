#include <tessera/error.hpp>

#include <cstdint>
#include <random>

#include <fmt/format.h>

#include "base/agreement.hpp"
#include "base/check.hpp"
#include "checkpoint/checkpointer_impl.hpp"

namespace tessera {

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

Checkpointer::Impl::Impl(const CheckpointOptions& options_in, std::string directory_in,
                         World& world_in, std::string config_in, Env& env_in)
    : options(options_in),
      directory(std::move(directory_in)),
      world(world_in),
      config(std::move(config_in)),
      env(env_in),
      scratch(options_in.compression_level) {
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  if (directory.empty()) throw Error(ErrorCode::kUsage, "no directory is given", "checkpoint.dir");
  if (options.keep_last < 0) {
    throw Error(ErrorCode::kUsage,
                fmt::format("must not be negative, is {}; 0 keeps all", options.keep_last),
                "checkpoint.keep_last");
  }
}

Checkpointer::Checkpointer(const CheckpointOptions& options, std::string directory, World& world,
                           std::string resolved_config)
    : Checkpointer(options, std::move(directory), world, std::move(resolved_config), Env::posix()) {
}

Checkpointer::Checkpointer(const CheckpointOptions& options, std::string directory, World& world,
                           std::string resolved_config, Env& env)
    : impl_(std::make_unique<Impl>(options, std::move(directory), world, std::move(resolved_config),
                                   env)) {}

Checkpointer::~Checkpointer() = default;

const std::string& Checkpointer::directory() const { return impl_->directory; }

void Checkpointer::check_writable() {
  Communicator& comm = impl_->world.comm();
  Env& env = impl_->env;
  decide_on_root(comm, "checkpoint directory", [&] {
    env.make_directories(impl_->directory);
    return std::string();
  });
  agree(comm, "checkpoint directory", [&] {
    const std::string probe =
        join_path(impl_->directory, fmt::format(".probe-{}", impl_->world.rank()));
    const auto file = env.open_for_write(probe, OpenMode::kTruncate);
    file->append(std::as_bytes(std::span("probe")));
    file->close();
    env.remove_file(probe);
  });
}

void Checkpointer::save(std::int64_t step, const std::vector<StateSource*>& sources,
                        const VersionTriple& versions) {
  impl_->save(step, sources, versions);
}

std::optional<std::int64_t> Checkpointer::load_latest(const std::vector<StateSource*>& sources,
                                                      const VersionTriple& versions,
                                                      const LoadOptions& options) {
  return impl_->load_latest(sources, versions, options);
}

std::int64_t Checkpointer::load(const std::string& path, const std::vector<StateSource*>& sources,
                                const VersionTriple& versions, const LoadOptions& options) {
  return impl_->load(path, sources, versions, options);
}

}  // namespace tessera
