#include "zero/unit.hpp"

#include <chrono>

#include "base/check.hpp"
#include "kernels/operators.hpp"

namespace tessera {

namespace {

std::size_t flat_bytes(const Partition& partition) {
  return static_cast<std::size_t>(partition.flat_elements()) * sizeof(float);
}

}  // namespace

ShardedUnit::ShardedUnit(std::string name, std::vector<std::shared_ptr<Parameter>> parameters,
                         Communicator& group, Context& context, const UnitSettings& settings,
                         bool whole)
    : name_(std::move(name)),
      parameters_(std::move(parameters)),
      group_(&group),
      context_(&context),
      settings_(settings),
      partition_(parameters_, group.size()),
      // A group of one has nothing to gather: its range is the whole.
      keeps_whole_(whole || settings.stage < 3 || group.size() == 1),
      late_(settings.stage <= 1 && !settings.reduce_each_micro_step),
      prepare_(context.device().make_stream("prepare " + name_)) {
  Device& device = context.device();
  const std::int64_t flat = partition_.flat_elements();
  const std::int64_t range = partition_.range_elements();
  whole_ = std::make_shared<Storage>(device, flat_bytes(partition_),
                                     keeps_whole_ ? MemoryTag::kParams : MemoryTag::kGathered,
                                     !keeps_whole_);
  whole_view_ = Tensor(whole_, 0, Shape{flat}, DType::kF32);
  shard_ = keeps_whole_ ? whole_view_.flat_slice(partition_.range_begin(group.rank()), range)
                        : Tensor(device, Shape{range}, DType::kF32, MemoryTag::kParams);

  const std::int64_t gradient = settings.stage >= 2 ? range : flat;
  gradient_ = Tensor(device, Shape{gradient}, DType::kF32, MemoryTag::kGrads);
  // Reducing late, the micro steps add up in the accumulated buffer itself.
  micro_ = late_
               ? gradient_.storage()
               : std::make_shared<Storage>(device, flat_bytes(partition_), MemoryTag::kComm, true);
  micro_view_ = Tensor(micro_, 0, Shape{flat}, DType::kF32);

  auto& table = kernels::operators(device);
  const std::int64_t state = settings.stage == 0 ? flat : range;
  for (std::size_t i = 0; i < settings.optimizer_states; ++i) {
    state_.emplace_back(device, Shape{state}, DType::kF32, MemoryTag::kOptimizer);
    table.fill_zero(context.stream(), state_.back());
  }
  table.fill_zero(context.stream(), gradient_);
  for (const PartitionPiece& piece : partition_.parameters()) {
    Parameter& parameter = *piece.parameter;
    parameter.value = Tensor(whole_, piece.flat_begin, parameter.shape, DType::kF32);
    parameter.grad = Tensor(micro_, piece.flat_begin, parameter.shape, DType::kF32);
  }
  initialize(settings.seed);
}

void ShardedUnit::initialize(std::uint64_t seed) {
  const Tensor target = keeps_whole_ ? whole_view_ : shard_;
  const std::int64_t begin = keeps_whole_ ? 0 : partition_.range_begin(group_->rank());
  kernels::operators(context_->device()).fill_zero(context_->stream(), target);
  for (const PartitionPiece& piece : partition_.pieces_in(begin, target.elements())) {
    context_->stream().enqueue([target, piece, begin, seed] {
      initialize_range(*piece.parameter, seed, piece.parameter_begin, piece.elements,
                       target.data<float>() + (piece.flat_begin - begin));
    });
  }
  updated_ = context_->stream().record();
}

void ShardedUnit::wait_for(const Event& event, double& wait_ms) {
  if (event.ready()) {
    context_->stream().wait(event);
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  context_->stream().wait(event);
  wait_ms +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void ShardedUnit::start_gather() {
  if (resident_) return;
  resident_ = true;
  if (keeps_whole_) return;
  prepare_->wait(released_);
  prepare_->wait(updated_);
  prepare_->enqueue([storage = whole_] { storage->refill(); });
  gathered_ = group_->all_gather(shard_, whole_view_, {*prepare_, prepare_->record(), name_});
}

void ShardedUnit::acquire(double& wait_ms) {
  start_gather();
  if (users_++ == 0) wait_for(gathered_, wait_ms);
}

void ShardedUnit::release() {
  TESSERA_CHECK(users_ > 0, "unit '{}' is released more often than acquired", name_);
  if (--users_ > 0) return;
  resident_ = false;
  if (keeps_whole_) return;
  context_->stream().enqueue([storage = whole_] { storage->release(); });
  released_ = context_->stream().record();
}

void ShardedUnit::drop_unused() {
  if (!resident_ || users_ > 0) return;
  resident_ = false;
  if (keeps_whole_) return;
  context_->stream().wait(gathered_);
  context_->stream().enqueue([storage = whole_] { storage->release(); });
  released_ = context_->stream().record();
}

void ShardedUnit::prepare_gradient() {
  if (gradient_ready_) return;
  gradient_ready_ = true;
  if (!late_) context_->stream().enqueue([storage = micro_] { storage->refill(); });
  for (const auto& parameter : parameters_) parameter->grad_written = false;
}

void ShardedUnit::clear_unwritten() {
  auto& table = kernels::operators(context_->device());
  for (const auto& parameter : parameters_) {
    if (!parameter->grad_written) table.fill_zero(context_->stream(), parameter->grad);
    parameter->grad_written = true;
  }
  for (const auto& [begin, elements] : partition_.gaps()) {
    table.fill_zero(context_->stream(), micro_view_.flat_slice(begin, elements));
  }
}

void ShardedUnit::start_reduce(bool first) {
  TESSERA_CHECK(gradient_ready_ && !reducing_, "unit '{}' has no gradient to reduce", name_);
  clear_unwritten();
  gradient_ready_ = false;
  reducing_ = true;
  contributed_ = true;
  add_after_reduce_ = !first;
  Stream& stream = context_->stream();
  const CollectiveOrder order{stream, stream.record(), name_};
  if (settings_.stage >= 2) {
    const Tensor own =
        micro_view_.flat_slice(partition_.range_begin(group_->rank()), partition_.range_elements());
    reduced_ = group_->reduce_scatter(micro_view_, first ? gradient_ : own, ReduceOp::kSum, order);
  } else {
    const Tensor& output = first || late_ ? gradient_ : micro_view_;
    reduced_ = group_->all_reduce(micro_view_, output, ReduceOp::kSum, order);
  }
}

void ShardedUnit::finish_reduce(double& wait_ms) {
  if (!reducing_) return;
  reducing_ = false;
  wait_for(reduced_, wait_ms);
  if (late_) return;
  Stream& stream = context_->stream();
  if (add_after_reduce_) {
    const Tensor sum = settings_.stage >= 2
                           ? micro_view_.flat_slice(partition_.range_begin(group_->rank()),
                                                    partition_.range_elements())
                           : micro_view_;
    kernels::operators(context_->device()).add_to(stream, sum, gradient_);
  }
  stream.enqueue([storage = micro_] { storage->release(); });
}

void ShardedUnit::keep_gradient() { contributed_ = true; }

void ShardedUnit::begin_step() {
  contributed_ = false;
  gradient_ready_ = false;
}

std::pair<std::int64_t, std::int64_t> ShardedUnit::own_interval() const {
  return {partition_.range_begin(group_->rank()), partition_.range_elements()};
}

std::pair<std::int64_t, std::int64_t> ShardedUnit::state_interval() const {
  return settings_.stage == 0 ? std::pair{std::int64_t{0}, partition_.flat_elements()}
                              : own_interval();
}

void ShardedUnit::add_squares(const Tensor& output) const {
  if (!contributed_) return;
  const auto [begin, elements] = own_interval();
  const Tensor own = settings_.stage >= 2 ? gradient_ : gradient_.flat_slice(begin, elements);
  kernels::operators(context_->device()).sum_squares(context_->stream(), own, output, true);
}

void ShardedUnit::update(const Optimizer& optimizer, double lr, std::int64_t taken,
                         float grad_scale) {
  Stream& stream = context_->stream();
  if (!contributed_) {
    kernels::operators(context_->device()).fill_zero(stream, gradient_);
  }
  const auto [begin, elements] = state_interval();
  const Tensor values = settings_.stage == 0 ? whole_view_ : shard_;
  const std::int64_t gradient_begin = settings_.stage >= 2 ? begin : 0;
  std::vector<Tensor> state(state_.size());
  for (const PartitionPiece& piece : partition_.pieces_in(begin, elements)) {
    if (!piece.parameter->trainable) continue;
    const std::int64_t at = piece.flat_begin - begin;
    for (std::size_t i = 0; i < state_.size(); ++i) {
      state[i] = state_[i].flat_slice(at, piece.elements);
    }
    optimizer.update(stream, values.flat_slice(at, piece.elements),
                     gradient_.flat_slice(piece.flat_begin - gradient_begin, piece.elements), state,
                     lr, taken, piece.parameter->weight_decay, grad_scale);
  }
  updated_ = stream.record();
  if (settings_.stage > 0) gather_into_whole();
}

void ShardedUnit::gather_into_whole() {
  if (!keeps_whole_ || group_->size() == 1) return;
  gathered_ = group_->all_gather(shard_, whole_view_, {context_->stream(), updated_, name_});
}

void ShardedUnit::values_loaded() {
  updated_ = context_->stream().record();
  gather_into_whole();
}

}  // namespace tessera
