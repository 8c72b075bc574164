#include "kernels/norms.hpp"

#include "backend/cpu/cpu_operators.hpp"
#include "backend/cpu/dispatch.hpp"
#include "backend/cpu/launch.hpp"

namespace tessera::cpu {

void CpuOperators::rms_norm(Stream& stream, const Tensor& input, const Tensor& weight, float eps,
                            const Tensor& output, const Tensor& rstd) {
  const std::int64_t columns = weight.elements();
  const std::int64_t rows = rows_of(input, columns);
  check_tensor(weight, columns, input.dtype(), "weight");
  check_tensor(output, input.elements(), input.dtype(), "output");
  check_tensor(rstd, rows, DType::kF32, "rstd");
  stream.enqueue([=] {
    dispatch_float(input.dtype(), [&]<typename T>() {
      run_rows(input.device(), rows,
               kernels::RmsNorm<T>{input.data<T>(), weight.data<T>(), output.data<T>(),
                                   rstd.data<float>(), columns, eps});
    });
  });
}

void CpuOperators::rms_norm_backward(Stream& stream, const Tensor& grad_output, const Tensor& input,
                                     const Tensor& weight, const Tensor& rstd,
                                     const Tensor& grad_input, bool accumulate_input,
                                     const Tensor& grad_weight, bool accumulate_weight) {
  const std::int64_t columns = weight.elements();
  const std::int64_t rows = rows_of(input, columns);
  check_tensor(weight, columns, input.dtype(), "weight");
  check_tensor(grad_output, input.elements(), input.dtype(), "grad_output");
  check_tensor(rstd, rows, DType::kF32, "rstd");
  check_optional(grad_input, input.elements(), input.dtype(), "grad_input");
  check_optional(grad_weight, columns, DType::kF32, "grad_weight");
  stream.enqueue([=] {
    dispatch_float(input.dtype(), [&]<typename T>() {
      // The weight's gradient first: grad_input may be grad_output.
      if (grad_weight.defined()) {
        dispatch_write(accumulate_weight, [&]<kernels::Write W>() {
          run_column_sums(input.device(), rows,
                          kernels::RmsNormWeightGrad<T, W>{grad_output.data<T>(), input.data<T>(),
                                                           rstd.data<float>(),
                                                           grad_weight.data<float>(), columns});
        });
      }
      if (grad_input.defined()) {
        dispatch_write(accumulate_input, [&]<kernels::Write W>() {
          run_rows(input.device(), rows,
                   kernels::RmsNormBackward<T, W>{grad_output.data<T>(), input.data<T>(),
                                                  weight.data<T>(), rstd.data<float>(),
                                                  grad_input.data<T>(), columns});
        });
      }
    });
  });
}

void CpuOperators::layer_norm(Stream& stream, const Tensor& input, const Tensor& weight,
                              const Tensor& bias, float eps, const Tensor& output,
                              const Tensor& mean, const Tensor& rstd) {
  const std::int64_t columns = weight.elements();
  const std::int64_t rows = rows_of(input, columns);
  check_tensor(weight, columns, input.dtype(), "weight");
  check_tensor(bias, columns, input.dtype(), "bias");
  check_tensor(output, input.elements(), input.dtype(), "output");
  check_tensor(mean, rows, DType::kF32, "mean");
  check_tensor(rstd, rows, DType::kF32, "rstd");
  stream.enqueue([=] {
    dispatch_float(input.dtype(), [&]<typename T>() {
      run_rows(
          input.device(), rows,
          kernels::LayerNorm<T>{input.data<T>(), weight.data<T>(), bias.data<T>(), output.data<T>(),
                                mean.data<float>(), rstd.data<float>(), columns, eps});
    });
  });
}

void CpuOperators::layer_norm_backward(Stream& stream, const Tensor& grad_output,
                                       const Tensor& input, const Tensor& weight,
                                       const Tensor& mean, const Tensor& rstd,
                                       const Tensor& grad_input, bool accumulate_input,
                                       const Tensor& grad_weight, bool accumulate_weight,
                                       const Tensor& grad_bias, bool accumulate_bias) {
  const std::int64_t columns = weight.elements();
  const std::int64_t rows = rows_of(input, columns);
  check_tensor(weight, columns, input.dtype(), "weight");
  check_tensor(grad_output, input.elements(), input.dtype(), "grad_output");
  check_tensor(mean, rows, DType::kF32, "mean");
  check_tensor(rstd, rows, DType::kF32, "rstd");
  check_optional(grad_input, input.elements(), input.dtype(), "grad_input");
  check_optional(grad_weight, columns, DType::kF32, "grad_weight");
  check_optional(grad_bias, columns, DType::kF32, "grad_bias");
  if (grad_bias.defined()) column_sum(stream, grad_output, grad_bias, accumulate_bias);
  stream.enqueue([=] {
    dispatch_float(input.dtype(), [&]<typename T>() {
      if (grad_weight.defined()) {
        dispatch_write(accumulate_weight, [&]<kernels::Write W>() {
          run_column_sums(input.device(), rows,
                          kernels::LayerNormWeightGrad<T, W>{grad_output.data<T>(), input.data<T>(),
                                                             mean.data<float>(), rstd.data<float>(),
                                                             grad_weight.data<float>(), columns});
        });
      }
      if (grad_input.defined()) {
        dispatch_write(accumulate_input, [&]<kernels::Write W>() {
          run_rows(input.device(), rows,
                   kernels::LayerNormBackward<T, W>{
                       grad_output.data<T>(), input.data<T>(), weight.data<T>(), mean.data<float>(),
                       rstd.data<float>(), grad_input.data<T>(), columns});
        });
      }
    });
  });
}

}  // namespace tessera::cpu
