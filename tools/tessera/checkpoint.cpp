// tessera checkpoint ls | show | verify
#include <tessera/checkpoint.hpp>
#include <tessera/error.hpp>

#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tessera/command.hpp"

namespace tessera::tool {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string path;
  bool json = false;
};

int list(const Arguments& arguments) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(arguments.path, ignored)) {
    throw Error(ErrorCode::kCheckpoint, "there is no such directory", arguments.path);
  }
  std::string text;
  for (const CheckpointInfo& info : list_checkpoints(arguments.path)) {
    if (arguments.json) {
      Json line = {{"step", info.step}, {"path", info.path}, {"complete", info.valid}};
      if (!info.valid) line["problem"] = info.problem;
      text += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    } else {
      text +=
          fmt::format("{:>10}  {:<10}  {}{}\n", info.step, info.valid ? "complete" : "incomplete",
                      info.path, info.problem.empty() ? "" : "  (" + info.problem + ")");
    }
  }
  print(text);
  return 0;
}

// "key: value" lines; objects get their own indented lines, lists stay on one.
std::string readable(const Json& value, int depth) {
  std::string text;
  for (const auto& [key, item] : value.items()) {
    text += std::string(2 * static_cast<std::size_t>(depth), ' ') + key + ":";
    if (item.is_object()) {
      text += "\n" + readable(item, depth + 1);
    } else {
      text += " " + (item.is_string() ? item.get<std::string>() : item.dump()) + "\n";
    }
  }
  return text;
}

int show(const Arguments& arguments) {
  const std::string summary = describe_checkpoint(arguments.path);
  print(arguments.json ? summary + "\n" : readable(Json::parse(summary), 0));
  return 0;
}

int verify(const Arguments& arguments) {
  const std::int64_t bytes = verify_checkpoint(arguments.path);
  print(fmt::format("{}: {} bytes checked, no fault\n", arguments.path, bytes));
  return 0;
}

void add(CLI::App& parent, Invocation& invocation, const std::string& name,
         const std::string& meaning, const std::string& path_name, bool has_json,
         int (*run)(const Arguments&)) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = parent.add_subcommand(name, meaning);
  command->add_option(path_name, arguments->path)->required();
  if (has_json) command->add_flag("--json", arguments->json, "For machines");
  command->callback([arguments, run, &invocation] {
    invocation.run = [arguments, run] { return on_first_rank([&] { return run(*arguments); }); };
  });
}

}  // namespace

void add_checkpoint(CLI::App& app, Invocation& invocation) {
  CLI::App* group = app.add_subcommand("checkpoint", "List, describe and check checkpoints");
  group->require_subcommand(1);
  add(*group, invocation, "ls", "List the checkpoints of a folder by step", "DIR", true, list);
  add(*group, invocation, "show", "Summary of a checkpoint's manifest", "PATH", true, show);
  add(*group, invocation, "verify", "Read every byte of a checkpoint and check it", "PATH", false,
      verify);
}

}  // namespace tessera::tool
