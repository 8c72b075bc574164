#include "comm/mesh.hpp"

#include <numeric>
#include <string>

#include "base/check.hpp"

namespace tessera {

namespace {

std::string common_divisors(int a, int b) {
  std::string text;
  for (int size = 1; size <= std::min(a, b); ++size) {
    if (a % size != 0 || b % size != 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  }
  return text;
}

}  // namespace

MeshShape mesh_shape(int ranks, const MoeOptions* moe) {
  MeshShape shape;
  shape.shard = ranks;
  if (moe == nullptr) return shape;
  const int wanted = moe->expert_parallel_size;
  shape.expert = wanted == 0 ? std::gcd(ranks, moe->num_experts) : wanted;
  if (wanted < 0 || ranks % shape.expert != 0 || moe->num_experts % shape.expert != 0) {
    fail(ErrorCode::kUsage,
         "moe.expert_parallel_size {} does not fit: it must divide both {} ranks and {} experts "
         "(possible: {})",
         wanted, ranks, moe->num_experts, common_divisors(ranks, moe->num_experts));
  }
  return shape;
}

Mesh::Mesh(Communicator& world, const MeshShape& shape) : shape_(shape), data_(&world) {
  TESSERA_CHECK(shape.pipeline * shape.replicate * shape.shard * shape.context * shape.tensor ==
                    world.size() &&
                shape.expert > 0 && world.size() % shape.expert == 0);
  if (shape.expert < world.size()) {
    own_expert_ = world.split(world.rank() / shape.expert, world.rank(), "expert");
  }
  if (shape.expert > 1) {
    own_expert_data_ = world.split(world.rank() % shape.expert, world.rank(), "expert_data");
  }
  expert_ = own_expert_ != nullptr ? own_expert_.get() : data_;
  expert_data_ = own_expert_data_ != nullptr ? own_expert_data_.get() : data_;
}

}  // namespace tessera
