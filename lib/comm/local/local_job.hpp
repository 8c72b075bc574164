// Ranks that are threads of one process.
#pragma once

#include <tessera/world.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "comm/group_communicator.hpp"
#include "comm/local/post_office.hpp"
#include "comm/window.hpp"

namespace tessera {

/// What the ranks of one group share.
struct LocalGroup {
  std::shared_ptr<SharedMemory> windows;  ///< null for a group of one
  std::shared_ptr<PostOffice> office;
};

/// What all local ranks of a job share.
class LocalJob {
 public:
  LocalJob(int ranks, const WorldOptions& options);

  int ranks() const { return ranks_; }
  const WorldOptions& options() const { return options_; }
  std::unique_ptr<BoardChannel> make_channel(int rank) const;
  /// The group called `key`: made by the first of its ranks that asks.
  std::shared_ptr<LocalGroup> group(const std::string& key, int ranks);

 private:
  struct Forming {
    std::shared_ptr<LocalGroup> group;
    int joined = 0;
  };

  int ranks_;
  WorldOptions options_;
  std::shared_ptr<SharedMemory> board_;
  std::mutex mutex_;
  std::map<std::string, Forming> groups_;  // until all their ranks have come
};

/// The communicator of `rank` over the whole job.
std::unique_ptr<Communicator> make_local_communicator(std::shared_ptr<LocalJob> job, int rank);
/// The same with a device and a logger.
std::unique_ptr<World> make_local_world(std::shared_ptr<LocalJob> job, int rank);

}  // namespace tessera
