#include <tessera/log.hpp>

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace tessera {

namespace {

class NullLogger final : public Logger {
 public:
  void log(LogLevel, std::string_view) override {}
};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

class SpdLogger final : public Logger {
 public:
  SpdLogger(int rank, LogLevel level, const std::string& path)
      : prefix_(rank == 0 ? std::string() : fmt::format("[rank {}] ", rank)), logger_("tessera") {
    auto console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    console->set_pattern("%v");
    logger_.sinks().push_back(console);
    if (!path.empty()) {
      auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
      file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
      logger_.sinks().push_back(file);
    }
    const LogLevel least = rank == 0 ? level : std::max(level, LogLevel::kWarning);
    logger_.set_level(to_spdlog(least));
    logger_.flush_on(spdlog::level::info);
  }

  void log(LogLevel level, std::string_view message) override {
    const char* kind = level == LogLevel::kWarning ? "warning: "
                       : level == LogLevel::kError ? "error: "
                                                   : "";
    logger_.log(to_spdlog(level), "{}{}{}", prefix_, kind, message);
  }

 private:
  std::string prefix_;
  spdlog::logger logger_;
};

}  // namespace

std::shared_ptr<Logger> make_null_logger() { return std::make_shared<NullLogger>(); }

std::shared_ptr<Logger> make_logger(int rank, LogLevel level, const std::string& path) {
  return std::make_shared<SpdLogger>(rank, level, path);
}

}  // namespace tessera
