#include "kernels/losses.hpp"

#include "backend/cpu/cpu_operators.hpp"
#include "backend/cpu/dispatch.hpp"
#include "backend/cpu/launch.hpp"

namespace tessera::cpu {

void CpuOperators::cross_entropy(Stream& stream, const Tensor& logits, const Tensor& targets,
                                 const Tensor& losses, const Tensor& lse) {
  const std::int64_t columns = logits.size(-1);
  const std::int64_t rows = targets.elements();
  check_tensor(logits, rows * columns, logits.dtype(), "logits");
  check_tensor(targets, rows, DType::kI32, "targets");
  check_tensor(losses, rows, DType::kF32, "losses");
  check_tensor(lse, rows, DType::kF32, "lse");
  stream.enqueue([=] {
    dispatch_float(logits.dtype(), [&]<typename T>() {
      run_rows(logits.device(), rows,
               kernels::CrossEntropy<T>{logits.data<T>(), targets.data<std::int32_t>(),
                                        losses.data<float>(), lse.data<float>(), columns});
    });
  });
}

void CpuOperators::cross_entropy_backward(Stream& stream, const Tensor& logits,
                                          const Tensor& targets, const Tensor& lse,
                                          const Tensor& scale, const Tensor& grad_logits,
                                          bool accumulate) {
  const std::int64_t columns = logits.size(-1);
  const std::int64_t rows = targets.elements();
  check_tensor(logits, rows * columns, logits.dtype(), "logits");
  check_tensor(targets, rows, DType::kI32, "targets");
  check_tensor(lse, rows, DType::kF32, "lse");
  check_tensor(scale, 1, DType::kF32, "scale");
  check_tensor(grad_logits, logits.elements(), logits.dtype(), "grad_logits");
  stream.enqueue([=] {
    dispatch(logits.dtype(), accumulate, [&]<typename T, kernels::Write W>() {
      run_rows(logits.device(), rows,
               kernels::CrossEntropyBackward<T, W>{logits.data<T>(), targets.data<std::int32_t>(),
                                                   lse.data<float>(), scale.data<float>(),
                                                   grad_logits.data<T>(), columns});
    });
  });
}

}  // namespace tessera::cpu
