// The NCCL backend of a build without NCCL.
#include "comm/launch.hpp"

namespace tessera {

bool nccl_built_in() { return false; }

}  // namespace tessera
