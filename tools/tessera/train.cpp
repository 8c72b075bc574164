// tessera train
#include <tessera/train.hpp>

#include <memory>

#include "tessera/command.hpp"

namespace tessera::tool {

void add_train(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("train", "Train; under mpirun, srun or alone");
  add_config_options(*command, arguments->config_path, arguments->overrides);
  command
      ->add_option("--resume", arguments->resume,
                   "auto: from the newest checkpoint of this run, if any; none: from scratch; or "
                   "the path of a checkpoint")
      ->capture_default_str();
  add_ranks_option(*command, arguments->ranks, "Run this many ranks as threads of one process");
  command->callback([arguments, &invocation] {
    arguments->argc = invocation.argc;
    arguments->argv = invocation.argv;
    invocation.run = [arguments] { return train(*arguments); };
  });
}

}  // namespace tessera::tool
