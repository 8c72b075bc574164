#include <tessera/ops.hpp>

#include <cmath>

#include "base/check.hpp"
#include "base/philox.hpp"
#include "kernels/operators.hpp"

namespace tessera::ops {

namespace {

kernels::Operators& table_of(const Context& context) {
  return kernels::operators(context.device());
}

/// The tensor as [rows, n] with n its last dimension.
Tensor as_rows(const Tensor& tensor) {
  const std::int64_t n = tensor.size(-1);
  return tensor.reshape({n == 0 ? 0 : tensor.elements() / n, n});
}

/// The shape with its last dimension replaced.
Shape with_last(const Shape& shape, std::int64_t last) {
  std::vector<std::int64_t> sizes = shape.sizes();
  sizes.back() = last;
  return Shape(std::move(sizes));
}

Tensor empty_like(Context& context, const Tensor& tensor) {
  return Tensor(context.device(), tensor.shape(), tensor.dtype());
}

Tensor statistics(Context& context, std::int64_t rows) {
  return Tensor(context.device(), Shape{rows}, DType::kF32);
}

/// The target of an input, or an undefined tensor where no gradient is wanted.
GradTarget optional_target(BackwardScope& scope, int index) {
  return scope.needs(index) ? scope.target(index) : GradTarget{};
}

/// The same for kernels that write every gradient: one that is not wanted goes to a scratch tensor.
GradTarget target_or_scratch(BackwardScope& scope, int index, const Tensor& like) {
  if (scope.needs(index)) return scope.target(index);
  return {empty_like(scope.context(), like), false};
}

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  Context& context = weight.context();
  auto& table = table_of(context);
  const Tensor input = as_rows(x.tensor());
  const Tensor w = weight.tensor();
  TESSERA_CHECK(w.shape().rank() == 2 && w.size(1) == input.size(1),
                "linear: input {} does not fit weight {}", x.shape().to_string(),
                w.shape().to_string());
  Tensor output(context.device(), with_last(x.shape(), w.size(0)), input.dtype());
  const Tensor rows = as_rows(output);
  table.matmul(context.stream(), input, false, w, true, rows, false);
  if (bias.defined()) table.add_bias(context.stream(), rows, bias.tensor());

