#include "moe/experts.hpp"

#include <string>
#include <utility>

#include "base/check.hpp"
#include "kernels/operators.hpp"

namespace tessera {
namespace nn {

Expert::Expert(int number, std::int64_t hidden, std::int64_t intermediate, float init_std,
               float output_init_std) {
  // Gate and up projection are neighbours in the flat buffer.
  w1 = register_module("w1", std::make_shared<Linear>(hidden, intermediate, false, init_std));
  w3 = register_module("w3", std::make_shared<Linear>(hidden, intermediate, false, init_std));
  w2 =
      register_module("w2", std::make_shared<Linear>(intermediate, hidden, false, output_init_std));
  for (const auto& linear : {w1, w3, w2}) linear->weight->expert = number;
}

Experts::Experts(int count, std::int64_t hidden, std::int64_t intermediate, float init_std,
                 float output_init_std) {
  set_unit();
  for (int e = 0; e < count; ++e) {
    expert.push_back(register_module(
        std::to_string(e),
        std::make_shared<Expert>(e, hidden, intermediate, init_std, output_init_std)));
  }
}

}  // namespace nn

namespace moe {
namespace {

// The rows of one expert in every tensor that has them.
struct Range {
  std::int64_t begin, end;
  bool empty() const { return begin == end; }
  Tensor of(const Tensor& tensor) const { return tensor.rows(begin, end); }
};

// Backward of run_experts for saved `rows`, gate and up projections.
class ExpertsBackward {
 public:
  ExpertsBackward(Tensor rows, Tensor gate, Tensor up, std::vector<Range> ranges,
                  std::vector<Tensor> weights)
      : rows_(std::move(rows)),
        gate_(std::move(gate)),
        up_(std::move(up)),
        ranges_(std::move(ranges)),
        weights_(std::move(weights)) {}

  void operator()(BackwardScope& scope) const {
    Context& context = scope.context();
    Stream& stream = context.stream();
    kernels::Operators& ops = kernels::operators(context.device());
    const Tensor& grad_output = scope.grad_output();
    const auto like_gate = [&] {
      return Tensor(context.device(), gate_.shape(), gate_.dtype(), MemoryTag::kWorkspace);
    };

    // The activation is cheap to make again and as large as gate and up are.
    const Tensor activation = like_gate();
    ops.swiglu(stream, gate_, up_, activation);
    const Tensor grad_activation = like_gate();
    for (std::size_t e = 0; e < ranges_.size(); ++e) {
      const Range& range = ranges_[e];
      weight_grad(scope, 3 + 3 * static_cast<int>(e), range, grad_output, activation);
      if (range.empty()) continue;
      ops.matmul(stream, range.of(grad_output), false, weights_[3 * e + 2], false,
                 range.of(grad_activation), false);
    }
    const Tensor grad_gate = like_gate();
    const Tensor grad_up = like_gate();
    ops.swiglu_backward(stream, grad_activation, gate_, up_, grad_gate, false, grad_up, false);

    for (std::size_t e = 0; e < ranges_.size(); ++e) {
      weight_grad(scope, 1 + 3 * static_cast<int>(e), ranges_[e], grad_gate, rows_);
      weight_grad(scope, 2 + 3 * static_cast<int>(e), ranges_[e], grad_up, rows_);
    }
    if (!scope.needs(0)) return;
    const GradTarget target = scope.target(0);
    for (std::size_t e = 0; e < ranges_.size(); ++e) {
      const Range& range = ranges_[e];
      if (range.empty()) continue;
      ops.matmul(stream, range.of(grad_gate), false, weights_[3 * e], false,
                 range.of(target.tensor), target.accumulate);
      ops.matmul(stream, range.of(grad_up), false, weights_[3 * e + 1], false,
                 range.of(target.tensor), true);
    }
  }

 private:
  // Input `index`'s gradient (+)= gradᵀ · input over an expert's rows.
  static void weight_grad(BackwardScope& scope, int index, const Range& range, const Tensor& grad,
                          const Tensor& input) {
    if (!scope.needs(index)) return;
    const GradTarget target = scope.target(index);
    Stream& stream = scope.context().stream();
    kernels::Operators& ops = kernels::operators(scope.context().device());
    if (!range.empty()) {
      ops.matmul(stream, range.of(grad), true, range.of(input), false, target.tensor,
                 target.accumulate);
    } else if (!target.accumulate) {
      ops.fill_zero(stream, target.tensor);
    }
  }

  Tensor rows_, gate_, up_;
  std::vector<Range> ranges_;
  std::vector<Tensor> weights_;  // w1, w3, w2 of each expert
};

}  // namespace

Variable run_experts(const Variable& rows, const std::vector<ExpertWeights>& experts,
                     const std::vector<std::int64_t>& counts) {
  TESSERA_CHECK(!experts.empty() && experts.size() == counts.size(), "{} experts, {} counts",
                experts.size(), counts.size());
  Context& context = rows.context();
  Stream& stream = context.stream();
  kernels::Operators& ops = kernels::operators(context.device());
  const std::int64_t intermediate = experts[0].w1.size(0);

  std::vector<Range> ranges;
  std::int64_t end = 0;
  for (const std::int64_t count : counts) {
    ranges.push_back({end, end + count});
    end += count;
  }
  TESSERA_CHECK(end == rows.size(0), "{} rows for experts with {}", rows.size(0), end);

  const Tensor& input = rows.tensor();
  const Tensor gate(context.device(), Shape{end, intermediate}, input.dtype());
  const Tensor up(context.device(), gate.shape(), input.dtype());
  const Tensor activation(context.device(), gate.shape(), input.dtype(), MemoryTag::kWorkspace);
  const Tensor output(context.device(), input.shape(), input.dtype());
  std::vector<Variable> inputs{rows};
  std::vector<Tensor> weights;
  for (const ExpertWeights& expert : experts) {
    for (const Variable& weight : {expert.w1, expert.w3, expert.w2}) {
      inputs.push_back(weight);
      weights.push_back(weight.tensor());
    }
  }

  for (std::size_t e = 0; e < ranges.size(); ++e) {
    const Range& range = ranges[e];
    if (range.empty()) continue;
    ops.matmul(stream, range.of(input), false, weights[3 * e], true, range.of(gate), false);
    ops.matmul(stream, range.of(input), false, weights[3 * e + 1], true, range.of(up), false);
  }
  ops.swiglu(stream, gate, up, activation);
  for (std::size_t e = 0; e < ranges.size(); ++e) {
    const Range& range = ranges[e];
    if (range.empty()) continue;
    ops.matmul(stream, range.of(activation), false, weights[3 * e + 2], true, range.of(output),
               false);
  }
  return context.record("moe_experts", std::move(inputs), output,
                        ExpertsBackward(input, gate, up, std::move(ranges), std::move(weights)));
}

}  // namespace moe
}  // namespace tessera
