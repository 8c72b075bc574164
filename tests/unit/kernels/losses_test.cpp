#include "kernels/losses.hpp"

#include <limits>

#include "operator_case.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;
using kernels::Operators;

/// Losses of all rows, then all logsumexps.
std::vector<Values> losses_of(const Values& logits, const Values& targets, std::int64_t vocab) {
  const auto n = static_cast<std::size_t>(vocab);
  Values losses;
  Values lse;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row * n);
    const double largest = *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(n));
    double total = 0.0;
    for (std::size_t i = 0; i < n; ++i) total += std::exp(logits[row * n + i] - largest);
    lse.push_back(largest + std::log(total));
    const double target = targets[row];
    losses.push_back(target < 0 ? 0.0
                                : lse.back() - logits[row * n + static_cast<std::size_t>(target)]);
  }
  return {losses, lse};
}

Values targets_for(std::int64_t rows, std::int64_t vocab) {
  Values targets = random_integers(rows, 0, static_cast<int>(vocab) - 1, 6);
  for (std::size_t i = 2; i < targets.size(); i += 3) targets[i] = -100;
  return targets;
}

OperatorCase forward_case(std::int64_t rows, std::int64_t vocab) {
  return {"cross_entropy",
          {input({rows, vocab}, 1), {{rows}, Kind::kI32, targets_for(rows, vocab)}},
          {output({rows}, Kind::kF32), output({rows}, Kind::kF32)},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
            ops.cross_entropy(s, in[0], in[1], out[0], out[1]);
          },
          [=](const std::vector<Values>& in) { return losses_of(in[0], in[1], vocab); }};
}

OperatorCase backward_case(std::int64_t rows, std::int64_t vocab) {
  return {"cross_entropy_backward",
          {input({rows, vocab}, 1),
           {{rows}, Kind::kI32, targets_for(rows, vocab)},
           {{1}, Kind::kF32, {0.37}}},
          {output({rows, vocab})},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool accumulate) {
            const Tensor losses(in[0].device(), {in[1].elements()}, DType::kF32);
            const Tensor lse(in[0].device(), {in[1].elements()}, DType::kF32);
            ops.cross_entropy(s, in[0], in[1], losses, lse);
            ops.cross_entropy_backward(s, in[0], in[1], lse, in[2], out[0], accumulate);
          },
          [=](const std::vector<Values>& in) {
            return numeric_gradients(
                [&](const std::vector<Values>& x) { return losses_of(x[0], in[1], vocab)[0]; },
                {in[0]}, Values(in[1].size(), in[2][0]), {0}, 30);
          },
          2e-6,
          2e-6,
          true};
}

}  // namespace

TEST_CASE("cross-entropy and its gradient agree with FP64") {
  for (const std::int64_t rows : {0, 1, 3, 17, 257}) {
    for (const std::int64_t vocab : {1, 5, 64, 257}) {
      if (rows == 257 && vocab != 64) continue;
      INFO(rows << " rows of " << vocab);
      check_case(forward_case(rows, vocab));
      check_case(backward_case(rows, vocab));
    }
  }
}

TEST_CASE("cross-entropy handles large logits, in place, and carries NaN on") {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("test");
  auto& ops = kernels::operators(*device);
  const Tensor logits(*device, {3, 3}, DType::kF32);
  upload(logits, {1000.0, 0.0, -1000.0, -1e4, -1e4, -1e4, 0.0, std::nan(""), 0.0});
  const Tensor targets(*device, {3}, DType::kI32);
  upload(targets, {2, 0, 0});
  const Tensor losses(*device, {3}, DType::kF32);
  const Tensor lse(*device, {3}, DType::kF32);
  const Tensor scale(*device, {1}, DType::kF32);
  upload(scale, {2.0});
  ops.cross_entropy(*stream, logits, targets, losses, lse);
  ops.cross_entropy_backward(*stream, logits, targets, lse, scale, logits, false);
  const Values loss = download(losses);
  CHECK(loss[0] == 2000.0);
  CHECK(loss[1] == Approx(std::log(3.0)).margin(1e-3));  // FP32 at 1e4
  CHECK(std::isnan(loss[2]));
  const Values grad = download(logits);
  CHECK(grad[0] == 2.0);
  CHECK(grad[2] == -2.0);
  CHECK(grad[3] == Approx(-4.0 / 3.0).epsilon(1e-3));
  CHECK(std::isnan(grad[7]));
}

TEST_CASE("sums have a fixed order and find what is not finite") {
  for (const std::int64_t n : {0, 1, 5, 257, 8192, 8193, 100000}) {
    INFO(n << " elements");
    const OperatorCase sums{
        "sum and sum_squares",
        {input({n}, 1, Kind::kF32)},
        {output({1}, Kind::kF32), output({1}, Kind::kF64)},
        [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
          ops.sum(s, in[0], out[0]);
          ops.sum_squares(s, in[0], out[1], false);
          ops.sum_squares(s, in[0], out[1], true);
        },
        [](const std::vector<Values>& in) {
          double total = 0.0;
          double squares = 0.0;
          for (const double value : in[0]) {
            total += value;
            squares += 2.0 * value * value;
          }
          return std::vector<Values>{{total}, {squares}};
        }};
    check_case(sums);
  }
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("test");
  auto& ops = kernels::operators(*device);
  const Tensor data(*device, {20000}, DType::kF32);
  const Tensor flag(*device, {1}, DType::kI32);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {0.0, std::nan(""), infinity, -infinity}) {
    for (const std::size_t place : {0, 8191, 19999}) {
      Values values = random_values(20000, 1, 1e30);
      values[place] = bad;
      upload(data, values);
      upload(flag, {0.0});
      ops.find_nonfinite(*stream, data, flag);
      CHECK(download(flag)[0] == (bad == 0.0 ? 0.0 : 1.0));
    }
  }
  upload(data, Values(20000, 0.0));
  upload(flag, {1.0});
  ops.find_nonfinite(*stream, data, flag);
  CHECK(download(flag)[0] == 1.0);
}
