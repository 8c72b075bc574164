// The router of an MoE layer: which tokens go to which experts, in FP32.
#pragma once

#include <tessera/autograd.hpp>
#include <tessera/comm.hpp>
#include <tessera/options.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/operators.hpp"

namespace tessera::moe {

/// Which rows of a micro batch are tokens, and which are padding.
struct TokenSet {
  Tensor valid;             ///< int32 [S], 0 = padding; undefined = none is
  Tensor noise_index;       ///< int64 [S] counter of the noise, where noise is wanted
  std::int64_t routed = 0;  ///< tokens that are not padding
};

/// Reads the context's sequence_index (−1 = padding; undefined = no padding) for a batch of this
/// shape, [sequences, .., hidden]. Raises Error{kUsage} when it has another number of sequences.
TokenSet find_tokens(Context& context, const Shape& shape, bool with_noise_index);

/// What a router needs besides its operands.
struct RouterCall {
  const MoeOptions& options;
  kernels::RouteOptions route;
  const TokenSet& tokens;
  Communicator* balance_group = nullptr;  ///< null = the balance loss is this rank's own
  const std::string& layer;
};

/// What was decided, on the device and on the host.
struct Routed {
  Variable weight;  ///< FP32 [S, k] combination weights
  kernels::Routing routing;
  std::vector<std::int32_t> choice, position;  ///< [S · k], as in Routing
  std::vector<std::int64_t> counts;            ///< [E] before dropping
  double aux_loss = 0.0;                       ///< before its coefficient
  double z_loss = 0.0;
};

/// Routes x [.., hidden] by logits x · weightᵀ, weight [E, hidden], both taken as FP32, and waits
/// for the result. One tape entry; its backward adds the balance and z-loss to the router's
/// gradient, with Context::auxiliary_scale as it is then.
Routed route_tokens(const Variable& x, const Variable& weight, const RouterCall& call);

}  // namespace tessera::moe
