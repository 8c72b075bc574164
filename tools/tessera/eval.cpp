// tessera eval
#include <tessera/train.hpp>

#include <memory>

#include "tessera/command.hpp"

namespace tessera::tool {

void add_eval(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<RunArguments>();
  auto checkpoint = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("eval", "Print the evaluation loss of a checkpoint as one JSON line");
  add_config_options(*command, arguments->config_path, arguments->overrides);
  command
      ->add_option("--checkpoint", *checkpoint,
                   "A checkpoint, or a folder of them: the newest is taken")
      ->required();
  add_ranks_option(*command, arguments->ranks, "Run this many ranks as threads of one process");
  command->callback([arguments, checkpoint, &invocation] {
    arguments->resume = "none";
    arguments->argc = invocation.argc;
    arguments->argv = invocation.argv;
    invocation.run = [arguments, checkpoint] { return evaluate(*arguments, *checkpoint); };
  });
}

}  // namespace tessera::tool
