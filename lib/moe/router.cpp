#include "moe/router.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/check.hpp"
#include "moe/balance.hpp"
#include "moe/host_copy.hpp"

namespace tessera::moe {
namespace {

Tensor as_fp32(Context& context, const Tensor& input) {
  if (input.dtype() == DType::kF32) return input;
  const Tensor output(context.device(), input.shape(), DType::kF32, MemoryTag::kWorkspace);
  kernels::operators(context.device()).copy(context.stream(), input, output);
  return output;
}

// target (+)= a · b with FP32 operands, also where the target has another type.
void product_into(Context& context, const Tensor& a, bool transpose_a, const Tensor& b,
                  const GradTarget& target, const Shape& shape) {
  kernels::Operators& ops = kernels::operators(context.device());
  Stream& stream = context.stream();
  const Tensor output = target.tensor.reshape(shape);
  if (output.dtype() == DType::kF32) {
    ops.matmul(stream, a, transpose_a, b, false, output, target.accumulate);
    return;
  }
  const Tensor wide(context.device(), shape, DType::kF32, MemoryTag::kWorkspace);
  ops.matmul(stream, a, transpose_a, b, false, wide, false);
  if (target.accumulate) {
    ops.add_to(stream, wide, output);
  } else {
    ops.copy(stream, wide, output);
  }
}

kernels::Routing make_routing(Device& device, std::int64_t tokens, std::int64_t experts,
                              std::int64_t top_k) {
  return {.probs = Tensor(device, Shape{tokens, experts}, DType::kF32),
          .choice = Tensor(device, Shape{tokens, top_k}, DType::kI32),
          .position = Tensor(device, Shape{tokens, top_k}, DType::kI32),
          .weight = Tensor(device, Shape{tokens, top_k}, DType::kF32),
          .counts = Tensor(device, Shape{experts}, DType::kI64),
          .first_counts = Tensor(device, Shape{experts}, DType::kI64),
          .prob_sums = Tensor(device, Shape{experts}, DType::kF32),
          .z_sum = Tensor(device, Shape{1}, DType::kF32),
          .lse = Tensor(device, Shape{tokens}, DType::kF32)};
}

// The sums of this rank, and of its peers where the loss is theirs too.
Balance balance_of(Context& context, const kernels::Routing& routing, const RouterCall& call) {
  const auto probs = read_to_host<float>(context.stream(), routing.prob_sums);
  const auto firsts = read_to_host<std::int64_t>(context.stream(), routing.first_counts);
  BalanceSums sums{{probs.begin(), probs.end()},
                   {firsts.begin(), firsts.end()},
                   static_cast<double>(call.tokens.routed)};
  if (call.balance_group != nullptr) {
    sums = sums.all_reduce(context, *call.balance_group, fmt::format("moe balance {}", call.layer));
  }
  return balance_loss(sums, call.route.top_k);
}

}  // namespace

TokenSet find_tokens(Context& context, const Shape& shape, bool with_noise_index) {
  const std::int64_t count = shape[0];
  const std::int64_t rows = shape.elements() / shape[-1];
  const std::int64_t length = count == 0 ? 0 : rows / count;
  Stream& stream = context.stream();
  std::vector<std::int64_t> sequences(static_cast<std::size_t>(count));
  if (!context.sequence_index.defined()) {
    std::iota(sequences.begin(), sequences.end(), std::int64_t{0});
  } else if (context.sequence_index.elements() == count) {
    sequences = read_to_host<std::int64_t>(stream, context.sequence_index);
  } else {
    fail(ErrorCode::kUsage, "an MoE layer got {} while the context has {} sequences",
         shape.to_string(), context.sequence_index.elements());
  }

  TokenSet tokens;
  const std::int64_t padding = std::count(sequences.begin(), sequences.end(), -1);
  tokens.routed = rows - padding * length;
  if (padding > 0) {
    std::vector<std::int32_t> valid;
    valid.reserve(static_cast<std::size_t>(rows));
    for (const std::int64_t sequence : sequences) {
      valid.insert(valid.end(), static_cast<std::size_t>(length), sequence < 0 ? 0 : 1);
    }
    tokens.valid =
        copy_to_device(stream, context.device(), std::move(valid), Shape{rows}, DType::kI32);
  }
  if (with_noise_index) {
    std::vector<std::int64_t> index;
    index.reserve(static_cast<std::size_t>(rows));
    for (const std::int64_t sequence : sequences) {
      for (std::int64_t t = 0; t < length; ++t) index.push_back(sequence * length + t);
    }
    tokens.noise_index =
        copy_to_device(stream, context.device(), std::move(index), Shape{rows}, DType::kI64);
  }
  return tokens;
}

Routed route_tokens(const Variable& x, const Variable& weight, const RouterCall& call) {
  Context& context = x.context();
  Stream& stream = context.stream();
  kernels::Operators& ops = kernels::operators(context.device());
  const std::int64_t experts = weight.size(0);
  const std::int64_t hidden = weight.size(1);
  const std::int64_t tokens = x.tensor().elements() / hidden;
  const Tensor rows = x.tensor().reshape(Shape{tokens, hidden});
  const Tensor table = weight.tensor();

  const Tensor logits(context.device(), Shape{tokens, experts}, DType::kF32);
  ops.matmul(stream, as_fp32(context, rows), false, as_fp32(context, table), true, logits, false);
  Routed routed;
  routed.routing = make_routing(context.device(), tokens, experts, call.route.top_k);
  ops.route(stream, logits, call.tokens.valid, call.route, routed.routing);

  routed.choice = read_to_host<std::int32_t>(stream, routed.routing.choice);
  routed.position = read_to_host<std::int32_t>(stream, routed.routing.position);
  routed.counts = read_to_host<std::int64_t>(stream, routed.routing.counts);
  const Balance balance = balance_of(context, routed.routing, call);
  routed.aux_loss = balance.loss;
  if (call.tokens.routed > 0) {
    routed.z_loss = static_cast<double>(read_to_host<float>(stream, routed.routing.z_sum)[0]) /
                    static_cast<double>(call.tokens.routed);
  }

  // A loss that is a mean over S_m tokens is seeded with scale · coefficient · S_m, so S_m cancels.
  routed.weight = context.record(
      "moe_router", {x, weight}, routed.routing.weight,
      [rows, table, experts, routing = routed.routing, route = call.route, slope = balance.slope,
       aux_coef = call.options.aux_loss_coef,
       z_coef = call.options.z_loss_coef](BackwardScope& scope) {
        Context& owner = scope.context();
        kernels::Operators& kernel = kernels::operators(owner.device());
        const double aux_seed = owner.auxiliary_scale * aux_coef;
        std::vector<float> prob_scale;
        for (const double value : slope) prob_scale.push_back(static_cast<float>(aux_seed * value));
        const Tensor prob_grad = copy_to_device(owner.stream(), owner.device(),
                                                std::move(prob_scale), Shape{experts}, DType::kF32);
        const Tensor grad_logits(owner.device(), routing.probs.shape(), DType::kF32);
        kernel.route_backward(owner.stream(), routing, route, scope.grad_output(), prob_grad,
                              static_cast<float>(owner.auxiliary_scale * z_coef), grad_logits,
                              false);
        if (scope.needs(0)) {
          product_into(owner, grad_logits, false, as_fp32(owner, table), scope.target(0),
                       rows.shape());
        }
        if (scope.needs(1)) {
          product_into(owner, grad_logits, true, as_fp32(owner, rows), scope.target(1),
                       table.shape());
        }
      });
  return routed;
}

}  // namespace tessera::moe
