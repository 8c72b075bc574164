#include "kernels/optimizers.hpp"

#include "backend/cpu/cpu_operators.hpp"
#include "backend/cpu/dispatch.hpp"
#include "backend/cpu/launch.hpp"

namespace tessera::cpu {

void CpuOperators::adam(Stream& stream, const Tensor& param, const Tensor& grad, const Tensor& m,
                        const Tensor& v, const kernels::AdamCoefficients& coefficients,
                        float grad_scale) {
  check_tensor(param, param.elements(), DType::kF32, "param");
  check_tensor(grad, param.elements(), DType::kF32, "grad");
  check_tensor(m, param.elements(), DType::kF32, "m");
  check_tensor(v, param.elements(), DType::kF32, "v");
  stream.enqueue([=] {
    run_elements(param.device(), param.elements(),
                 kernels::Adam{param.data<float>(), grad.data<float>(), m.data<float>(),
                               v.data<float>(), coefficients, grad_scale});
  });
}

void CpuOperators::sgd(Stream& stream, const Tensor& param, const Tensor& grad,
                       const Tensor& buffer, float lr, float momentum, float weight_decay,
                       float grad_scale) {
  check_tensor(param, param.elements(), DType::kF32, "param");
  check_tensor(grad, param.elements(), DType::kF32, "grad");
  check_optional(buffer, param.elements(), DType::kF32, "buffer");
  stream.enqueue([=] {
    run_elements(param.device(), param.elements(),
                 kernels::Sgd{param.data<float>(), grad.data<float>(), data_or_null<float>(buffer),
                              lr, momentum, weight_decay, grad_scale});
  });
}

}  // namespace tessera::cpu
