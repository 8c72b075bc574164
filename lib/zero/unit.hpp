// One sharding unit at run time: its flat buffers, and the collectives on them.
//
// Buffers by stage (n = ranks of the unit's group, F = flat elements, R = F/n):
//              parameters           accumulated gradient   optimizer state
//   stage 0    F whole              F                      F each
//   stage 1    F whole              F                      R each
//   stage 2    F whole              R                      R each
//   stage 3    R, F while gathered  R                      R each
// The micro step's own gradient (F) exists from the unit's backward until it is reduced.
#pragma once

#include <tessera/autograd.hpp>
#include <tessera/comm.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "optim/optimizer.hpp"
#include "zero/partition.hpp"

namespace tessera {

/// What holds for all units of an engine.
struct UnitSettings {
  int stage = 3;
  bool reduce_each_micro_step = true;  ///< false: stages 0 and 1 reduce once per optimizer step
  std::uint64_t seed = 0;
  std::size_t optimizer_states = 0;
};

class ShardedUnit {
 public:
  /// `whole` keeps the parameters gathered between steps also in stage 3.
  ShardedUnit(std::string name, std::vector<std::shared_ptr<Parameter>> parameters,
              Communicator& group, Context& context, const UnitSettings& settings, bool whole);

  const std::string& name() const { return name_; }
  const Partition& partition() const { return partition_; }

  /// Starts the gather, ordered after the last release and update; nothing when already there.
  void start_gather();
  /// One more user: the compute stream waits until the parameters are there.
  void acquire(double& wait_ms);
  /// One user less; the last one frees the gathered copy, after the work enqueued so far.
  void release();
  /// Frees a copy that was gathered ahead and never used.
  void drop_unused();

  /// Makes the micro step's gradient buffer, unless it is there.
  void prepare_gradient();
  bool has_gradient() const { return gradient_ready_; }
  /// Starts the reduction of this micro step's gradient; `first` = first reduction of the step.
  void start_reduce(bool first);
  /// Lets the compute stream wait for the reduction and adds the result.
  void finish_reduce(double& wait_ms);
  /// Stages 0 and 1 without reduce_each_micro_step: micro steps add up in the accumulated buffer,
  /// and start_reduce() is called once, at the end of the step.
  bool reduces_late() const { return late_; }
  /// Ends a micro step of such a unit.
  void keep_gradient();
  /// Forgets the step's gradient: the next micro step starts afresh.
  void begin_step();
  /// True when a micro step has contributed since begin_step().
  bool contributed() const { return contributed_; }

  /// output FP64 [1] += squares of the accumulated gradient over this rank's own range.
  void add_squares(const Tensor& output) const;
  /// Updates what this rank keeps, then (stages 1 and 2, and whole units) starts the all_gather.
  void update(const Optimizer& optimizer, double lr, std::int64_t taken, float grad_scale);

  /// This rank's own range of parameters [R].
  Tensor own_range() const { return shard_; }
  /// Interval of the flat buffer that the optimizer state covers here: (begin, elements).
  std::pair<std::int64_t, std::int64_t> state_interval() const;
  std::pair<std::int64_t, std::int64_t> own_interval() const;
  const std::vector<Tensor>& optimizer_state() const { return state_; }
  /// After own_range() was overwritten: whole copies are gathered again.
  void values_loaded();

 private:
  void gather_into_whole();
  void initialize(std::uint64_t seed);
  void clear_unwritten();
  void wait_for(const Event& event, double& wait_ms);

  std::string name_;
  std::vector<std::shared_ptr<Parameter>> parameters_;
  Communicator* group_;
  Context* context_;
  UnitSettings settings_;
  Partition partition_;
  bool keeps_whole_;
  bool late_;
  std::unique_ptr<Stream> prepare_;  // orders refills before gathers, apart from compute

  std::shared_ptr<Storage> whole_;  // gathered parameters [F]
  Tensor whole_view_;
  Tensor shard_;                    // own range; a view of whole_ where that stays
  std::shared_ptr<Storage> micro_;  // this micro step's gradient [F]
  Tensor micro_view_;
  Tensor gradient_;  // accumulated: [F] or [R]
  std::vector<Tensor> state_;

  int users_ = 0;
  bool resident_ = false;
  bool gradient_ready_ = false;
  bool reducing_ = false;
  bool add_after_reduce_ = false;
  bool contributed_ = false;
  Event gathered_;
  Event released_;
  Event updated_;
  Event reduced_;
};

}  // namespace tessera
