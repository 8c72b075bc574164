#include "kernels/optimizers.hpp"

#include "operator_case.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;
using kernels::Operators;

kernels::AdamCoefficients coefficients(double step, bool decoupled) {
  return {.lr = 0.01f,
          .beta1 = 0.9f,
          .beta2 = 0.999f,
          .eps = 1e-8f,
          .weight_decay = 0.1f,
          .bias_correction1 = static_cast<float>(1.0 - std::pow(0.9, step)),
          .bias_correction2 = static_cast<float>(1.0 - std::pow(0.999, step)),
          .decoupled = decoupled};
}

Tensor fp32(Device& device, const Values& values) {
  Tensor tensor(device, {static_cast<std::int64_t>(values.size())}, DType::kF32);
  upload(tensor, values);
  return tensor;
}

}  // namespace

TEST_CASE("AdamW gives the documented values, whatever the gradient's scale") {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("test");
  auto& ops = kernels::operators(*device);
  const Tensor p = fp32(*device, {1.0});
  const Tensor m = fp32(*device, {0.0});
  const Tensor v = fp32(*device, {0.0});
  const double gradients[] = {0.1, -0.2, 0.3};
  const double after[] = {0.989000001, 0.991672036, 0.987247953};
  for (int step = 1; step <= 3; ++step) {
    const Tensor g = fp32(*device, {gradients[step - 1] * 1024.0});
    ops.adam(*stream, p, g, m, v, coefficients(step, true), 0x1p-10f);
    CHECK(download(p)[0] == Approx(after[step - 1]).epsilon(2e-7));
  }
}

TEST_CASE("optimizer updates agree with FP64") {
  for (const std::int64_t n : {0, 1, 5, 64, 257, 40000}) {
    INFO(n << " elements");
    for (const bool decoupled : {true, false}) {
      const auto c = coefficients(3, decoupled);
      CaseTensor second = output({n}, Kind::kF32);
      for (double& value : second.values) value *= value;
      check_case({"adam",
                  {input({n}, 1, Kind::kF32)},
                  {output({n}, Kind::kF32), output({n}, Kind::kF32), second},
                  [=](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                    ops.adam(s, out[0], in[0], out[1], out[2], c, 0.5f);
                  },
                  [=](const std::vector<Values>& in) {
                    Values p = in[1], m = in[2], v = in[3];
                    for (std::size_t i = 0; i < p.size(); ++i) {
                      double g = in[0][i] * 0.5;
                      if (!decoupled) g += c.weight_decay * p[i];
                      m[i] = c.beta1 * m[i] + (1.0 - c.beta1) * g;
                      v[i] = c.beta2 * v[i] + (1.0 - c.beta2) * g * g;
                      double update = m[i] / c.bias_correction1 /
                                      (std::sqrt(v[i] / c.bias_correction2) + c.eps);
                      if (decoupled) update += c.weight_decay * p[i];
                      p[i] -= c.lr * update;
                    }
                    return std::vector<Values>{p, m, v};
                  },
                  2e-6,
                  2e-6,
                  false,
                  true});
    }
    for (const bool momentum : {true, false}) {
      check_case({"sgd",
                  {input({n}, 1, Kind::kF32)},
                  {output({n}, Kind::kF32), output({n}, Kind::kF32)},
                  [=](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                    ops.sgd(s, out[0], in[0], momentum ? out[1] : Tensor(), 0.1f, 0.9f, 0.01f,
                            2.0f);
                  },
                  [=](const std::vector<Values>& in) {
                    Values p = in[1], buffer = in[2];
                    for (std::size_t i = 0; i < p.size(); ++i) {
                      double update = in[0][i] * 2.0 + 0.01 * p[i];
                      if (momentum) buffer[i] = update += 0.9 * buffer[i];
                      p[i] -= 0.1 * update;
                    }
                    return std::vector<Values>{p, buffer};
                  },
                  2e-6,
                  2e-6,
                  false,
                  true});
    }
  }
}
