#include "train/root_action.hpp"

#include <charconv>
#include <string>

#include <tessera/error.hpp>

namespace tessera {

namespace {

constexpr char kSeparator = '\x1f';

std::string pack(const Error& error) {
  return std::to_string(static_cast<int>(error.code())) + kSeparator + error.message() +
         kSeparator + error.context();
}

Error unpack(const std::string& text) {
  const std::size_t first = text.find(kSeparator);
  const std::size_t second = text.find(kSeparator, first + 1);
  int code = 1;
  std::from_chars(text.data(), text.data() + first, code);
  return Error(static_cast<ErrorCode>(code), text.substr(first + 1, second - first - 1),
               text.substr(second + 1));
}

}  // namespace

void run_on_root(World& world, const std::function<void()>& action) {
  std::string problem;
  if (world.rank() == 0) {
    try {
      action();
    } catch (const Error& error) {
      problem = pack(error);
    } catch (const std::exception& error) {
      problem = pack(Error(ErrorCode::kInternal, error.what()));
    }
  }
  problem = world.comm().broadcast_bytes(problem, 0, "decision of rank 0");
  if (!problem.empty()) throw unpack(problem);
}

}  // namespace tessera
