// The process mesh: which groups of ranks there are, and who is in them.
//
// Axes, from the outermost to the innermost: pipeline, replicate, shard, context, tensor.
// Neighbours on an inner axis have neighbouring rank numbers. Data parallelism is replicate x
// shard; expert groups are consecutive ranks of the data group. Built today: shard (all ranks) and
// expert; the other axes have size 1.
#pragma once

#include <tessera/comm.hpp>
#include <tessera/options.hpp>

#include <memory>

namespace tessera {

/// Sizes of the axes; their product is the number of ranks.
struct MeshShape {
  int pipeline = 1;
  int replicate = 1;
  int shard = 1;
  int context = 1;
  int tensor = 1;
  int expert = 1;  ///< ranks that share out one set of experts; divides replicate x shard
};

/// The shape for `ranks` ranks. `moe` may be null; an expert_parallel_size of 0 is the largest that
/// fits. Raises Error{kUsage} naming experts, expert_parallel_size, ranks and the sizes that fit.
MeshShape mesh_shape(int ranks, const MoeOptions* moe);

/// The groups of one rank. Collective to make; destroyed before the communicator it was made from.
class Mesh {
 public:
  Mesh(Communicator& world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  /// All ranks that work on different data: gradients of ordinary parameters are reduced here.
  Communicator& data() const { return *data_; }
  /// `expert` consecutive ranks that together hold all experts: tokens are exchanged here.
  Communicator& expert() const { return *expert_; }
  /// The ranks that hold the same experts (equal rank % expert): their gradients are reduced here.
  Communicator& expert_data() const { return *expert_data_; }

 private:
  MeshShape shape_;
  Communicator* data_;
  // Groups that are equal to the data group are the data group.
  std::unique_ptr<Communicator> own_expert_;
  std::unique_ptr<Communicator> own_expert_data_;
  Communicator* expert_;
  Communicator* expert_data_;
};

}  // namespace tessera
