#include "kernels/elementwise.hpp"

#include "base/philox.hpp"
#include "operator_case.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;
using kernels::Operators;

constexpr std::int64_t kCounts[] = {0, 1, 5, 64, 257, 40000};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

/// A reference that maps elements.
template <typename Function>
Reference map(const Function& function) {
  return [=](const std::vector<Values>& in) {
    Values result(in[0].size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      if constexpr (std::is_invocable_v<Function, double>) {
        result[i] = function(in[0][i]);
      } else {
        result[i] = function(in[0][i], in[1][i]);
      }
    }
    return std::vector<Values>{result};
  };
}

std::vector<OperatorCase> cases(std::int64_t n) {
  const CaseTensor a = input({n}, 1);
  const CaseTensor b = input({n}, 2);
  const CaseTensor d = input({n}, 3);
  std::vector<OperatorCase> table;
  table.push_back({"fill",
                   {a},
                   {output({n})},
                   [](Operators& ops, Stream& s, const Tensors&, const Tensors& out, bool) {
                     ops.fill(s, out[0], 1.5f);
                   },
                   map([](double) { return 1.5; })});
  table.push_back({"fill_zero",
                   {a},
                   {output({n})},
                   [](Operators& ops, Stream& s, const Tensors&, const Tensors& out, bool) {
                     ops.fill_zero(s, out[0]);
                   },
                   map([](double) { return 0.0; })});
  table.push_back({"scale",
                   {a},
                   {output({n})},
                   [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                     ops.copy(s, in[0], out[0]);
                     ops.scale(s, out[0], -0.75f);
                   },
                   map([](double x) { return -0.75 * x; })});
  table.push_back({"add",
                   {a, b},
                   {output({n})},
                   [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                     ops.add(s, in[0], in[1], out[0]);
                   },
                   map([](double x, double y) { return x + y; })});
  table.push_back({"add in place",
                   {a, b},
                   {output({n})},
                   [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                     ops.copy(s, in[0], out[0]);
                     ops.add(s, out[0], in[1], out[0]);
                   },
                   map([](double x, double y) { return x + y; })});
  table.push_back({"add_to FP32",
                   {a},
                   {output({n}, Kind::kF32)},
                   [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                     ops.fill(s, out[0], 3.0f);
                     ops.add_to(s, in[0], out[0]);
                   },
                   map([](double x) { return 3.0 + x; })});
  table.push_back({"add_to from FP32",
                   {input({n}, 1, Kind::kF32)},
                   {output({n})},
                   [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                     ops.fill(s, out[0], 3.0f);
                     ops.add_to(s, in[0], out[0]);
                   },
                   map([](double x) { return 3.0 + x; })});
  table.push_back({"copy from FP32",
                   {input({n}, 1, Kind::kF32)},
                   {output({n})},
                   [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                     ops.copy(s, in[0], out[0]);
                   },
                   map([](double x) { return x; })});
  table.push_back({"copy to FP32",
                   {a},
                   {output({n}, Kind::kF32)},
                   [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                     ops.copy(s, in[0], out[0]);
                   },
                   map([](double x) { return x; })});
  table.push_back({"swiglu",
                   {a, b},
                   {output({n})},
                   [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                     ops.swiglu(s, in[0], in[1], out[0]);
                   },
                   map([](double g, double u) { return g * sigmoid(g) * u; })});
  table.push_back({"gelu",
                   {a},
                   {output({n})},
                   [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                     ops.gelu(s, in[0], out[0]);
                   },
                   map(gelu)});
  table.push_back(
      {"swiglu_backward",
       {d, a, b},
       {output({n}), output({n})},
       [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool accumulate) {
         ops.swiglu_backward(s, in[0], in[1], in[2], out[0], accumulate, out[1], accumulate);
       },
       [](const std::vector<Values>& in) {
         return numeric_gradients(
             [](const std::vector<Values>& x) {
               return map([](double g, double u) { return g * sigmoid(g) * u; })(x)[0];
             },
             {in[1], in[2]}, in[0], {0, 1}, 8);
       },
       4e-6,
       4e-6,
       true});
  table.push_back({"gelu_backward",
                   {d, a},
                   {output({n})},
                   [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out,
                      bool accumulate) { ops.gelu_backward(s, in[0], in[1], out[0], accumulate); },
                   [](const std::vector<Values>& in) {
                     return numeric_gradients(
                         [](const std::vector<Values>& x) { return map(gelu)(x)[0]; }, {in[1]},
                         in[0], {0}, 8);
                   },
                   4e-6,
                   4e-6,
                   true});
  return table;
}

}  // namespace

TEST_CASE("element operators agree with FP64") {
  for (const std::int64_t n : kCounts) {
    INFO(n << " elements");
    for (const OperatorCase& each : cases(n)) check_case(each);
  }
}

TEST_CASE("swiglu_backward skips undefined gradients") {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("test");
  auto& ops = kernels::operators(*device);
  const Tensor x(*device, {7}, DType::kF32);
  upload(x, random_values(7, 1));
  const Tensor both_gate(*device, {7}, DType::kF32);
  const Tensor both_up(*device, {7}, DType::kF32);
  const Tensor gate(*device, {7}, DType::kF32);
  const Tensor up(*device, {7}, DType::kF32);
  ops.swiglu_backward(*stream, x, x, x, both_gate, false, both_up, false);
  ops.swiglu_backward(*stream, x, x, x, gate, false, {}, false);
  ops.swiglu_backward(*stream, x, x, x, {}, false, up, false);
  CHECK(same_bits({both_gate, both_up}, {gate, up}));
}

TEST_CASE("dropout keeps elements by their key, sequence and place") {
  constexpr std::uint64_t kKey = 0x1234567890abcdefull;
  constexpr float kP = 0.3f;
  for (const std::int64_t columns : {1, 5, 257, 20000}) {
    const OperatorCase each{
        "dropout",
        {input({3, columns}, 1), {{3}, Kind::kI64, {7.0, 1e9, 0.0}}},
        {output({3, columns})},
        [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool accumulate) {
          ops.dropout(s, in[0], in[1], kP, kKey, out[0], accumulate);
        },
        [=](const std::vector<Values>& in) {
          Values result(in[0].size());
          for (std::size_t i = 0; i < result.size(); ++i) {
            const auto row = i / static_cast<std::size_t>(columns);
            const Philox4 bits = philox(kKey, i % static_cast<std::size_t>(columns),
                                        static_cast<std::uint64_t>(in[1][row]));
            const bool keep = uniform_from_bits(bits.word[0]) >= kP;
            result[i] = keep ? in[0][i] / (1.0 - static_cast<double>(kP)) : 0.0;
          }
          return std::vector<Values>{result};
        },
        2e-6,
        2e-6,
        true};
    check_case(each);
  }
}

TEST_CASE("dropout drops about the share it is asked to") {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("test");
  const Tensor x(*device, {1, 100000}, DType::kF32);
  const Tensor sequence(*device, {1}, DType::kI64);
  upload(x, Values(100000, 1.0));
  upload(sequence, {3.0});
  kernels::operators(*device).dropout(*stream, x, sequence, 0.2f, 9, x, false);
  double kept = 0.0;
  for (const double value : download(x)) kept += value != 0.0 ? 1.0 : 0.0;
  CHECK(kept / 100000 == Approx(0.8).margin(0.005));
}
