#include "backend/cpu/cpu_operators.hpp"
#include "backend/cpu/dispatch.hpp"
#include "backend/cpu/launch.hpp"
#include "kernels/routing.hpp"
#include "kernels/rows.hpp"
#include "kernels/team.hpp"

namespace tessera::cpu {

namespace {

/// Checks the parts of `routing` for S tokens and E experts.
void check_routing(const kernels::Routing& routing, std::int64_t tokens, std::int64_t experts,
                   int top_k) {
  TESSERA_CHECK(top_k >= 1 && top_k <= experts, "top {} of {} experts", top_k, experts);
  check_tensor(routing.probs, tokens * experts, DType::kF32, "probs");
  check_tensor(routing.choice, tokens * top_k, DType::kI32, "choice");
  check_tensor(routing.position, tokens * top_k, DType::kI32, "position");
  check_tensor(routing.weight, tokens * top_k, DType::kF32, "weight");
  check_tensor(routing.lse, tokens, DType::kF32, "lse");
}

}  // namespace

void CpuOperators::route(Stream& stream, const Tensor& logits, const Tensor& valid,
                         const kernels::RouteOptions& options, const kernels::Routing& routing) {
  TESSERA_CHECK(logits.shape().rank() == 2, "router logits {}", logits.shape().to_string());
  const std::int64_t tokens = logits.size(0);
  const std::int64_t experts = logits.size(1);
  check_tensor(logits, tokens * experts, DType::kF32, "logits");
  check_optional(valid, tokens, DType::kI32, "valid");
  if (options.sample_second) check_tensor(options.noise_index, tokens, DType::kI64, "noise_index");
  check_routing(routing, tokens, experts, options.top_k);
  check_tensor(routing.counts, experts, DType::kI64, "counts");
  check_tensor(routing.first_counts, experts, DType::kI64, "first_counts");
  check_tensor(routing.prob_sums, experts, DType::kF32, "prob_sums");
  check_tensor(routing.z_sum, 1, DType::kF32, "z_sum");
  stream.enqueue([=] {
    Device& device = logits.device();
    const int k = options.top_k;
    auto* probs = routing.probs.data<float>();
    auto* lse = routing.lse.data<float>();
    auto* choice = routing.choice.data<std::int32_t>();
    auto* position = routing.position.data<std::int32_t>();
    auto* counts = routing.counts.data<std::int64_t>();
    auto* first_counts = routing.first_counts.data<std::int64_t>();
    run_items(
        device, tokens, experts,
        kernels::RouteTokens{
            logits.data<float>(), data_or_null<std::int32_t>(valid), probs, lse, choice, experts, k,
            options.sample_second ? options.noise_index.data<std::int64_t>() : nullptr,
            options.seed});
    if (options.probs_policy) {
      run_items(device, experts, tokens * k,
                kernels::RouteMostProbable{probs, choice, position, counts, first_counts, tokens,
                                           experts, options.capacity, k});
    } else {
      const Workspace<std::int64_t> scratch(device, experts);
      kernels::RoutePositions{choice,       position,         counts,
                              first_counts, scratch.data(),   tokens,
                              experts,      options.capacity, k}(kernels::SerialTeam{}, 0);
    }
    run_items(
        device, tokens, k,
        kernels::RouteWeights{probs, choice, position, routing.weight.data<float>(), experts, k});
    run_column_sums(
        device, tokens,
        kernels::RouteProbSums{probs, choice, routing.prob_sums.data<float>(), experts, k});
    *routing.z_sum.data<float>() = run_sum(device, tokens, kernels::RouteZTerm{lse, choice, k});
  });
}

void CpuOperators::route_backward(Stream& stream, const kernels::Routing& routing,
                                  const kernels::RouteOptions& options, const Tensor& grad_weight,
                                  const Tensor& prob_scale, float z_scale,
                                  const Tensor& grad_logits, bool accumulate) {
  TESSERA_CHECK(grad_logits.shape().rank() == 2, "router gradient {}",
                grad_logits.shape().to_string());
  const std::int64_t tokens = grad_logits.size(0);
  const std::int64_t experts = grad_logits.size(1);
  check_tensor(grad_logits, tokens * experts, DType::kF32, "grad_logits");
  check_routing(routing, tokens, experts, options.top_k);
  check_optional(grad_weight, tokens * options.top_k, DType::kF32, "grad_weight");
  check_optional(prob_scale, experts, DType::kF32, "prob_scale");
  stream.enqueue([=] {
    dispatch_write(accumulate, [&]<kernels::Write W>() {
      run_items(grad_logits.device(), tokens, experts,
                kernels::RouteBackward<W>{
                    routing.probs.data<float>(), routing.choice.data<std::int32_t>(),
                    routing.position.data<std::int32_t>(), routing.weight.data<float>(),
                    routing.lse.data<float>(), data_or_null<float>(grad_weight),
                    data_or_null<float>(prob_scale), grad_logits.data<float>(), experts, z_scale,
                    options.top_k});
    });
  });
}

void CpuOperators::gather_rows(Stream& stream, const Tensor& input, const Tensor& index,
                               const Tensor& output) {
  const std::int64_t rows = index.elements();
  const std::int64_t columns = output.size(-1);
  check_tensor(index, rows, DType::kI32, "index");
  check_tensor(output, rows * columns, input.dtype(), "output");
  stream.enqueue([=] {
    dispatch_float(input.dtype(), [&]<typename T>() {
      run_rows(input.device(), rows,
               kernels::GatherRows<T>{input.data<T>(), index.data<std::int32_t>(), output.data<T>(),
                                      columns});
    });
  });
}

void CpuOperators::combine_rows(Stream& stream, const Tensor& input, const Tensor& slot,
                                const Tensor& weight, const Tensor& output, bool accumulate) {
  TESSERA_CHECK(slot.shape().rank() == 2, "slots {}", slot.shape().to_string());
  const std::int64_t rows = slot.size(0);
  const std::int64_t columns = output.size(-1);
  check_tensor(slot, slot.elements(), DType::kI32, "slot");
  check_optional(weight, slot.elements(), DType::kF32, "weight");
  check_tensor(output, rows * columns, input.dtype(), "output");
  stream.enqueue([=] {
    dispatch(input.dtype(), accumulate, [&]<typename T, kernels::Write W>() {
      run_rows(input.device(), rows,
               kernels::CombineRows<T, W>{input.data<T>(), slot.data<std::int32_t>(),
                                          data_or_null<float>(weight), output.data<T>(), columns,
                                          static_cast<int>(slot.size(1))});
    });
  });
}

void CpuOperators::combine_rows_backward(Stream& stream, const Tensor& grad_output,
                                         const Tensor& input, const Tensor& slot,
                                         const Tensor& weight, const Tensor& grad_input,
                                         const Tensor& grad_weight) {
  TESSERA_CHECK(slot.shape().rank() == 2, "slots {}", slot.shape().to_string());
  const std::int64_t columns = grad_output.size(-1);
  check_tensor(slot, slot.elements(), DType::kI32, "slot");
  check_tensor(grad_output, slot.size(0) * columns, input.dtype(), "grad_output");
  check_optional(weight, slot.elements(), DType::kF32, "weight");
  check_optional(grad_input, input.elements(), input.dtype(), "grad_input");
  check_optional(grad_weight, slot.elements(), DType::kF32, "grad_weight");
  stream.enqueue([=] {
    dispatch_float(input.dtype(), [&]<typename T>() {
      run_rows(input.device(), slot.elements(),
               kernels::CombineRowsBackward<T>{
                   grad_output.data<T>(), input.data<T>(), slot.data<std::int32_t>(),
                   data_or_null<float>(weight), data_or_null<T>(grad_input),
                   data_or_null<float>(grad_weight), columns, static_cast<int>(slot.size(1))});
    });
  });
}

}  // namespace tessera::cpu
