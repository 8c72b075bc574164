#!/usr/bin/env python3
"""Makes optimizers.json: steps of torch.optim's AdamW, Adam and SGD in FP64.

Usage: generate_optimizers.py [--output FILE]

Parameters and gradients (except in the case "document") are multiples of 2^-10, so that FP32 holds
them exactly. README.md describes the fields.
"""

import argparse
import json
import pathlib

import torch

STEPS = 5
SHAPES = {"single": (1,), "vector": (7,), "matrix": (3, 5)}


def adam_options(lr, betas, eps, weight_decay):
    return {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}


def sgd_options(lr, momentum=0.0, weight_decay=0.0, nesterov=False):
    return {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}


CASES = [
    # One value, three steps: 0.989000001, 0.991672036, 0.987247953.
    ("document", "adamw", adam_options(0.01, (0.9, 0.999), 1e-8, 0.1)),
    ("adamw", "adamw", adam_options(1e-3, (0.9, 0.95), 1e-8, 0.1)),
    ("adamw, no decay", "adamw", adam_options(1e-3, (0.9, 0.999), 1e-8, 0.0)),
    ("adamw, large eps", "adamw", adam_options(0.03, (0.8, 0.99), 0.01, 0.01)),
    ("adamw, betas zero", "adamw", adam_options(0.01, (0.0, 0.0), 1e-8, 0.1)),
    ("adam", "adam", adam_options(1e-3, (0.9, 0.999), 1e-8, 0.0)),
    ("adam, decay", "adam", adam_options(0.01, (0.9, 0.95), 1e-6, 0.1)),
    ("sgd", "sgd", sgd_options(0.1)),
    ("sgd, decay", "sgd", sgd_options(0.05, weight_decay=0.1)),
    ("sgd, momentum", "sgd", sgd_options(0.05, momentum=0.9)),
    ("sgd, momentum, decay", "sgd", sgd_options(0.05, momentum=0.9, weight_decay=0.1)),
    ("sgd, nesterov", "sgd", sgd_options(0.05, 0.9, 0.1, nesterov=True)),
]

OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
STATE = {"exp_avg": "m", "exp_avg_sq": "v", "momentum_buffer": "momentum"}


def exact(tensor):
    return (tensor * 1024).round() / 1024


def make_inputs(name, generator):
    """{tensor name: (start, [gradient of each step])}"""
    if name == "document":
        start = torch.ones(1, dtype=torch.float64)
        return {"single": (start, [torch.full_like(start, g) for g in (0.1, -0.2, 0.3)])}
    inputs = {}
    for tensor_name, shape in SHAPES.items():
        start = exact(torch.randn(shape, generator=generator, dtype=torch.float64))
        gradients = []
        for step in range(STEPS):
            gradient = torch.randn(shape, generator=generator, dtype=torch.float64) * 0.5
            if tensor_name == "vector":
                gradient[0] = 0.0  # never a gradient: only decay moves it
                if step != 0:
                    gradient[1] = 0.0  # one gradient, then only the moments
            gradients.append(exact(gradient))
        inputs[tensor_name] = (start, gradients)
    return inputs


def flat(tensor):
    return [float(x) for x in tensor.reshape(-1)]


def make_case(name, kind, options, generator):
    tensors = []
    for tensor_name, (start, gradients) in make_inputs(name, generator).items():
        parameter = torch.nn.Parameter(start.clone())
        optimizer = OPTIMIZERS[kind]([parameter], foreach=False, **options)
        after = []
        for gradient in gradients:
            parameter.grad = gradient.clone()
            optimizer.step()
            after.append(flat(parameter.detach()))
        state = optimizer.state[parameter]
        tensors.append(
            {
                "name": tensor_name,
                "shape": list(start.shape),
                "start": flat(start),
                "gradients": [flat(gradient) for gradient in gradients],
                "after": after,
                "state": {
                    STATE[key]: flat(value)
                    for key, value in state.items()
                    if key in STATE and value is not None
                },
            }
        )
    options = {key: list(value) if key == "betas" else value for key, value in options.items()}
    return {"name": name, "kind": kind, **options, "tensors": tensors}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = pathlib.Path(__file__).parent / "optimizers.json"
    parser.add_argument("--output", type=pathlib.Path, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(21)
    cases = [make_case(*case, generator) for case in CASES]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    versions = json.dumps({"torch": torch.__version__.split("+")[0]})
    arguments.output.write_text(f'{{"versions":{versions},\n"cases":[\n{lines}\n]}}\n')
    print(len(cases), "cases,", arguments.output.stat().st_size, "bytes")
    print("document:", cases[0]["tensors"][0]["after"])


if __name__ == "__main__":
    main()
