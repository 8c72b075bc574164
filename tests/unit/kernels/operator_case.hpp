// One table row of an operator test: inputs, a call, and a reference in FP64. check_case() runs it
// for all element types, with and without accumulation, and checks that the bits do not depend on
// the number of threads or on the kind of stream.
#pragma once

#include <tessera/device.hpp>
#include <tessera/stream.hpp>
#include <tessera/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "base/half.hpp"
#include "kernels/operators.hpp"

namespace tessera::testing {

using Values = std::vector<double>;

/// What a tensor of a case holds: the element type under test, or a fixed type.
enum class Kind { kElement, kF32, kF64, kI32, kI64 };

inline DType dtype_of(Kind kind, DType element) {
  switch (kind) {
    case Kind::kElement: return element;
    case Kind::kF32: return DType::kF32;
    case Kind::kF64: return DType::kF64;
    case Kind::kI32: return DType::kI32;
    case Kind::kI64: return DType::kI64;
  }
  return element;
}

/// Calls body(pointer to the elements) with the C++ type of the tensor.
template <typename Body>
void with_elements(const Tensor& tensor, const Body& body) {
  switch (tensor.dtype()) {
    case DType::kF32: return body(tensor.data<float>());
    case DType::kF64: return body(tensor.data<double>());
    case DType::kBF16: return body(tensor.data<BF16>());
    case DType::kF16: return body(tensor.data<F16>());
    case DType::kI32: return body(tensor.data<std::int32_t>());
    case DType::kI64: return body(tensor.data<std::int64_t>());
    default: FAIL("no test values of this type");
  }
}

inline void upload(const Tensor& tensor, const Values& values) {
  REQUIRE(tensor.elements() == static_cast<std::int64_t>(values.size()));
  with_elements(tensor, [&]<typename T>(T* data) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_arithmetic_v<T>) {
        data[i] = static_cast<T>(values[i]);
      } else {
        data[i] = T(static_cast<float>(values[i]));
      }
    }
  });
}

inline Values download(const Tensor& tensor) {
  Values values(static_cast<std::size_t>(tensor.elements()));
  with_elements(tensor, [&]<typename T>(T* data) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_arithmetic_v<T>) {
        values[i] = static_cast<double>(data[i]);
      } else {
        values[i] = static_cast<float>(data[i]);
      }
    }
  });
  return values;
}

/// Standard normal values, or integers in [low, high].
inline Values random_values(std::int64_t count, unsigned seed, double deviation = 1.0) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.0, deviation);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = normal(generator);
  return values;
}
inline Values random_integers(std::int64_t count, int low, int high, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> uniform(low, high);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = uniform(generator);
  return values;
}

struct CaseTensor {
  Shape shape;
  Kind kind = Kind::kElement;
  Values values;  // of an output: what was there before
};

using Tensors = std::vector<Tensor>;
using Run = std::function<void(kernels::Operators&, Stream&, const Tensors& in, const Tensors& out,
                               bool accumulate)>;
/// The outputs from the (rounded) inputs. NaN = not compared. Accumulation is added by the harness.
using Reference = std::function<std::vector<Values>(const std::vector<Values>&)>;

struct OperatorCase {
  std::string name;
  std::vector<CaseTensor> inputs;
  std::vector<CaseTensor> outputs;
  Run run;
  Reference reference;
  double tolerance = 2e-6;       // absolute, in units of the largest value of an output
  double half_tolerance = 2e-6;  // the same for BF16 and FP16, beyond the rounding of the result
  bool accumulates = false;
  bool in_place = false;  // the outputs' earlier content is appended to the inputs
};

inline CaseTensor input(Shape shape, unsigned seed, Kind kind = Kind::kElement) {
  const std::int64_t count = shape.elements();
  return {std::move(shape), kind, random_values(count, seed)};
}
inline CaseTensor output(Shape shape, Kind kind = Kind::kElement) {
  const std::int64_t count = shape.elements();
  return {std::move(shape), kind, random_values(count, 77)};
}

/// The relative rounding error of a stored result.
inline double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return 0x1p-8;
    case DType::kF16: return 0x1p-10;
    case DType::kF32: return 0x1p-22;
    default: return 0.0;
  }
}

inline Values rounded(const Values& values, DType dtype) {
  Values result = values;
  for (double& value : result) {
    if (dtype == DType::kF32) value = static_cast<float>(value);
    if (dtype == DType::kBF16) value = static_cast<float>(BF16(static_cast<float>(value)));
    if (dtype == DType::kF16) value = static_cast<float>(F16(static_cast<float>(value)));
  }
  return result;
}

