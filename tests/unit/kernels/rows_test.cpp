#include "kernels/rows.hpp"

#include "operator_case.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;
using kernels::Operators;

constexpr std::int64_t kRows[] = {0, 1, 3, 17, 257};
constexpr std::int64_t kColumns[] = {1, 5, 64, 257};

/// The index of an element as size_t.
std::size_t at(std::int64_t row, std::int64_t columns, std::int64_t column) {
  return static_cast<std::size_t>(row * columns + column);
}

/// Norms of all rows: x [rows, n], w [n], b [n] (empty for RMSNorm).
Values norm(const Values& x, const Values& w, const Values& b, bool centred, double eps) {
  const std::size_t n = w.size();
  Values y(x.size());
  for (std::size_t row = 0; row < x.size() / n; ++row) {
    double mean = 0.0;
    for (std::size_t i = 0; i < n && centred; ++i) mean += x[row * n + i] / static_cast<double>(n);
    double square = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      square += (x[row * n + i] - mean) * (x[row * n + i] - mean) / static_cast<double>(n);
    }
    for (std::size_t i = 0; i < n; ++i) {
      y[row * n + i] = (x[row * n + i] - mean) / std::sqrt(square + eps) * w[i];
      if (!b.empty()) y[row * n + i] += b[i];
    }
  }
  return y;
}

OperatorCase rms_norm_case(std::int64_t rows, std::int64_t n) {
  return {"rms_norm",
          {input({rows, n}, 1), input({n}, 2)},
          {output({rows, n})},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
            const Tensor rstd(in[0].device(), {in[0].size(0)}, DType::kF32);
            ops.rms_norm(s, in[0], in[1], 1e-3f, out[0], rstd);
          },
          [](const std::vector<Values>& in) {
            return std::vector<Values>{norm(in[0], in[1], {}, false, 1e-3)};
          }};
}

OperatorCase layer_norm_case(std::int64_t rows, std::int64_t n) {
  return {"layer_norm",
          {input({rows, n}, 1), input({n}, 2), input({n}, 3)},
          {output({rows, n})},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
            const Tensor mean(in[0].device(), {in[0].size(0)}, DType::kF32);
            const Tensor rstd(in[0].device(), {in[0].size(0)}, DType::kF32);
            ops.layer_norm(s, in[0], in[1], in[2], 1e-3f, out[0], mean, rstd);
          },
          [](const std::vector<Values>& in) {
            return std::vector<Values>{norm(in[0], in[1], in[2], true, 1e-3)};
          }};
}

OperatorCase rms_norm_backward_case(std::int64_t rows, std::int64_t n) {
  return {"rms_norm_backward",
          {input({rows, n}, 3), input({rows, n}, 1), input({n}, 2)},
          {output({rows, n}), output({n}, Kind::kF32)},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool accumulate) {
            const Tensor y(in[0].device(), in[1].shape(), in[1].dtype());
            const Tensor rstd(in[0].device(), {in[0].size(0)}, DType::kF32);
            ops.rms_norm(s, in[1], in[2], 1e-3f, y, rstd);
            ops.rms_norm_backward(s, in[0], in[1], in[2], rstd, out[0], accumulate, out[1],
                                  accumulate);
          },
          [](const std::vector<Values>& in) {
            return numeric_gradients(
                [](const std::vector<Values>& x) { return norm(x[0], x[1], {}, false, 1e-3); },
                {in[1], in[2]}, in[0], {0, 1}, 12);
          },
          1e-5,
          1e-5,
          true};
}

