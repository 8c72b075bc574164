#include "kernels/operators.hpp"

#include "base/check.hpp"
#include "kernels/backends.hpp"

namespace tessera::kernels {

Operators& operators(const Device& device) {
  switch (device.type()) {
    case DeviceType::kCPU: return cpu_operators();
    case DeviceType::kCUDA: return cuda_operators();
  }
  fail(ErrorCode::kUsage, "no operators for device type {}", static_cast<int>(device.type()));
}

}  // namespace tessera::kernels
