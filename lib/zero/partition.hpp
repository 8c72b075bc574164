// The map from a unit's parameters to flat positions and to the ranks that own them: one explicit
// value, shared by gathering, reduction, optimizer and checkpoints.
#pragma once

#include <tessera/nn.hpp>

#include <cstdint>
#include <vector>

namespace tessera {

/// Parameters start, and ranges end, at multiples of this many elements, so that no scaling block
/// is cut and low-precision pointers are aligned. The padding is never stored, counted or exported.
inline constexpr std::int64_t kPartitionAlignment = 256;

/// A piece of one parameter inside a flat interval.
struct PartitionPiece {
  Parameter* parameter = nullptr;
  std::int64_t parameter_begin = 0;  ///< first element within the parameter
  std::int64_t flat_begin = 0;       ///< first element within the flat buffer
  std::int64_t elements = 0;
};

/// Where each parameter lies in the unit's flat buffer, and which rank owns which range of it.
/// All ranges have the same length; the last ones may hold only padding.
class Partition {
 public:
  Partition(const std::vector<std::shared_ptr<Parameter>>& parameters, int ranks);

  int ranks() const { return ranks_; }
  /// Elements of the flat buffer, a multiple of ranks · kPartitionAlignment.
  std::int64_t flat_elements() const { return range_ * ranks_; }
  /// Elements of one rank's range.
  std::int64_t range_elements() const { return range_; }
  std::int64_t range_begin(int rank) const { return range_ * rank; }
  /// Elements of parameters, without padding.
  std::int64_t parameter_elements() const { return parameter_elements_; }

  /// Every parameter whole, in order.
  const std::vector<PartitionPiece>& parameters() const { return pieces_; }
  /// The pieces of parameters inside the flat interval [begin, begin + elements).
  std::vector<PartitionPiece> pieces_in(std::int64_t begin, std::int64_t elements) const;
  /// The padding between and after parameters: flat (begin, elements) pairs.
  std::vector<std::pair<std::int64_t, std::int64_t>> gaps() const;

 private:
  std::vector<PartitionPiece> pieces_;
  std::int64_t parameter_elements_ = 0;
  std::int64_t range_ = 0;
  int ranks_;
};

}  // namespace tessera
