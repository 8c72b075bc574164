#include "base/check.hpp"
#include "kernels/backends.hpp"

namespace tessera::kernels {

Operators& cuda_operators() {
  fail(ErrorCode::kUsage, "this build has no CUDA backend (configure with -DTESSERA_WITH_CUDA=ON)");
}

}  // namespace tessera::kernels
