// What the commands share. Each command is one file with one function that adds it to the parser;
// its callback stores what is to be done, and main() does it.
#pragma once

#include <tessera/train.hpp>

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tessera::tool {

/// The work of the chosen command; returns the exit code and may raise Error.
struct Invocation {
  std::function<int()> run;
  int argc = 0;  ///< of main(), for MPI
  char** argv = nullptr;
};

void add_train(CLI::App& app, Invocation& invocation);
void add_eval(CLI::App& app, Invocation& invocation);
void add_config(CLI::App& app, Invocation& invocation);
void add_checkpoint(CLI::App& app, Invocation& invocation);
void add_info(CLI::App& app, Invocation& invocation);

/// CONFIG and --set, which several commands take. Returns the option CONFIG, which is required.
CLI::Option* add_config_options(CLI::App& command, std::string& path,
                                std::vector<std::string>& overrides);
/// --ranks.
void add_ranks_option(CLI::App& command, int& ranks, const std::string& meaning);

/// This process's rank by the launcher's environment (Open MPI, PMI, Slurm), 0 without a launcher.
int launcher_rank();
/// Runs `body` on the first rank of a launcher's job only: for commands that one process does.
int on_first_rank(const std::function<int()>& body);
/// Writes to stdout; raises Error{kData} when that fails (a full disk).
void print(const std::string& text);
/// "tessera: error: <message>" on stderr, on rank 0 only: for what all ranks see alike.
void print_error(const std::string& message);

}  // namespace tessera::tool
