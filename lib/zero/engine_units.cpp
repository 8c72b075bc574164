// How units are gathered, used and reduced while the tape runs.
#include "base/check.hpp"
#include "zero/engine_impl.hpp"

namespace tessera {

void Engine::Impl::acquire(int unit) {
  for (const int used : plans[static_cast<std::size_t>(unit)].uses) {
    if (auto& sharded = units[static_cast<std::size_t>(used)]) sharded->acquire(comm_wait_ms_);
  }
  for (const int next : trace_.note(unit, config.zero.prefetch_units)) {
    for (const int used : plans[static_cast<std::size_t>(next)].uses) {
      if (auto& sharded = units[static_cast<std::size_t>(used)]) sharded->start_gather();
    }
  }
}

void Engine::Impl::release(int unit) {
  for (const int used : plans[static_cast<std::size_t>(unit)].uses) {
    if (auto& sharded = units[static_cast<std::size_t>(used)]) sharded->release();
  }
}

void Engine::Impl::before_forward(int unit) {
  acquire(unit);
  if (!context.recording()) return;
  for (const int used : plans[static_cast<std::size_t>(unit)].uses) {
    ++pending_uses_[static_cast<std::size_t>(used)];
  }
}

void Engine::Impl::after_forward(int unit) { release(unit); }

void Engine::Impl::before_backward(int unit) {
  acquire(unit);
  for (const int used : plans[static_cast<std::size_t>(unit)].uses) {
    if (auto& sharded = units[static_cast<std::size_t>(used)]) sharded->prepare_gradient();
  }
}

void Engine::Impl::after_backward(int unit) {
  release(unit);
  for (const int used : plans[static_cast<std::size_t>(unit)].uses) {
    if (--pending_uses_[static_cast<std::size_t>(used)] > 0) continue;
    auto& sharded = units[static_cast<std::size_t>(used)];
    if (!sharded) continue;
    if (sharded->reduces_late()) {
      sharded->keep_gradient();
      continue;
    }
    // One reduction stays in flight behind the next unit's backward.
    finish_reductions(1);
    sharded->start_reduce(!sharded->contributed());
    reducing_.push_back(used);
  }
}

void Engine::Impl::finish_reductions(std::size_t leave) {
  while (reducing_.size() > leave) {
    units[static_cast<std::size_t>(reducing_.front())]->finish_reduce(comm_wait_ms_);
    reducing_.pop_front();
  }
}

void Engine::Impl::reduce_late_units() {
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (!units[i] || !units[i]->reduces_late() || !units[i]->has_gradient()) continue;
    units[i]->start_reduce(true);
    reducing_.push_back(static_cast<int>(i));
  }
  finish_reductions(0);
}

void Engine::Impl::end_micro_step(bool complete) {
  finish_reductions(0);
  trace_.end_pass(complete);
  for (auto& unit : units) {
    if (unit) unit->drop_unused();
  }
  std::fill(pending_uses_.begin(), pending_uses_.end(), 0);
}

}  // namespace tessera
