#!/usr/bin/env python3
"""Makes the golden files of the model families with PyTorch and Hugging Face transformers.

Usage: generate.py [--output DIRECTORY] [NAME ...]

For each model NAME it writes a directory with
  model.safetensors   the weights, under Hugging Face names
  config.json         the Hugging Face configuration
  golden.safetensors  inputs and expected values, described in README.md

Weights and inputs come from fixed seeds; the same versions on the same kind of CPU give the same
bytes. Everything is FP32, eager attention, no dropout, one thread.
"""

import argparse
import copy
import json
import pathlib

import safetensors.torch
import torch
import transformers
from transformers import AutoModelForCausalLM

BATCH = 2
LENGTH = 13  # odd, and no multiple of a vector width
STEPS = 20
LEARNING_RATE = 3e-3
BETAS = (0.9, 0.95)
EPSILON = 1e-8
WEIGHT_DECAY = 0.1
CLIP_NORM = 1.0
IGNORED = -100
# Smallest distance between the second and the third router probability of any token, in every
# forward pass that is recorded: below it, rounding could send a token to another expert.
MIN_ROUTER_GAP = 2e-3


def llama_config(tied):
    return transformers.LlamaConfig(
        vocab_size=101,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        rms_norm_eps=3e-4 if tied else 2e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 700.0 if tied else 5000.0},
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,
    )


def gpt2_config():
    return transformers.GPT2Config(
        vocab_size=97,
        n_positions=24,
        n_embd=32,
        n_inner=80,
        n_layer=2,
        n_head=4,
        activation_function="gelu_new",
        layer_norm_epsilon=4e-5,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        summary_first_dropout=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )


def mixtral_config():
    return transformers.MixtralConfig(
        vocab_size=101,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=32,
        rms_norm_eps=7e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 2000.0},
        router_aux_loss_coef=0.0,
        output_router_logits=False,
        bos_token_id=None,
        eos_token_id=None,
    )


# name: (configuration, seed, whether config.json uses the older layout with a plain "rope_theta")
MODELS = {
    "llama": (lambda: llama_config(tied=False), 11, False),
    "llama_tied": (lambda: llama_config(tied=True), 12, True),
    "gpt2": (gpt2_config, 13, False),
    "mixtral": (mixtral_config, 14, True),
}


def is_norm(name):
    return any(part in name for part in ("norm", "ln_"))


def randomise(model, generator):
    """Weights large enough that every term matters, none of them at a special value."""
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            values = torch.empty(parameter.shape)
            if is_norm(name) and name.endswith("weight"):
                values.uniform_(0.5, 1.5, generator=generator)
            elif name.endswith("bias"):
                values.normal_(0.0, 0.1, generator=generator)
            elif name.endswith("mlp.gate.weight"):
                values.normal_(0.0, 0.4, generator=generator)  # the router: clear decisions
            else:
                values.normal_(0.0, 0.2, generator=generator)
            parameter.copy_(values)


def make_model(config, generator):
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config)
    randomise(model, generator)
    model.tie_weights()
    return model.eval()


def make_batch(vocabulary, generator):
    """Sequences of an affine rule with a quarter of noise: there is something to learn."""
    tokens = torch.empty(BATCH, LENGTH + 1, dtype=torch.int64)
    tokens[:, 0] = torch.randint(vocabulary, (BATCH,), generator=generator)
    for t in range(LENGTH):
        follow = (3 * tokens[:, t] + 7) % 23
        noise = torch.randint(vocabulary, (BATCH,), generator=generator)
        take_noise = torch.rand(BATCH, generator=generator) < 0.25
        tokens[:, t + 1] = torch.where(take_noise, noise, follow)
    targets = tokens[:, 1:].clone()
    # Each row has another number of masked positions, so that a mean of row means is not the mean.
    for row in range(BATCH):
        masked = torch.randperm(LENGTH, generator=generator)[: 1 + 3 * row]
        targets[row, masked] = IGNORED
    return tokens[:, :-1].contiguous(), targets


def forward(model, tokens):
    return model(input_ids=tokens, use_cache=False).logits


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=IGNORED
    )


