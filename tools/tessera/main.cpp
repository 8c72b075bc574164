// The tessera command.
#include <tessera/error.hpp>
#include <tessera/version.hpp>

#include <cctype>
#include <exception>
#include <string>
#include <vector>

#include "tessera/command.hpp"

namespace {

using tessera::ErrorCode;
namespace tool = tessera::tool;

// The parser's message in our form: small first letter, one line.
std::string usage_message(const CLI::ParseError& error) {
  std::string message = error.what();
  for (char& c : message) {
    if (c == '\n') c = ' ';
  }
  if (message.size() > 1 && std::islower(static_cast<unsigned char>(message[1])) != 0) {
    message[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(message[0])));
  }
  return message + " (tessera --help lists the commands, tessera COMMAND --help their options)";
}

// What is wrong with the choice of the command, or "".
std::string command_problem(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names += (names.empty() ? "" : ", ") + command->get_name();
    if (!arguments.empty() && arguments[0] == command->get_name()) return {};
  }
  if (arguments.empty()) return "a command is expected: " + names;
  if (arguments[0].starts_with("-")) return {};
  return "unknown command '" + arguments[0] + "'; there are " + names;
}

int run(const tool::Invocation& invocation) {
  try {
    return invocation.run();
  } catch (const tessera::Error& error) {
    tool::print_error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    tool::print_error(std::string("internal error: ") + error.what());
    return static_cast<int>(ErrorCode::kInternal);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Tessera: train large models on many ranks.", "tessera");
  app.set_version_flag("--version", "tessera " + std::string(tessera::version_string()));
  app.require_subcommand(1);
  tool::Invocation invocation{{}, argc, argv};
  tool::add_train(app, invocation);
  tool::add_eval(app, invocation);
  tool::add_config(app, invocation);
  tool::add_checkpoint(app, invocation);
  tool::add_info(app, invocation);
  const std::string problem = command_problem(app, {argv + (argc > 0 ? 1 : 0), argv + argc});
  if (!problem.empty()) {
    tool::print_error(problem);
    return static_cast<int>(ErrorCode::kUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    tool::print_error(usage_message(error));
    return static_cast<int>(ErrorCode::kUsage);
  }
  return run(invocation);
}