  std::vector<Variable> inputs{x, weight};
  if (bias.defined()) inputs.push_back(bias);
  return context.record(
      "linear", std::move(inputs), output,
      [input, w, &table, with_bias = bias.defined()](BackwardScope& scope) {
        Stream& stream = scope.context().stream();
        const Tensor grad = as_rows(scope.grad_output());
        if (scope.needs(0)) {
          const GradTarget dx = scope.target(0);
          table.matmul(stream, grad, false, w, false, as_rows(dx.tensor), dx.accumulate);
        }
        if (scope.needs(1)) {
          const GradTarget dw = scope.target(1);
          table.matmul(stream, grad, true, input, false, dw.tensor, dw.accumulate);
        }
        if (with_bias && scope.needs(2)) {
          const GradTarget db = scope.target(2);
          table.column_sum(stream, grad, db.tensor, db.accumulate);
        }
      });
}

Variable embedding(const Tensor& tokens, const Variable& weights) {
  Context& context = weights.context();
  auto& table = table_of(context);
  std::vector<std::int64_t> sizes = tokens.shape().sizes();
  sizes.push_back(weights.size(1));
  Tensor output(context.device(), Shape(std::move(sizes)), weights.tensor().dtype());
  const Tensor ids = tokens.reshape({tokens.elements()});
  table.embedding(context.stream(), ids, weights.tensor(), as_rows(output));
  return context.record("embedding", {weights}, output, [ids, &table](BackwardScope& scope) {
    const GradTarget place = scope.target(0);
    table.embedding_backward(scope.context().stream(), ids, as_rows(scope.grad_output()),
                             place.tensor, place.accumulate);
  });
}

Variable add_positions(const Variable& x, const Variable& positions) {
  Context& context = positions.context();
  auto& table = table_of(context);
  Tensor output = empty_like(context, x.tensor());
  TESSERA_CHECK(x.size(1) <= positions.size(0), "sequence of {} with {} learned positions",
                x.size(1), positions.size(0));
  table.add_positions(context.stream(), x.tensor(), positions.tensor(), output);
  return context.record("add_positions", {x, positions}, output, [&table](BackwardScope& scope) {
    const Tensor& grad = scope.grad_output();
    if (scope.needs(1)) {
      const GradTarget place = scope.target(1);
      table.add_positions_backward(scope.context().stream(), grad, place.tensor, place.accumulate);
    }
    if (scope.needs(0)) scope.pass(0, grad);
  });
}

Variable rms_norm(const Variable& x, const Variable& weight, float eps) {
  Context& context = weight.context();
  auto& table = table_of(context);
  const Tensor input = as_rows(x.tensor());
  const Tensor w = weight.tensor();
  Tensor output = empty_like(context, x.tensor());
  const Tensor rstd = statistics(context, input.size(0));
  table.rms_norm(context.stream(), input, w, eps, as_rows(output), rstd);
  return context.record(
      "rms_norm", {x, weight}, output, [input, w, rstd, &table](BackwardScope& scope) {
        const GradTarget dx = optional_target(scope, 0);
        const GradTarget dw = optional_target(scope, 1);
        table.rms_norm_backward(scope.context().stream(), as_rows(scope.grad_output()), input, w,
                                rstd, dx.tensor.defined() ? as_rows(dx.tensor) : Tensor(),
                                dx.accumulate, dw.tensor, dw.accumulate);
      });
}

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, float eps) {
  Context& context = weight.context();
  auto& table = table_of(context);
  const Tensor input = as_rows(x.tensor());
  const Tensor w = weight.tensor();
  Tensor output = empty_like(context, x.tensor());
  const Tensor mean = statistics(context, input.size(0));
  const Tensor rstd = statistics(context, input.size(0));
  table.layer_norm(context.stream(), input, w, bias.tensor(), eps, as_rows(output), mean, rstd);
  return context.record("layer_norm", {x, weight, bias}, output,
                        [input, w, mean, rstd, &table](BackwardScope& scope) {
                          const GradTarget dx = optional_target(scope, 0);
                          const GradTarget dw = optional_target(scope, 1);
                          const GradTarget db = optional_target(scope, 2);
                          table.layer_norm_backward(
                              scope.context().stream(), as_rows(scope.grad_output()), input, w,
                              mean, rstd, dx.tensor.defined() ? as_rows(dx.tensor) : Tensor(),
                              dx.accumulate, dw.tensor, dw.accumulate, db.tensor, db.accumulate);
                        });
}

Variable rope(const Variable& x, double theta) {
  Context& context = x.context();
  auto& table = table_of(context);
  Tensor output = empty_like(context, x.tensor());
  table.rope(context.stream(), x.tensor(), theta, false, output, false);
  return context.record("rope", {x}, output, [theta, &table](BackwardScope& scope) {
    const GradTarget dx = scope.target(0);
    table.rope(scope.context().stream(), scope.grad_output(), theta, true, dx.tensor,
               dx.accumulate);
  });
}

Variable attention(const Variable& q, const Variable& k, const Variable& v) {
  Context& context = q.context();
  auto& table = table_of(context);
  const Tensor qt = q.tensor();
  const Tensor kt = k.tensor();
  const Tensor vt = v.tensor();
  TESSERA_CHECK(qt.shape().rank() == 4 && kt.shape() == vt.shape() && kt.size(2) > 0 &&
                    qt.size(2) % kt.size(2) == 0 && qt.size(3) == kt.size(3),
                "attention: q {} with k {} and v {}", qt.shape().to_string(),
                kt.shape().to_string(), vt.shape().to_string());
  Tensor output = empty_like(context, qt);
  const Tensor lse(context.device(), Shape{qt.size(0), qt.size(2), qt.size(1)}, DType::kF32);
  const float scale = 1.0f / std::sqrt(static_cast<float>(qt.size(3)));
  table.attention(context.stream(), qt, kt, vt, scale, output, lse);
  return context.record("attention", {q, k, v}, output,
                        [qt, kt, vt, output, lse, scale, &table](BackwardScope& scope) {
                          const GradTarget dq = target_or_scratch(scope, 0, qt);
                          const GradTarget dk = target_or_scratch(scope, 1, kt);
                          const GradTarget dv = target_or_scratch(scope, 2, vt);
                          table.attention_backward(scope.context().stream(), scope.grad_output(),
                                                   qt, kt, vt, output, lse, scale, dq.tensor,
                                                   dq.accumulate, dk.tensor, dk.accumulate,
                                                   dv.tensor, dv.accumulate);
                        });
}

