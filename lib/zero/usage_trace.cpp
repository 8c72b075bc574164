#include <algorithm>
#include <utility>

#include "zero/engine_impl.hpp"

namespace tessera {

std::vector<int> UsageTrace::note(int unit, int ahead) {
  const std::size_t position = current_.size();
  current_.push_back(unit);
  matches_ = matches_ && position < known_.size() && known_[position] == unit;
  std::vector<int> next;
  if (!matches_) return next;
  for (std::size_t i = position + 1; i < known_.size() && static_cast<int>(next.size()) < ahead;
       ++i) {
    if (std::ranges::find(next, known_[i]) == next.end()) next.push_back(known_[i]);
  }
  return next;
}

void UsageTrace::end_pass(bool complete) {
  if (complete) {
    known_ = std::exchange(current_, {});
  } else {
    current_.clear();
  }
  matches_ = true;
}

}  // namespace tessera
