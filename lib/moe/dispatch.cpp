#include "moe/dispatch.hpp"

#include "kernels/operators.hpp"

namespace tessera::moe {
namespace {

// [.., width] as rows.
Tensor as_rows(const Tensor& tensor) {
  const std::int64_t width = tensor.size(-1);
  return tensor.reshape(Shape{tensor.elements() / width, width});
}

}  // namespace

Variable dispatch(const Variable& x, const std::shared_ptr<const Journey>& journey) {
  Context& context = x.context();
  const Tensor input = as_rows(x.tensor());
  const Tensor sorted(context.device(), Shape{journey->token.elements(), input.size(1)},
                      input.dtype());
  kernels::operators(context.device()).gather_rows(context.stream(), input, journey->token, sorted);
  const Tensor output = journey->exchange.to_experts(context, sorted, "dispatch");

  return context.record("moe_dispatch", {x}, output, [journey](BackwardScope& scope) {
    Context& owner = scope.context();
    const Tensor grad =
        journey->exchange.from_experts(owner, scope.grad_output(), "dispatch backward");
    const GradTarget target = scope.target(0);
    kernels::operators(owner.device())
        .combine_rows(owner.stream(), grad, journey->slot, Tensor(), as_rows(target.tensor),
                      target.accumulate);
  });
}

Variable combine(const Variable& rows, const Variable& weight, const Shape& shape,
                 const std::shared_ptr<const Journey>& journey) {
  Context& context = rows.context();
  const Tensor returned = journey->exchange.from_experts(context, rows.tensor(), "combine");
  const Tensor output(context.device(), shape, returned.dtype());
  kernels::operators(context.device())
      .combine_rows(context.stream(), returned, journey->slot, weight.tensor(), as_rows(output),
                    false);

  const auto backward = [journey, returned, weights = weight.tensor()](BackwardScope& scope) {
    Context& owner = scope.context();
    // Every sorted row has exactly one route, so all of grad_returned is written.
    const Tensor grad_returned(owner.device(), returned.shape(), returned.dtype());
    const Tensor grad_weight(owner.device(), weights.shape(), DType::kF32);
    kernels::operators(owner.device())
        .combine_rows_backward(owner.stream(), as_rows(scope.grad_output()), returned,
                               journey->slot, weights, grad_returned, grad_weight);
    if (scope.needs(1)) scope.pass(1, grad_weight);
    const Tensor grad_rows = journey->exchange.to_experts(owner, grad_returned, "combine backward");
    if (scope.needs(0)) scope.pass(0, grad_rows);
  };
  return context.record("moe_combine", {rows, weight}, output, backward);
}

}  // namespace tessera::moe