class RouterProbe:
    """Records each layer's router logits of the last forward pass; a dense model has none."""

    def __init__(self, model):
        self.logits = []
        model.register_forward_pre_hook(lambda *_: self.logits.clear())
        for name, module in model.named_modules():
            if name.endswith("mlp.gate"):
                module.register_forward_hook(
                    lambda _, __, output: self.logits.append(output[0].detach().clone())
                )

    def gap(self):
        """Distance between the second and third probability, the smallest over all tokens."""
        gaps = [float("inf")]
        for logits in self.logits:
            ordered = torch.softmax(logits, dim=-1).sort(dim=-1, descending=True).values
            gaps.append((ordered[:, 1] - ordered[:, 2]).min().item())
        return min(gaps)


class Trainer:
    """One copy of the model with its AdamW; steps and records."""

    def __init__(self, model, clip, dtype=torch.float32):
        self.model = copy.deepcopy(model).to(dtype)
        for module in self.model.modules():
            module._forward_hooks.clear()
            module._forward_pre_hooks.clear()
        self.probe = RouterProbe(self.model)
        self.clip = clip
        parameters = list(self.model.parameters())  # a tied parameter appears once
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
                {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
            ],
            lr=LEARNING_RATE,
            betas=BETAS,
            eps=EPSILON,
            foreach=False,
            fused=False,
        )
        self.losses = []
        self.norms = []

    def router_gap(self, tokens):
        with torch.no_grad():
            forward(self.model, tokens)
        return self.probe.gap()

    def step(self, tokens, targets):
        self.optimizer.zero_grad(set_to_none=False)
        loss = loss_of(forward(self.model, tokens), targets)
        loss.backward()
        limit = CLIP_NORM if self.clip else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.optimizer.step()
        self.losses.append(loss.item())
        self.norms.append(norm.item())


def exported(name, tensor, config):
    """(name, tensor) pairs under the names that published checkpoints use.

    Current transformers versions fuse the experts of Mixtral in memory: gate_up_proj [E, 2·I, H]
    holds w1 above w3, down_proj [E, H, I] holds w2.
    """
    if config.model_type != "mixtral" or ".mlp." not in name:
        return [(name, tensor)]
    block, part = name.split(".mlp.")
    block += ".block_sparse_moe."
    if part == "gate.weight":
        return [(block + part, tensor)]
    size = config.intermediate_size
    pairs = []
    for expert in range(config.num_local_experts):
        prefix = f"{block}experts.{expert}."
        if part == "experts.gate_up_proj":
            pairs.append((prefix + "w1.weight", tensor[expert, :size]))
            pairs.append((prefix + "w3.weight", tensor[expert, size:]))
        elif part == "experts.down_proj":
            pairs.append((prefix + "w2.weight", tensor[expert]))
        else:
            raise ValueError(name)
    return pairs


def export(named_tensors, config):
    result = {}
    for name, tensor in named_tensors:
        for new_name, part in exported(name, tensor.detach(), config):
            result[new_name] = part.clone().contiguous()
    return result


def write_config(model, classic, path):
    config = model.config.to_diff_dict()
    config["architectures"] = [type(model).__name__]
    config["dtype"] = "float32"
    for key in ("tie_word_embeddings", "num_attention_heads", "hidden_act", "rms_norm_eps"):
        # Written even where they have their default, as published configurations do.
        if hasattr(model.config, key) and model.config.model_type != "gpt2":
            config[key] = getattr(model.config, key)
    if classic:
        config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
        config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def unnormalised_logits(model, tokens):
    """The same Mixtral weights, with p at the chosen experts used as it is."""

    def undo(_, __, output):
        logits, scores, indices = output
        return logits, torch.softmax(logits, dim=-1).gather(-1, indices), indices

    hooks = [
        module.register_forward_hook(undo)
        for name, module in model.named_modules()
        if name.endswith("mlp.gate")
    ]
    with torch.no_grad():
        logits = forward(model, tokens)
    for hook in hooks:
        hook.remove()
    return logits


def int32(tensor):
    return tensor.to(torch.int32).contiguous()


