// A context on a device of its own, and parameters without modules: what tape tests need.
#pragma once

#include <tessera/autograd.hpp>
#include <tessera/device.hpp>
#include <tessera/nn.hpp>
#include <tessera/ops.hpp>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.hpp"
#include "kernels/operators.hpp"

namespace tessera::testing {

/// New memory is filled with NaN, so that a value nobody wrote is seen.
struct Rig {
  explicit Rig(StreamMode mode = StreamMode::kInline)
      : device(make_cpu_device({.stream_mode = mode, .poison = true})), context(*device) {
    context.seed = 42;
  }

  Tensor upload(const std::vector<float>& values, Shape shape) {
    Tensor tensor(*device, std::move(shape), DType::kF32);
    std::memcpy(tensor.raw_data(), values.data(), tensor.bytes());
    return tensor;
  }

  /// A bound parameter with normal values that depend on its name.
  std::shared_ptr<Parameter> parameter(const std::string& name, const Shape& shape,
                                       float std = 0.5f) {
    auto result = std::make_shared<Parameter>();
    result->name = name;
    result->shape = shape;
    result->context = &context;
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std * normal_at(hash_name(name), i);
    }
    result->value = upload(values, shape);
    result->grad = Tensor(*device, shape, DType::kF32, MemoryTag::kGrads);
    return result;
  }

  void set_sequences(std::vector<std::int64_t> index) {
    Tensor tensor(*device, {static_cast<std::int64_t>(index.size())}, DType::kI64);
    std::memcpy(tensor.raw_data(), index.data(), tensor.bytes());
    context.sequence_index = tensor;
  }

  std::vector<float> read(const Tensor& tensor) {
    context.stream().synchronize();
    return {tensor.data<float>(), tensor.data<float>() + tensor.elements()};
  }

  /// The gradient of Σ y · cotangent, cotangents fixed and all different.
  void backward(const Variable& y) {
    std::vector<float> values(static_cast<std::size_t>(y.shape().elements()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = normal_at(hash_name("cotangent"), i);
    const Tensor gradient = upload(values, y.shape());
    context.backward(std::vector{y}, std::vector{gradient});
  }

  /// Σ y · cotangent in FP64.
  double objective(const Variable& y) {
    const auto values = read(y.tensor());
    double sum = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += double{values[i]} * double{normal_at(hash_name("cotangent"), i)};
    }
    return sum;
  }

  /// Runs `forward`, its backward, and compares the gradient of each parameter with a central
  /// difference along a direction of its own. Returns the largest relative difference.
  double gradient_error(const std::vector<std::shared_ptr<Parameter>>& parameters,
                        const std::function<Variable()>& forward, float step = 1e-2f) {
    for (const auto& parameter : parameters) parameter->grad_written = false;
    backward(forward());
    double worst = 0.0;
    for (const auto& parameter : parameters) {
      const auto gradient = read(parameter->grad);
      const auto start = read(parameter->value);
      double expected = 0.0;
      double scale = 0.0;
      const auto direction = [&](std::size_t i) {
        return normal_at(hash_name(parameter->name + "/direction"), i);
      };
      const auto at = [&](float distance) {
        for (std::size_t i = 0; i < start.size(); ++i) {
          parameter->value.data<float>()[i] = start[i] + distance * direction(i);
        }
        const NoGradScope no_grad(context);
        return objective(forward());
      };
      for (std::size_t i = 0; i < start.size(); ++i) {
        expected += double{gradient[i]} * double{direction(i)};
        scale += std::abs(double{gradient[i]} * double{direction(i)});
      }
      const double measured = (at(step) - at(-step)) / (2.0 * double{step});
      std::memcpy(parameter->value.raw_data(), start.data(), parameter->value.bytes());
      const double error = std::abs(measured - expected) / scale;
      worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
    }
    return worst;
  }

  std::unique_ptr<Device> device;
  Context context;
};

}  // namespace tessera::testing
