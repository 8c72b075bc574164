// One optimizer step: agreement on counts, micro batches, reduction of numbers, update or skip.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "kernels/operators.hpp"
#include "zero/engine_impl.hpp"

namespace tessera {

namespace {

constexpr std::size_t kTags = static_cast<std::size_t>(MemoryTag::kCount);

/// Columns of a rank's row before those of the MoE layers.
enum Column : std::size_t { kSquares, kLossSum, kWaitMs, kPeakTotal, kCurrentTotal, kPeaks };
constexpr std::size_t kFixedColumns = kPeaks + kTags;
/// Columns of a MoE layer besides one per expert.
constexpr std::size_t kLayerColumns = 4;

/// Adds a micro batch's reports to the step's, layer by layer.
void merge(const std::vector<MoeReport>& micro, std::vector<MoeReport>& step) {
  for (const MoeReport& report : micro) {
    auto place = std::ranges::find(step, report.layer, &MoeReport::layer);
    if (place == step.end()) {
      MoeReport empty;
      empty.layer = report.layer;
      empty.expert_tokens.resize(report.expert_tokens.size());
      place = step.insert(step.end(), std::move(empty));
    }
    for (std::size_t e = 0; e < report.expert_tokens.size(); ++e) {
      place->expert_tokens[e] += report.expert_tokens[e];
    }
    place->tokens += report.tokens;
    place->dropped_routes += report.dropped_routes;
    // Means are weighted by tokens; divided again when the step's numbers are read.
    place->aux_loss += report.aux_loss * static_cast<double>(report.tokens);
    place->z_loss += report.z_loss * static_cast<double>(report.tokens);
  }
}

}  // namespace

void Engine::Impl::begin_step(const TokenCounts& counts) {
  step_begin_ = std::chrono::steady_clock::now();
  world.device().reset_peak();
  std::array<std::int64_t, 2> agreed{counts.unmasked, counts.routed};
  world.comm().all_reduce_values(std::span<std::int64_t>(agreed), ReduceOp::kSum, "token counts");
  step_tokens_ = {agreed[0], agreed[1]};
  context.auxiliary_scale =
      agreed[1] > 0 ? static_cast<double>(world.size()) / static_cast<double>(agreed[1]) : 0.0;
  for (auto& unit : units) {
    if (unit) unit->begin_step();
  }
  context.set_training(true);
  context.set_recording(true);
  context.moe_reports.clear();
  reports_.clear();
  losses_.clear();
  comm_wait_ms_ = 0.0;
}

void Engine::Impl::backward(const Loss& loss) {
  if (step_tokens_.unmasked > 0) {
    const double seed =
        static_cast<double>(world.size()) / static_cast<double>(step_tokens_.unmasked);
    context.backward(loss.sum, static_cast<float>(seed));
  } else {
    context.clear();
  }
  end_micro_step(true);
  losses_.push_back(loss.sum.tensor());
  merge(context.moe_reports, reports_);
  context.moe_reports.clear();
}

std::vector<double> Engine::Impl::local_numbers() {
  Stream& stream = context.stream();
  const Tensor squares(world.device(), Shape{1}, DType::kF64, MemoryTag::kWorkspace);
  kernels::operators(world.device()).fill_zero(stream, squares);
  for (const auto& unit : units) {
    if (unit) unit->add_squares(squares);
  }
  stream.synchronize();
  const MemoryUsage memory = world.device().memory_usage();
  std::vector<double> row(kFixedColumns);
  row[kSquares] = *squares.data<double>();
  for (const Tensor& loss : losses_) row[kLossSum] += static_cast<double>(*loss.data<float>());
  row[kWaitMs] = comm_wait_ms_;
  row[kPeakTotal] = static_cast<double>(memory.peak_total);
  row[kCurrentTotal] = static_cast<double>(memory.current_total);
  for (std::size_t i = 0; i < kTags; ++i) row[kPeaks + i] = static_cast<double>(memory.peak[i]);
  for (const MoeReport& report : reports_) {
    row.push_back(static_cast<double>(report.tokens));
    row.push_back(static_cast<double>(report.dropped_routes));
    row.push_back(report.aux_loss);
    row.push_back(report.z_loss);
    for (const std::int64_t tokens : report.expert_tokens) {
      row.push_back(static_cast<double>(tokens));
    }
  }
  return row;
}

std::vector<double> Engine::Impl::gather_rows(const std::vector<double>& row) {
  const auto width = static_cast<std::int64_t>(row.size());
  const Tensor own(world.device(), Shape{width}, DType::kF64, MemoryTag::kWorkspace);
  const Tensor all(world.device(), Shape{width * world.size()}, DType::kF64, MemoryTag::kWorkspace);
  std::ranges::copy(row, own.data<double>());
  Stream& stream = context.stream();
  world.comm().all_gather(own, all, {stream, stream.record(), "step numbers"}).wait();
  const double* values = all.data<double>();
  return {values, values + all.elements()};
}

void Engine::Impl::read_numbers(const std::vector<double>& rows, std::size_t width,
                                StepResult& result) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto at = [&](std::size_t rank, std::size_t column) { return rows[rank * width + column]; };
  // Sums over ranks in rank order: the same bits whatever the stage and the backend.
  double squares = 0.0;
  double loss = 0.0;
  std::size_t fullest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    squares += at(rank, kSquares);
    loss += at(rank, kLossSum);
    result.comm_wait_ms = std::max(result.comm_wait_ms, at(rank, kWaitMs));
    if (at(rank, kPeakTotal) > at(fullest, kPeakTotal)) fullest = rank;
  }
  result.loss = step_tokens_.unmasked > 0 ? loss / static_cast<double>(step_tokens_.unmasked) : 0.0;
  result.grad_norm =
      static_cast<double>(static_cast<float>(std::sqrt(squares) / static_cast<double>(ranks)));
  result.memory.peak_total = static_cast<std::int64_t>(at(fullest, kPeakTotal));
  result.memory.current_total = static_cast<std::int64_t>(at(fullest, kCurrentTotal));
  for (std::size_t i = 0; i < kTags; ++i) {
    result.memory.peak[i] = static_cast<std::int64_t>(at(fullest, kPeaks + i));
  }
  std::size_t column = kFixedColumns;
  for (const MoeReport& own : reports_) {
    MoeReport sum;
    sum.layer = own.layer;
    sum.expert_tokens.resize(own.expert_tokens.size());
    double aux = 0.0;
    double z = 0.0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      sum.tokens += static_cast<std::int64_t>(at(rank, column));
      sum.dropped_routes += static_cast<std::int64_t>(at(rank, column + 1));
      aux += at(rank, column + 2);
      z += at(rank, column + 3);
      for (std::size_t e = 0; e < sum.expert_tokens.size(); ++e) {
        sum.expert_tokens[e] += static_cast<std::int64_t>(at(rank, column + kLayerColumns + e));
      }
    }
    const double tokens = std::max(1.0, static_cast<double>(sum.tokens));
    sum.aux_loss = aux / tokens;
    sum.z_loss = z / tokens;
    result.aux_loss += sum.aux_loss;
    result.z_loss += sum.z_loss;
    column += kLayerColumns + sum.expert_tokens.size();
    result.experts.push_back(std::move(sum));
  }
}