/// Runs the case once and returns its output tensors (which live on `device`).
inline Tensors run_case(const OperatorCase& c, Device& device, DType element, bool accumulate) {
  Tensors in;
  Tensors out;
  for (const CaseTensor& each : c.inputs) {
    in.emplace_back(device, each.shape, dtype_of(each.kind, element));
    upload(in.back(), each.values);
  }
  for (const CaseTensor& each : c.outputs) {
    out.emplace_back(device, each.shape, dtype_of(each.kind, element));
    upload(out.back(), each.values);
  }
  const auto stream = device.make_stream("test");
  c.run(kernels::operators(device), *stream, in, out, accumulate);
  stream->synchronize();
  return out;
}

inline void compare(const OperatorCase& c, const Tensors& got, DType element, bool accumulate) {
  std::vector<Values> inputs;
  for (const CaseTensor& each : c.inputs) {
    inputs.push_back(rounded(each.values, dtype_of(each.kind, element)));
  }
  if (c.in_place) {
    for (const CaseTensor& each : c.outputs) {
      inputs.push_back(rounded(each.values, dtype_of(each.kind, element)));
    }
  }
  const std::vector<Values> want = c.reference(inputs);
  REQUIRE(want.size() == got.size());
  const double tolerance = element == DType::kF32 ? c.tolerance : c.half_tolerance;
  for (std::size_t o = 0; o < got.size(); ++o) {
    const DType dtype = dtype_of(c.outputs[o].kind, element);
    const Values before = rounded(c.outputs[o].values, dtype);
    const Values values = download(got[o]);
    REQUIRE(values.size() == want[o].size());
    double largest = 1.0;
    for (const double value : want[o]) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
    std::size_t wrong = 0;
    std::string first;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(want[o][i])) continue;
      const double expected = want[o][i] + (accumulate ? before[i] : 0.0);
      const double allowed = tolerance * largest + rounding_of(dtype) * std::abs(expected);
      if (std::abs(values[i] - expected) <= allowed) continue;
      if (wrong++ == 0) {
        first = "output " + std::to_string(o) + " element " + std::to_string(i) + ": " +
                std::to_string(values[i]) + " instead of " + std::to_string(expected);
      }
    }
    INFO(first);
    CHECK(wrong == 0);
  }
}

inline bool same_bits(const Tensors& a, const Tensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].bytes() > 0 && std::memcmp(a[i].raw_data(), b[i].raw_data(), a[i].bytes()) != 0) {
      return false;
    }
  }
  return true;
}

/// All element types × accumulation, on one thread against the reference, then with 2 and 3 threads
/// and on a worker stream against the first result's bits.
inline void check_case(const OperatorCase& c, bool threads_keep_bits = true) {
  for (const DType element : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int accumulate = 0; accumulate <= (c.accumulates ? 1 : 0); ++accumulate) {
      INFO(c.name << ", " << to_string(element) << (accumulate != 0 ? ", accumulated" : ""));
      const auto device = make_cpu_device({.poison = true});
      const Tensors first = run_case(c, *device, element, accumulate != 0);
      compare(c, first, element, accumulate != 0);
      for (const int threads : {1, 2, 3}) {
        const auto other =
            make_cpu_device({.threads = threads, .stream_mode = StreamMode::kWorker});
        const Tensors again = run_case(c, *other, element, accumulate != 0);
        if (threads_keep_bits || threads == 1) {
          INFO("worker stream, " << threads << " threads");
          CHECK(same_bits(first, again));
        } else {
          compare(c, again, element, accumulate != 0);
        }
      }
    }
  }
}

/// Gradients of `forward` by central differences in FP64: for each input in `wanted`, ∂/∂input of
/// Σ outputs[which] · cotangent, at most `samples` elements of it (the others are NaN).
inline std::vector<Values> numeric_gradients(
    const std::function<Values(const std::vector<Values>&)>& forward,
    const std::vector<Values>& inputs, const Values& cotangent,
    const std::vector<std::size_t>& wanted, int samples = 24) {
  constexpr double kStep = 1e-5;
  std::vector<Values> gradients;
  std::mt19937 generator(5);
  for (const std::size_t index : wanted) {
    Values gradient(inputs[index].size(), std::numeric_limits<double>::quiet_NaN());
    std::vector<std::size_t> elements(gradient.size());
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = i;
    std::shuffle(elements.begin(), elements.end(), generator);
    if (elements.size() > static_cast<std::size_t>(samples)) {
      elements.resize(static_cast<std::size_t>(samples));
    }
    std::vector<Values> varied = inputs;
    for (const std::size_t i : elements) {
      double difference = 0.0;
      for (const double sign : {1.0, -1.0}) {
        varied[index][i] = inputs[index][i] + sign * kStep;
        const Values result = forward(varied);
        for (std::size_t o = 0; o < result.size(); ++o) {
          difference += sign * result[o] * cotangent[o];
        }
      }
      varied[index][i] = inputs[index][i];
      gradient[i] = difference / (2.0 * kStep);
    }
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

}  // namespace tessera::testing