OperatorCase layer_norm_backward_case(std::int64_t rows, std::int64_t n) {
  return {"layer_norm_backward",
          {input({rows, n}, 3), input({rows, n}, 1), input({n}, 2)},
          {output({rows, n}), output({n}, Kind::kF32), output({n}, Kind::kF32)},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool accumulate) {
            Device& device = in[0].device();
            const Tensor y(device, in[1].shape(), in[1].dtype());
            const Tensor mean(device, {in[0].size(0)}, DType::kF32);
            const Tensor rstd(device, {in[0].size(0)}, DType::kF32);
            ops.layer_norm(s, in[1], in[2], in[2], 1e-3f, y, mean, rstd);
            ops.layer_norm_backward(s, in[0], in[1], in[2], mean, rstd, out[0], accumulate, out[1],
                                    accumulate, out[2], accumulate);
          },
          [](const std::vector<Values>& in) {
            return numeric_gradients(
                [](const std::vector<Values>& x) { return norm(x[0], x[1], x[2], true, 1e-3); },
                {in[1], in[2], Values(in[2].size(), 0.0)}, in[0], {0, 1, 2}, 12);
          },
          1e-5,
          1e-5,
          true};
}

OperatorCase add_bias_case(std::int64_t rows, std::int64_t n) {
  return {"add_bias",
          {input({rows, n}, 1), input({n}, 2)},
          {output({rows, n})},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
            ops.copy(s, in[0], out[0]);
            ops.add_bias(s, out[0], in[1]);
          },
          [=](const std::vector<Values>& in) {
            Values y = in[0];
            for (std::size_t i = 0; i < y.size(); ++i) y[i] += in[1][i % in[1].size()];
            return std::vector<Values>{y};
          }};
}

OperatorCase column_sum_case(std::int64_t rows, std::int64_t n) {
  return {"column_sum",
          {input({rows, n}, 1)},
          {output({n}, Kind::kF32)},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool accumulate) {
            ops.column_sum(s, in[0], out[0], accumulate);
          },
          [=](const std::vector<Values>& in) {
            Values y(static_cast<std::size_t>(n), 0.0);
            for (std::size_t i = 0; i < in[0].size(); ++i) y[i % y.size()] += in[0][i];
            return std::vector<Values>{y};
          },
          2e-6,
          2e-6,
          true};
}

OperatorCase embedding_case(std::int64_t rows, std::int64_t n) {
  return {"embedding",
          {{{rows}, Kind::kI32, random_integers(rows, 0, 10, 4)}, input({11, n}, 1)},
          {output({rows, n})},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
            ops.embedding(s, in[0], in[1], out[0]);
          },
          [=](const std::vector<Values>& in) {
            Values y;
            for (const double token : in[0]) {
              for (std::int64_t i = 0; i < n; ++i) {
                y.push_back(in[1][at(static_cast<std::int64_t>(token), n, i)]);
              }
            }
            return std::vector<Values>{y};
          }};
}

OperatorCase embedding_backward_case(std::int64_t rows, std::int64_t n) {
  return {"embedding_backward",
          {{{rows}, Kind::kI32, random_integers(rows, 0, 10, 4)}, input({rows, n}, 1)},
          {output({11, n}, Kind::kF32)},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool accumulate) {
            ops.embedding_backward(s, in[0], in[1], out[0], accumulate);
          },
          [=](const std::vector<Values>& in) {
            Values table(static_cast<std::size_t>(11 * n), 0.0);
            for (std::int64_t row = 0; row < rows; ++row) {
              const auto token = static_cast<std::int64_t>(in[0][static_cast<std::size_t>(row)]);
              for (std::int64_t i = 0; i < n; ++i) table[at(token, n, i)] += in[1][at(row, n, i)];
            }
            return std::vector<Values>{table};
          },
          2e-6,
          2e-6,
          true};
}

OperatorCase positions_case(std::int64_t time, std::int64_t n) {
  return {"add_positions",
          {input({3, time, n}, 1), input({time + 2, n}, 2)},
          {output({3, time, n})},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
            ops.add_positions(s, in[0], in[1], out[0]);
          },
          [=](const std::vector<Values>& in) {
            Values y = in[0];
            for (std::size_t i = 0; i < y.size(); ++i) {
              y[i] += in[1][i % static_cast<std::size_t>(time * n)];
            }
            return std::vector<Values>{y};
          }};
}

