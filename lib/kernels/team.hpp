// The team shape: a functor's operator()(team, row) runs once on each member of a team, which meet
// at team.sync(). Only for rows that must synchronise midway.
#pragma once

#include "base/host_device.hpp"

namespace tessera::kernels {

/// A team of one, which replays the work serially.
struct SerialTeam {
  TESSERA_HOST_DEVICE int rank() const { return 0; }
  TESSERA_HOST_DEVICE int size() const { return 1; }
  TESSERA_HOST_DEVICE void sync() const {}
};

}  // namespace tessera::kernels
