// TESSERA_CHECK(condition, message pieces in fmt style): a broken invariant, checked in every build
// type. It raises Error{kInternal} with the place; use fail() for mistakes of the caller.
#pragma once

#include <tessera/error.hpp>

#include <string>
#include <utility>

#include <fmt/format.h>

namespace tessera {

[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);

/// Raises Error{code} with an fmt-formatted message and no context.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// The message of a failed check, empty where none was given.
inline std::string check_message() { return {}; }
template <typename... Args>
std::string check_message(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace tessera

#define TESSERA_CHECK(condition, ...)                                 \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::tessera::check_failed(#condition, __FILE__, __LINE__,         \
                              ::tessera::check_message(__VA_ARGS__)); \
  } while (false)
