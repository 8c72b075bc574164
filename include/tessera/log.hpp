// Logging. The library prints nothing by itself: it writes to the Logger that it was given.
#pragma once

#include <tessera/export.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace tessera {

/// How important a message is.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Receives log messages; one object may be used by several threads at once.
class TESSERA_API Logger {
 public:
  virtual ~Logger() = default;
  /// Takes one message without a line break at its end.
  virtual void log(LogLevel level, std::string_view message) = 0;

  /// log() with the level in the name.
  void debug(std::string_view message) { log(LogLevel::kDebug, message); }
  /// The same.
  void info(std::string_view message) { log(LogLevel::kInfo, message); }
  /// The same.
  void warning(std::string_view message) { log(LogLevel::kWarning, message); }
  /// The same.
  void error(std::string_view message) { log(LogLevel::kError, message); }
};

/// Drops everything.
TESSERA_API std::shared_ptr<Logger> make_null_logger();

/// Writes to stderr, and to `path` where it is not empty (appending). Lines of ranks other than 0
/// start with "[rank N] ". Messages below `level` are dropped; ranks other than 0 drop those below
/// a warning.
TESSERA_API std::shared_ptr<Logger> make_logger(int rank, LogLevel level = LogLevel::kInfo,
                                                const std::string& path = {});

}  // namespace tessera
