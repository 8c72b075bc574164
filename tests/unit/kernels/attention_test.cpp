#include "backend/cpu/attention.hpp"

#include "operator_case.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;
using kernels::Operators;

struct Sizes {
  std::int64_t batch, time, heads, kv_heads, size;
  Shape query() const { return {batch, time, heads, size}; }
  Shape key() const { return {batch, time, kv_heads, size}; }
};

/// Outputs [B, T, H, d] of the formula, with the whole score row.
Values attention(const std::vector<Values>& in, const Sizes& s, double scale, Values* lse) {
  Values out(in[0].size(), 0.0);
  if (lse != nullptr) lse->assign(static_cast<std::size_t>(s.batch * s.heads * s.time), 0.0);
  const auto place = [&](std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t heads) {
    return static_cast<std::size_t>(((b * s.time + t) * heads + h) * s.size);
  };
  const auto d = static_cast<std::size_t>(s.size);
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t kv = h / (s.heads / s.kv_heads);
      for (std::int64_t t = 0; t < s.time; ++t) {
        Values scores;
        const std::size_t q = place(b, t, h, s.heads);
        for (std::int64_t u = 0; u <= t; ++u) {
          double score = 0.0;
          const std::size_t k = place(b, u, kv, s.kv_heads);
          for (std::size_t i = 0; i < d; ++i) score += in[0][q + i] * in[1][k + i];
          scores.push_back(score * scale);
        }
        const double largest = *std::max_element(scores.begin(), scores.end());
        double total = 0.0;
        for (double& score : scores) total += score = std::exp(score - largest);
        for (std::int64_t u = 0; u <= t; ++u) {
          const double p = scores[static_cast<std::size_t>(u)] / total;
          const std::size_t v = place(b, u, kv, s.kv_heads);
          for (std::size_t i = 0; i < d; ++i) out[q + i] += p * in[2][v + i];
        }
        if (lse != nullptr) {
          (*lse)[static_cast<std::size_t>((b * s.heads + h) * s.time + t)] =
              largest + std::log(total);
        }
      }
    }
  }
  return out;
}

OperatorCase forward_case(const Sizes& s, float scale) {
  return {"attention",
          {input(s.query(), 1), input(s.key(), 2), input(s.key(), 3)},
          {output(s.query()), output({s.batch, s.heads, s.time}, Kind::kF32)},
          [=](Operators& ops, Stream& stream, const Tensors& in, const Tensors& out, bool) {
            ops.attention(stream, in[0], in[1], in[2], scale, out[0], out[1]);
          },
          [=](const std::vector<Values>& in) {
            Values lse;
            const Values out = attention(in, s, scale, &lse);
            return std::vector<Values>{out, lse};
          },
          4e-6,
          4e-6};
}

OperatorCase backward_case(const Sizes& s, float scale, int samples) {
  return {
      "attention_backward",
      {input(s.query(), 1), input(s.key(), 2), input(s.key(), 3), input(s.query(), 4)},
      {output(s.query()), output(s.key()), output(s.key())},
      [=](Operators& ops, Stream& stream, const Tensors& in, const Tensors& out, bool accumulate) {
        const Tensor y(in[0].device(), in[0].shape(), in[0].dtype());
        const Tensor lse(in[0].device(), {s.batch, s.heads, s.time}, DType::kF32);
        ops.attention(stream, in[0], in[1], in[2], scale, y, lse);
        ops.attention_backward(stream, in[3], in[0], in[1], in[2], y, lse, scale, out[0],
                               accumulate, out[1], accumulate, out[2], accumulate);
      },
      [=](const std::vector<Values>& in) {
        return numeric_gradients(
            [&](const std::vector<Values>& x) { return attention(x, s, scale, nullptr); },
            {in[0], in[1], in[2]}, in[3], {0, 1, 2}, samples);
      },
      // In 16 bits the stored output, from which the softmax's mean comes, is rounded too.
      1e-5,
      8e-3,
      true};
}

}  // namespace

TEST_CASE("attention agrees with FP64 over odd shapes") {
  for (const Sizes& s : std::vector<Sizes>{{1, 1, 1, 1, 8},
                                           {2, 13, 4, 2, 8},
                                           {1, 64, 2, 2, 16},
                                           {1, 65, 3, 1, 24},
                                           {2, 128, 4, 4, 32},
                                           {1, 257, 2, 1, 64},
                                           {1, 70, 1, 1, 128},
                                           {1, 9, 2, 1, 5},
                                           {0, 5, 2, 1, 8},
                                           {2, 0, 2, 1, 8}}) {
    INFO(s.batch << " " << s.time << " " << s.heads << " " << s.kv_heads << " " << s.size);
    check_case(forward_case(s, static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.size)))));
  }
}

TEST_CASE("gradients of attention agree with central differences") {
  for (const Sizes& s : std::vector<Sizes>{{1, 1, 1, 1, 8},
                                           {2, 13, 4, 2, 8},
                                           {1, 17, 3, 1, 5},
                                           {1, 65, 2, 1, 16},
                                           {1, 130, 2, 1, 32},
                                           {2, 0, 2, 1, 8}}) {
    INFO(s.batch << " " << s.time << " " << s.heads << " " << s.kv_heads << " " << s.size);
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.size)));
    check_case(backward_case(s, scale, s.time > 60 ? 8 : 24));
  }
}

TEST_CASE("attention does not overflow with large scores") {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("test");
  const Tensor q(*device, {1, 70, 1, 8}, DType::kF32);
  const Tensor y(*device, {1, 70, 1, 8}, DType::kF32);
  const Tensor lse(*device, {1, 1, 70}, DType::kF32);
  upload(q, random_values(560, 1, 30.0));
  kernels::operators(*device).attention(*stream, q, q, q, 1.0f, y, lse);
  for (const double value : download(y)) CHECK(std::isfinite(value));
}