def generate(name, directory):
    make_config, seed, classic = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    model = make_model(make_config(), generator)
    config = model.config
    directory.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(
        export(model.named_parameters(), config),
        directory / "model.safetensors",
        metadata={"format": "pt"},
    )
    write_config(model, classic, directory / "config.json")

    # What was written, read back by the library's own loader, must be the model at hand.
    loaded = AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    for (a, x), (b, y) in zip(
        sorted(model.named_parameters()), sorted(loaded.named_parameters()), strict=True
    ):
        assert a == b and torch.equal(x, y), (a, b)

    probe = RouterProbe(model)
    while True:
        tokens, targets = make_batch(config.vocab_size, generator)
        with torch.no_grad():
            forward(model, tokens)
        if probe.gap() >= MIN_ROUTER_GAP:
            break
    smallest_gap = probe.gap()
    logits = forward(model, tokens)
    assert torch.equal(logits, forward(loaded, tokens))
    loss = loss_of(logits, targets)
    loss.backward()
    golden = {
        "tokens": int32(tokens),
        "targets": int32(targets),
        "logits": logits.detach().clone(),
        "loss": loss.detach().clone(),
    }
    for key, tensor in export(((n, p.grad) for n, p in model.named_parameters()), config).items():
        golden["grad/" + key] = tensor
    for layer, router_logits in enumerate(probe.logits):
        golden[f"router_logits/{layer}"] = router_logits
        golden[f"routes/{layer}"] = int32(torch.topk(router_logits, 2, dim=-1).indices)
    if probe.logits:
        golden["unnormalised/logits"] = unnormalised_logits(model, tokens)
        golden["unnormalised/loss"] = loss_of(golden["unnormalised/logits"], targets)

    model.zero_grad(set_to_none=True)
    plain, clipped = Trainer(model, clip=False), Trainer(model, clip=True)
    wide = Trainer(model, clip=False, dtype=torch.float64)  # only to estimate rounding
    batches = []
    while len(batches) < STEPS:
        batch, batch_targets = make_batch(config.vocab_size, generator)
        # Clipping changes the weights, so both runs must be clear about their routes.
        gap = min(trainer.router_gap(batch) for trainer in (plain, clipped))
        if gap < MIN_ROUTER_GAP:
            continue
        smallest_gap = min(smallest_gap, gap)
        batches.append((batch, batch_targets))
        for trainer in (plain, clipped, wide):
            trainer.step(batch, batch_targets)
    golden["train_tokens"] = int32(torch.stack([tokens for tokens, _ in batches]))
    golden["train_targets"] = int32(torch.stack([targets for _, targets in batches]))
    golden["adamw_losses"] = torch.tensor(plain.losses)
    golden["adamw_norms"] = torch.tensor(plain.norms)
    golden["adamw_clip_losses"] = torch.tensor(clipped.losses)
    golden["adamw_clip_norms"] = torch.tensor(clipped.norms)

    with torch.no_grad():
        wide_logits = forward(copy.deepcopy(model).double(), tokens)
    rounding = {
        "rounding_logits": (wide_logits - logits).abs().max().item(),
        "rounding_adamw_losses": max(abs(a - b) for a, b in zip(plain.losses, wide.losses)),
    }
    metadata = {
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "seed": str(seed),
        "learning_rate": str(LEARNING_RATE),
        "betas": f"{BETAS[0]},{BETAS[1]}",
        "epsilon": str(EPSILON),
        "weight_decay": str(WEIGHT_DECAY),
        "clip_norm": str(CLIP_NORM),
        **{key: f"{value:.3g}" for key, value in rounding.items()},
    }
    if probe.logits:
        metadata["min_router_gap"] = f"{smallest_gap:.6f}"
    # One key only: the writer does not keep the order of several.
    safetensors.torch.save_file(
        golden,
        directory / "golden.safetensors",
        metadata={"golden": json.dumps(metadata, sort_keys=True)},
    )
    for file in directory.iterdir():
        file.chmod(0o644)

    size = sum(file.stat().st_size for file in directory.iterdir())
    print(f"{name}: loss {loss.item():.6f}, {size} bytes, {metadata}")
    print("  losses", " ".join(f"{x:.4f}" for x in plain.losses))
    print("  norms ", " ".join(f"{x:.3f}" for x in plain.norms))
    print("  clipped losses", " ".join(f"{x:.4f}" for x in clipped.losses))
    print("  clipped norms ", " ".join(f"{x:.3f}" for x in clipped.norms))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in arguments.names or MODELS:
        generate(name, arguments.output / name)


if __name__ == "__main__":
    main()