OperatorCase positions_backward_case(std::int64_t time, std::int64_t n) {
  return {"add_positions_backward",
          {input({3, time, n}, 1)},
          {output({time + 2, n}, Kind::kF32)},
          [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool accumulate) {
            ops.add_positions_backward(s, in[0], out[0], accumulate);
          },
          [=](const std::vector<Values>& in) {
            Values table(static_cast<std::size_t>((time + 2) * n), 0.0);
            for (std::size_t i = 0; i < in[0].size(); ++i) {
              table[i % static_cast<std::size_t>(time * n)] += in[0][i];
            }
            return std::vector<Values>{table};
          },
          2e-6,
          2e-6,
          true};
}

Values rotated(const Values& x, std::int64_t time, std::int64_t heads, std::int64_t size,
               double theta, double direction) {
  Values y(x.size());
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(x.size()) / size; ++row) {
    const double t = static_cast<double>(row / heads % time);
    for (std::int64_t i = 0; i < size / 2; ++i) {
      const double angle =
          direction * t *
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
      const double a = x[at(row, size, i)];
      const double b = x[at(row, size, i + size / 2)];
      y[at(row, size, i)] = a * std::cos(angle) - b * std::sin(angle);
      y[at(row, size, i + size / 2)] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  return y;
}

OperatorCase rope_case(std::int64_t time, std::int64_t heads, std::int64_t size, bool inverse) {
  return {inverse ? "rope inverse" : "rope",
          {input({2, time, heads, size}, 1)},
          {output({2, time, heads, size})},
          [=](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool accumulate) {
            ops.rope(s, in[0], 10000.0, inverse, out[0], accumulate);
          },
          [=](const std::vector<Values>& in) {
            return std::vector<Values>{
                rotated(in[0], time, heads, size, 10000.0, inverse ? -1.0 : 1.0)};
          },
          3e-5,
          3e-5,
          true};  // FP32 angles up to `time`
}

}  // namespace

TEST_CASE("row operators agree with FP64") {
  for (const std::int64_t rows : kRows) {
    for (const std::int64_t n : kColumns) {
      if (rows * n > 20000 && n != 257) continue;
      INFO(rows << " rows of " << n);
      check_case(rms_norm_case(rows, n));
      check_case(layer_norm_case(rows, n));
      check_case(add_bias_case(rows, n));
      check_case(column_sum_case(rows, n));
      check_case(embedding_case(rows, n));
      check_case(embedding_backward_case(rows, n));
      check_case(positions_case(rows, n));
      check_case(positions_backward_case(rows, n));
    }
  }
}

TEST_CASE("gradients of norms agree with central differences") {
  for (const std::int64_t rows : kRows) {
    for (const std::int64_t n : {5, 64, 257}) {
      if (rows * n > 20000) continue;
      INFO(rows << " rows of " << n);
      check_case(rms_norm_backward_case(rows, n));
      check_case(layer_norm_backward_case(rows, n));
    }
  }
}

TEST_CASE("rope turns pairs, and back") {
  for (const std::int64_t time : {0, 1, 13, 257}) {
    for (const std::int64_t size : {2, 8, 32}) {
      check_case(rope_case(time, 3, size, false));
      check_case(rope_case(time, 3, size, true));
    }
  }
}

TEST_CASE("rope may be in place and its table serves shorter times") {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("test");
  auto& ops = kernels::operators(*device);
  const Values values = random_values(2 * 5 * 2 * 8, 1);
  const Tensor x(*device, {2, 5, 2, 8}, DType::kF32);
  const Tensor longer(*device, {1, 50, 2, 8}, DType::kF32);
  upload(x, values);
  upload(longer, random_values(800, 2));
  ops.rope(*stream, longer, 500.0, false, longer, false);
  ops.rope(*stream, x, 500.0, false, x, false);
  const Values want = rotated(values, 5, 2, 8, 500.0, 1.0);
  const Values got = download(x);
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).margin(1e-5));
}