Variable swiglu(const Variable& gate, const Variable& up) {
  Context& context = gate.context();
  auto& table = table_of(context);
  const Tensor g = gate.tensor();
  const Tensor u = up.tensor();
  Tensor output = empty_like(context, g);
  table.swiglu(context.stream(), g, u, output);
  return context.record("swiglu", {gate, up}, output, [g, u, &table](BackwardScope& scope) {
    const GradTarget dg = optional_target(scope, 0);
    const GradTarget du = optional_target(scope, 1);
    table.swiglu_backward(scope.context().stream(), scope.grad_output(), g, u, dg.tensor,
                          dg.accumulate, du.tensor, du.accumulate);
  });
}

Variable gelu(const Variable& x) {
  Context& context = x.context();
  auto& table = table_of(context);
  const Tensor input = x.tensor();
  Tensor output = empty_like(context, input);
  table.gelu(context.stream(), input, output);
  return context.record("gelu", {x}, output, [input, &table](BackwardScope& scope) {
    const GradTarget dx = scope.target(0);
    table.gelu_backward(scope.context().stream(), scope.grad_output(), input, dx.tensor,
                        dx.accumulate);
  });
}

Variable add(const Variable& a, const Variable& b) {
  Context& context = a.context();
  auto& table = table_of(context);
  TESSERA_CHECK(a.shape() == b.shape(), "add: {} and {}", a.shape().to_string(),
                b.shape().to_string());
  Tensor output = empty_like(context, a.tensor());
  table.add(context.stream(), a.tensor(), b.tensor(), output);
  return context.record("add", {a, b}, output, [](BackwardScope& scope) {
    if (scope.needs(0)) scope.pass(0, scope.grad_output());
    if (scope.needs(1)) scope.pass(1, scope.grad_output());
  });
}

Variable reshape(const Variable& x, Shape shape) {
  return x.context().record("reshape", {x}, x.tensor().reshape(std::move(shape)),
                            [](BackwardScope& scope) { scope.pass(0, scope.grad_output()); });
}

Variable dropout(const Variable& x, double p, std::uint64_t layer) {
  Context& context = x.context();
  if (!context.training() || p <= 0.0) return x;
  auto& table = table_of(context);
  const Tensor rows_of_sequences = context.sequence_index;
  const std::int64_t batch = rows_of_sequences.elements();
  TESSERA_CHECK(batch > 0 && x.tensor().elements() % batch == 0,
                "dropout: {} values for {} sequences", x.tensor().elements(), batch);
  const Shape rows{batch, x.tensor().elements() / batch};
  const std::uint64_t key = philox(context.seed, layer, hash_name("dropout")).word[0] |
                            (static_cast<std::uint64_t>(layer) << 32);
  Tensor output = empty_like(context, x.tensor());
  table.dropout(context.stream(), x.tensor().reshape(rows), rows_of_sequences,
                static_cast<float>(p), key, output.reshape(rows), false);
  return context.record("dropout", {x}, output,
                        [rows, rows_of_sequences, p, key, &table](BackwardScope& scope) {
                          const GradTarget dx = scope.target(0);
                          table.dropout(scope.context().stream(), scope.grad_output().reshape(rows),
                                        rows_of_sequences, static_cast<float>(p), key,
                                        dx.tensor.reshape(rows), dx.accumulate);
                        });
}

Variable cross_entropy_sum(const Variable& logits, const Tensor& targets) {
  Context& context = logits.context();
  auto& table = table_of(context);
  const Tensor rows = as_rows(logits.tensor());
  const Tensor wanted = targets.reshape({targets.elements()});
  TESSERA_CHECK(rows.size(0) == wanted.elements(), "{} logit rows for {} targets", rows.size(0),
                wanted.elements());
  const Tensor losses = statistics(context, rows.size(0));
  const Tensor lse = statistics(context, rows.size(0));
  table.cross_entropy(context.stream(), rows, wanted, losses, lse);
  Tensor sum(context.device(), Shape{1}, DType::kF32);
  table.sum(context.stream(), losses, sum);
  return context.record(
      "cross_entropy", {logits}, sum, [rows, wanted, lse, &table](BackwardScope& scope) {
        const GradTarget place = scope.target(0);
        table.cross_entropy_backward(scope.context().stream(), rows, wanted, lse,
                                     scope.grad_output(), as_rows(place.tensor), place.accumulate);
      });
}

}  // namespace tessera::ops
