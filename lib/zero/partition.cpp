#include "zero/partition.hpp"

#include <algorithm>

namespace tessera {

namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Partition::Partition(const std::vector<std::shared_ptr<Parameter>>& parameters, int ranks)
    : ranks_(ranks) {
  std::int64_t end = 0;
  for (const auto& parameter : parameters) {
    const std::int64_t elements = parameter->shape.elements();
    pieces_.push_back({parameter.get(), 0, end, elements});
    parameter_elements_ += elements;
    end = round_up(end + elements, kPartitionAlignment);
  }
  range_ = round_up((end + ranks - 1) / ranks, kPartitionAlignment);
}

std::vector<PartitionPiece> Partition::pieces_in(std::int64_t begin, std::int64_t elements) const {
  std::vector<PartitionPiece> found;
  for (const PartitionPiece& piece : pieces_) {
    const std::int64_t first = std::max(begin, piece.flat_begin);
    const std::int64_t last = std::min(begin + elements, piece.flat_begin + piece.elements);
    if (first < last) {
      found.push_back({piece.parameter, first - piece.flat_begin, first, last - first});
    }
  }
  return found;
}

std::vector<std::pair<std::int64_t, std::int64_t>> Partition::gaps() const {
  std::vector<std::pair<std::int64_t, std::int64_t>> found;
  std::int64_t end = 0;
  for (const PartitionPiece& piece : pieces_) {
    if (piece.flat_begin > end) found.emplace_back(end, piece.flat_begin - end);
    end = piece.flat_begin + piece.elements;
  }
  if (flat_elements() > end) found.emplace_back(end, flat_elements() - end);
  return found;
}

}  // namespace tessera
