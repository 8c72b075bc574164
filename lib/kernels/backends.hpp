// What each backend folder defines: its one operator table. A folder that stands in for a backend
// that is not built in raises Error{kUsage}.
#pragma once

#include "kernels/operators.hpp"

namespace tessera::kernels {

Operators& cpu_operators();
Operators& cuda_operators();

}  // namespace tessera::kernels
