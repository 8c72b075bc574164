#include "kernels/reductions.hpp"

#include <cmath>

#include "backend/cpu/cpu_operators.hpp"
#include "backend/cpu/dispatch.hpp"
#include "backend/cpu/launch.hpp"

namespace tessera::cpu {

void CpuOperators::sum(Stream& stream, const Tensor& input, const Tensor& output) {
  check_tensor(input, input.elements(), DType::kF32, "input");
  check_tensor(output, 1, DType::kF32, "output");
  stream.enqueue([=] {
    *output.data<float>() =
        run_sum(input.device(), input.elements(), kernels::PlainTerm{input.data<float>()});
  });
}

void CpuOperators::sum_squares(Stream& stream, const Tensor& input, const Tensor& output,
                               bool accumulate) {
  check_tensor(input, input.elements(), DType::kF32, "input");
  check_tensor(output, 1, DType::kF64, "output");
  stream.enqueue([=] {
    const double total =
        run_sum(input.device(), input.elements(), kernels::SquareTerm{input.data<float>()});
    double* result = output.data<double>();
    *result = accumulate ? *result + total : total;
  });
}

void CpuOperators::find_nonfinite(Stream& stream, const Tensor& input, const Tensor& flag) {
  check_tensor(input, input.elements(), DType::kF32, "input");
  check_tensor(flag, 1, DType::kI32, "flag");
  stream.enqueue([=] {
    const float zero =
        run_sum(input.device(), input.elements(), kernels::NonfiniteTerm{input.data<float>()});
    if (std::isnan(zero)) *flag.data<std::int32_t>() = 1;
  });
}

}  // namespace tessera::cpu
