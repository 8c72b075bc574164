#include "backend/cpu/attention.hpp"

#include "backend/cpu/cpu_operators.hpp"
#include "backend/cpu/dispatch.hpp"

namespace tessera::cpu {

namespace {

AttentionShape shape_of(const Tensor& q, const Tensor& k, const Tensor& v, float scale) {
  TESSERA_CHECK(q.shape().rank() == 4 && k.shape().rank() == 4 && k.shape() == v.shape() &&
                    q.size(0) == k.size(0) && q.size(1) == k.size(1) && q.size(3) == k.size(3) &&
                    k.size(2) > 0 && q.size(2) % k.size(2) == 0,
                "attention of queries {}, keys {}, values {}", q.shape().to_string(),
                k.shape().to_string(), v.shape().to_string());
  check_tensor(k, k.elements(), q.dtype(), "k");
  check_tensor(v, k.elements(), q.dtype(), "v");
  return {q.size(0), q.size(1), q.size(2), k.size(2), q.size(3), scale};
}

}  // namespace

void CpuOperators::attention(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v,
                             float scale, const Tensor& output, const Tensor& lse) {
  const AttentionShape shape = shape_of(q, k, v, scale);
  check_tensor(output, q.elements(), q.dtype(), "output");
  check_tensor(lse, shape.batch * shape.heads * shape.time, DType::kF32, "lse");
  stream.enqueue([=] {
    dispatch_float(q.dtype(), [&]<typename T>() {
      attention_forward<T>(q.device(), shape, q.data<T>(), k.data<T>(), v.data<T>(),
                           output.data<T>(), lse.data<float>());
    });
  });
}

void CpuOperators::attention_backward(Stream& stream, const Tensor& grad_output, const Tensor& q,
                                      const Tensor& k, const Tensor& v, const Tensor& output,
                                      const Tensor& lse, float scale, const Tensor& grad_q,
                                      bool accumulate_q, const Tensor& grad_k, bool accumulate_k,
                                      const Tensor& grad_v, bool accumulate_v) {
  const AttentionShape shape = shape_of(q, k, v, scale);
  check_tensor(grad_output, q.elements(), q.dtype(), "grad_output");
  check_tensor(output, q.elements(), q.dtype(), "output");
  check_tensor(lse, shape.batch * shape.heads * shape.time, DType::kF32, "lse");
  check_tensor(grad_q, q.elements(), q.dtype(), "grad_q");
  check_tensor(grad_k, k.elements(), q.dtype(), "grad_k");
  check_tensor(grad_v, v.elements(), q.dtype(), "grad_v");
  stream.enqueue([=] {
    dispatch_float(q.dtype(), [&]<typename T>() {
      attention_gradients<T>(q.device(), shape, grad_output.data<T>(), q.data<T>(), k.data<T>(),
                             v.data<T>(), output.data<T>(), lse.data<float>(),
                             {grad_q.data<T>(), grad_k.data<T>(), grad_v.data<T>(), accumulate_q,
                              accumulate_k, accumulate_v});
    });
  });
}

}  // namespace tessera::cpu
