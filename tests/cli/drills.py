#!/usr/bin/env python3
"""Whole runs of the tessera command: same bits everywhere, resuming, stopping, failing ranks.

  drills.py --tessera PATH [--mpirun PATH] DRILL…

Standard library only. A drill that needs mpirun and has none is an error of the caller.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

WORDS = "tile mosaic rank shard gather release expert token step loss gate unit".split()

CONFIG = """
run: {{name: drill, dir: {folder}/{name}, seed: 5}}
model: {{family: llama, num_layers: 2, hidden_size: 32, num_heads: 4, num_kv_heads: 2,
        intermediate_size: 48, max_seq_len: 32}}
{moe}
trainer: {{zero_stage: {stage}, micro_batch_size: 4, gradient_accumulation_steps: {accumulation},
          max_steps: {steps}, log_interval: 5, eval_interval: 10, eval_batches: 2}}
optimizer: {{type: adamw, lr: 3e-3, grad_clip: 1.0, weight_decay: 0.1}}
scheduler: {{type: cosine, warmup_steps: 3, total_steps: 40, min_lr_ratio: 0.1}}
data: {{train: [{folder}/text.txt], seq_len: 32}}
checkpoint: {{save_interval: 5, keep_last: 2}}
comm: {{timeout_s: 30}}
"""
MOE = "moe: {num_experts: 4, expert_parallel_size: 2, drop_tokens: false, aux_loss_scope: global}"


class Drill:
    def __init__(self, tessera, mpirun, folder):
        self.tessera = tessera
        self.mpirun = mpirun
        self.folder = folder
        text = []
        state = 12345
        while len(text) < 12000:
            state = (state * 1103515245 + 12345) % 2**31
            text.append(WORDS[(state >> 8) % len(WORDS)])
        with open(os.path.join(folder, "text.txt"), "w") as file:
            file.write(" ".join(text))
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("OMPI_", "PMIX_", "PMI_", "SLURM_"))
        }
        self.environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
        self.environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"

    def config(self, name, stage=3, moe=False, steps=20, accumulation=2):
        path = os.path.join(self.folder, name + ".yaml")
        with open(path, "w") as file:
            file.write(
                CONFIG.format(
                    folder=self.folder, name=name, stage=stage, steps=steps,
                    accumulation=accumulation, moe=MOE if moe else "",
                )
            )
        return path

    def command(self, config, *options, mpi=0, ranks=0):
        words = []
        if mpi:
            words += [self.mpirun, "-np", str(mpi), "--oversubscribe", "--bind-to", "none"]
            words += ["--mca", "btl_vader_single_copy_mechanism", "none"]
            # Open MPI 4.1 sleeps twice this long whenever a rank ends with a code other than 0.
            words += ["--mca", "odls_base_sigkill_timeout", "4"]
        words += [self.tessera, "train", config, *options]
        if ranks:
            words += ["--ranks", str(ranks)]
        return words

    def start(self, words):
        return subprocess.Popen(
            words, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", cwd=self.folder,
        )

    def run(self, words, code=0, limit=200):
        begin = time.monotonic()
        process = self.start(words)
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            sys.exit(f"no end within {limit} s: {' '.join(words)}\n{output}")
        if process.returncode != code:
            sys.exit(f"exit code {process.returncode}, expected {code}: {' '.join(words)}\n{output}")
        return output, time.monotonic() - begin

    def rows(self, name, file="metrics.jsonl"):
        with open(os.path.join(self.folder, name, file)) as lines:
            return [json.loads(line) for line in lines]

    def losses(self, name):
        """Step, loss and norm of every step, as the text in the file."""
        return [
            (row["step"], row["loss"], row["grad_norm"], row["lr"])
            for row in self.rows(name)
            if "loss" in row
        ]

    def evaluations(self, name):
        return [(r["step"], r["eval_loss"]) for r in self.rows(name) if "eval_loss" in r]

    def wait_for_step(self, name, step, process, limit=60):
        end = time.monotonic() + limit
        path = os.path.join(self.folder, name, "metrics.jsonl")
        while time.monotonic() < end:
            if process.poll() is not None:
                sys.exit(f"the run ended early:\n{process.communicate()[0]}")
            if os.path.exists(path):
                with open(path) as file:
                    if sum(1 for _ in file) >= step:
                        return
            time.sleep(0.02)
        process.kill()
        sys.exit(f"step {step} was not reached within {limit} s")


def check(truth, message):
    if not truth:
        sys.exit(message)


def parity(drill, moe):
    """Stages 0 to 3, threads and processes: the same bits."""
    reference = None
    for stage in (0, 1, 2, 3):
        for mpi in (False, True):
            if mpi and stage in (1, 2):
                continue
            name = f"parity-{stage}-{'mpi' if mpi else 'local'}"
            config = drill.config(name, stage=stage, moe=moe, steps=30, accumulation=4)
            drill.run(drill.command(config, mpi=2 if mpi else 0, ranks=0 if mpi else 2))
            series = drill.losses(name)
            check([row[0] for row in series] == list(range(1, 31)), f"{name}: steps {series}")
            if reference is None:
                reference = series
                check(series[-1][1] < series[0][1], f"the loss does not fall: {series}")
            check(series == reference, f"{name} differs from the first run")


def parity_dense(drill):
    parity(drill, moe=False)


def parity_moe(drill):
    parity(drill, moe=True)


def resume(drill):
    """A run that failed after a save goes on with the bits of a straight one, at two stages."""
    for stage, moe in ((0, False), (3, True)):
        straight = drill.config(f"straight-{stage}", stage=stage, moe=moe)
        drill.run(drill.command(straight, mpi=2))
        name = f"broken-{stage}"
        broken = drill.config(name, stage=stage, moe=moe)
        fault = "debug.inject=[{step: 13, rank: 1, action: throw}]"
        output, _ = drill.run(drill.command(broken, "--set", fault, mpi=2), code=1)
        check("injected fault at step 13 on rank 1" in output, output)
        drill.run(drill.command(broken, mpi=2))
        check(drill.losses(name) == drill.losses(f"straight-{stage}"), "resumed run differs")
        check(drill.evaluations(name) == drill.evaluations(f"straight-{stage}"), "evaluations")
        discarded = drill.rows(name, "metrics.discarded.jsonl")
        check([row["step"] for row in discarded if "loss" in row] == [11, 12], str(discarded))
        kept = sorted(os.listdir(os.path.join(drill.folder, name, "checkpoints")))
        check(kept == ["latest", "step-00000015", "step-00000020"], str(kept))


def failing_rank(drill):
    """A rank that throws, exits or is killed ends the job within 10 s (and mpirun's sleep), with its code."""
    config = drill.config("failing")
    for mpi in (False, True):
        fault = "debug.inject=[{step: 2, rank: 1, action: throw}]"
        words = drill.command(config, "--resume", "none", "--set", fault, mpi=2 if mpi else 0,
                              ranks=0 if mpi else 2)
        output, seconds = drill.run(words, code=1)
        check(output.count("error: injected fault at step 2 on rank 1") == 1, output)
        check(seconds < 10 + 2 * 4, f"took {seconds:.1f} s")
    fault = "debug.inject=[{step: 2, rank: 1, action: kill}]"
    output, seconds = drill.run(
        drill.command(config, "--resume", "none", "--set", fault, mpi=2), code=137)
    check("rank 1" in output and "signal 9" in output, output)
    check(seconds < 10 + 2 * 4, f"took {seconds:.1f} s")


def stalled_rank(drill):
    """A rank that never comes back is named when the timeout runs out."""
    config = drill.config("stalled")
    fault = "debug.inject=[{step: 2, rank: 1, action: stall}]"
    for mpi in (False, True):
        output, seconds = drill.run(
            drill.command(config, "--resume", "none", "--set", "comm.timeout_s=2", "--set", fault,
                          mpi=2 if mpi else 0, ranks=0 if mpi else 2), code=5)
        check("no answer from rank 1 within 2 s" in output, output)
        check(seconds < 12 + 2 * 4, f"took {seconds:.1f} s")


def hopeless_numbers(drill):
    """Gradients that stay infinite end the run with 6 and leave the last good checkpoint."""
    config = drill.config("hopeless", steps=40)
    drill.run(drill.command(config, "--set", "trainer.max_steps=10", ranks=2))
    output, _ = drill.run(drill.command(config, "--set", "optimizer.lr=1e30", ranks=2), code=6)
    check("not finite in 3 steps in a row" in output, output)
    kept = os.listdir(os.path.join(drill.folder, "hopeless", "checkpoints"))
    check("step-00000010" in kept, str(kept))


def going_back(drill):
    """After going back, the next resume continues there and not on the branch that was left."""
    config = drill.config("back", steps=20)
    drill.run(drill.command(config, ranks=2))
    old = os.path.join(drill.folder, "back", "checkpoints", "step-00000015")
    drill.run(drill.command(config, "--resume", old, "--set", "trainer.max_steps=16", ranks=2))
    output, _ = drill.run(drill.command(config, "--set", "trainer.max_steps=18", ranks=2))
    check("resumed from step 16" in output, output)
    check([row[0] for row in drill.losses("back")] == list(range(1, 19)), "steps")
    drill.run(drill.command(config, "--resume", "none", "--set", "trainer.max_steps=5", ranks=2))
    output, _ = drill.run(drill.command(config, "--set", "trainer.max_steps=6", ranks=2))
    check("resumed from step 5" in output, output)
    aside = os.listdir(os.path.join(drill.folder, "back", "checkpoints", "set-aside"))
    check("step-00000020" in aside, str(aside))
    text = open(os.path.join(drill.folder, "back", "config.yaml")).read()
    drill.run(drill.command(config, "--set", "model.hidden_size=64", ranks=2), code=4)
    check(open(os.path.join(drill.folder, "back", "config.yaml")).read() == text,
          "a refused run changed config.yaml")


def stopping(drill):
    """Signals and the stop file: one save at an agreed step, the right code, and resuming."""
    endless = drill.config("stop", steps=100000)
    for what, code in (("USR1", 143), ("TERM", 143), ("INT", 130), ("file", 0)):
        for mpi in (False, True):
            if mpi and what in ("TERM", "INT"):
                continue  # mpirun ends the job by itself on these
            shutil.rmtree(os.path.join(drill.folder, "stop"), ignore_errors=True)
            process = drill.start(
                drill.command(endless, mpi=2 if mpi else 0, ranks=0 if mpi else 2))
            drill.wait_for_step("stop", 6, process)
            if what == "file":
                open(os.path.join(drill.folder, "stop", "stop"), "w").close()
            else:
                process.send_signal(getattr(signal, "SIG" + what))
            output, _ = process.communicate(timeout=30)
            check(process.returncode == code,
                  f"{what} {mpi}: code {process.returncode}, expected {code}\n{output}")
            last = drill.losses("stop")[-1][0]
            folder = os.path.join(drill.folder, "stop", "checkpoints", f"step-{last:08d}")
            subprocess.run([drill.tessera, "checkpoint", "verify", folder], check=True,
                           stdout=subprocess.DEVNULL, env=drill.environment)


DRILLS = {f.__name__: f for f in (
    parity_dense, parity_moe, resume, failing_rank, stalled_rank, hopeless_numbers, going_back,
    stopping)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", required=True)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("drills", nargs="+", choices=sorted(DRILLS))
    arguments = parser.parse_args()
    for name in arguments.drills:
        with tempfile.TemporaryDirectory(prefix="tessera-drill-") as folder:
            DRILLS[name](Drill(os.path.abspath(arguments.tessera), arguments.mpirun, folder))
        print(f"{name}: passed")


if __name__ == "__main__":
    main()
