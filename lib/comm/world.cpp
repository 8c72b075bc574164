#include <tessera/world.hpp>

#include "base/check.hpp"
#include "comm/local/local_job.hpp"

namespace tessera {

World::World(std::unique_ptr<Communicator> communicator, std::unique_ptr<Device> device,
             std::shared_ptr<Logger> logger)
    : device_(std::move(device)),
      communicator_(std::move(communicator)),
      logger_(logger != nullptr ? std::move(logger) : make_null_logger()) {
  TESSERA_CHECK(device_ != nullptr && communicator_ != nullptr);
}

World::~World() = default;

int World::rank() const { return communicator_->rank(); }

int World::size() const { return communicator_->size(); }

void World::set_logger(std::shared_ptr<Logger> logger) {
  logger_ = logger != nullptr ? std::move(logger) : make_null_logger();
}

std::unique_ptr<World> World::single(const WorldOptions& options) {
  return make_local_world(std::make_shared<LocalJob>(1, options), 0);
}

}  // namespace tessera