StepResult Engine::Impl::apply() {
  reduce_late_units();
  StepResult result;
  const std::vector<double> row = local_numbers();
  read_numbers(gather_rows(row), row.size(), result);
  ++step;
  result.step = step;
  result.tokens = step_tokens_.unmasked;
  result.lr = schedule.lr(taken);
  // Squares are summed in FP64, where finite FP32 values cannot overflow: the sum is finite exactly
  // when every gradient is, and every rank computed the same one.
  result.skipped = step_tokens_.unmasked == 0 || !std::isfinite(result.grad_norm);
  if (result.skipped) {
    ++skipped;
  } else {
    ++taken;
    const float clip = clip_coefficient(result.grad_norm, config.optimizer.grad_clip);
    const float scale = clip / static_cast<float>(world.size());
    for (auto& unit : units) {
      if (unit) unit->update(optimizer, result.lr, taken, scale);
    }
  }
  result.skipped_total = skipped;
  result.step_time_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - step_begin_)
          .count();
  return result;
}

double Engine::Impl::evaluate(std::span<const MicroBatch> batches) {
  context.set_training(false);
  std::vector<double> row(2);
  {
    const NoGradScope no_grad(context);
    std::vector<Tensor> sums;
    for (const MicroBatch& batch : batches) {
      const Loss loss = model.loss(batch);
      sums.push_back(loss.sum.tensor());
      row[1] += static_cast<double>(loss.tokens);
    }
    end_micro_step(false);
    context.stream().synchronize();
    for (const Tensor& sum : sums) row[0] += static_cast<double>(*sum.data<float>());
  }
  context.moe_reports.clear();
  context.set_training(true);
  const std::vector<double> rows = gather_rows(row);
  double loss = 0.0;
  double tokens = 0.0;
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    loss += rows[i];
    tokens += rows[i + 1];
  }
  return tokens > 0.0 ? loss / tokens : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace tessera
