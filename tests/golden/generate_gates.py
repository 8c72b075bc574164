#!/usr/bin/env python3
"""Makes gates.json by running DeepSpeed's own top1gating, top2gating and topkgating.

Usage: generate_gates.py [--output FILE]

Only cases in which the result does not depend on chance are recorded: no noise, k = 2 without
second-choice sampling, k = 1 where nothing drops, k >= 3 without equal probabilities. README.md
describes the fields.
"""

import argparse
import json
import math
import pathlib

import deepspeed
import numpy
import torch
from deepspeed.moe.sharded_moe import top1gating, top2gating, topkgating

# A case in which two probabilities that decide something are closer than this (and not equal by
# construction) would test the rounding of exp, not the gate.
MIN_GAP = 1e-4
AUX_COTANGENT = 0.5


def logits_of(kind, tokens, experts, generator):
    """Rows of router logits, with few digits so that the file is short and the values exact."""
    if kind == "random":
        values = torch.randn(tokens, experts, generator=generator) * 1.5
    elif kind == "skewed":  # low experts are popular
        values = torch.randn(tokens, experts, generator=generator)
        values -= 0.7 * torch.arange(experts)
    elif kind == "one":  # every token's first choice is the last expert
        values = torch.randn(tokens, experts, generator=generator)
        values[:, -1] = 6.0 + torch.rand(tokens, generator=generator)
    elif kind == "same two":  # all tokens want the same two experts in the same order
        values = torch.randn(tokens, experts, generator=generator) * 0.25
        values[:, 1 % experts] += 5.0
        values[:, 0] += 3.0
    elif kind == "large":  # far beyond where exp of the bare logit is finite
        values = torch.randn(tokens, experts, generator=generator) * 3.0 + 200.0
    elif kind == "negative":
        values = torch.randn(tokens, experts, generator=generator) * 2.0 - 150.0
    elif kind == "equal":  # all equal: the lowest index wins, then the second lowest
        values = torch.full((tokens, experts), 0.25)
    elif kind == "ties":  # few distinct values, so that first and second choices tie
        values = torch.randint(0, 3, (tokens, experts), generator=generator).float()
    elif kind == "document":
        values = torch.tensor(
            [
                [2, 1, 0, -1],
                [1.9, 1.2, 0.1, 0],
                [3, 0.5, 0.2, 0.1],
                [0, 2, 1, 0.5],
                [2.5, 0, 1.5, 0],
                [0.1, 0.2, 0.3, 2],
            ]
        )
    else:
        raise ValueError(kind)
    if kind == "document":
        return values
    return torch.round(values * 256) / 256


def is_clear(logits, k, by_probability):
    """Whether no decision hangs on two different but nearly equal probabilities."""
    p = torch.softmax(logits.double(), dim=1)
    order = p.sort(dim=1, descending=True).values
    gaps = order[:, :k] - torch.nn.functional.pad(order, (0, 1), value=-1.0)[:, 1 : k + 1]
    rows_clear = bool(((gaps == 0) | (gaps > MIN_GAP)).all())
    if not by_probability:
        return rows_clear
    # k >= 3: no ties at all, neither within a token nor within an expert's queue.
    kept = torch.zeros_like(p).scatter(1, p.topk(k, dim=1).indices, 1) * p
    columns = kept.sort(dim=0, descending=True).values
    close = (columns[:-1] - columns[1:] < 1e-6) & (columns[1:] > 0)
    return rows_clear and bool((gaps > 0).all()) and not bool(close.any())


def run(logits, k, capacity_factor, min_capacity, drop):
    """(l_aux, capacity, indices [k,S], positions [k,S], weights [k,S], counts [E])"""
    if k == 1:
        result = top1gating(
            logits,
            capacity_factor,
            min_capacity,
            drop_tokens=drop,
            use_rts=False,
            sparse_routes=True,
        )
    elif k == 2:
        result = top2gating(
            logits,
            capacity_factor,
            min_capacity,
            drop_tokens=drop,
            top2_2nd_expert_sampling=False,
            sparse_routes=True,
        )
    else:
        result = topkgating(
            logits,
            k,
            capacity_factor,
            min_capacity,
            drop_tokens=drop,
            drop_policy="probs",
            sparse_routes=True,
        )
    l_aux, capacity, _, indices, positions, weights, counts = result
    return l_aux, int(capacity), indices, positions, weights, counts


def short(value):
    """The shortest decimal that is this FP32 value when read as FP64 and rounded to FP32."""
    text = numpy.format_float_positional(numpy.float32(value), unique=True, trim="0")
    number = float(text)
    assert numpy.float32(number) == numpy.float32(value)
    return number


def nested(tensor):
    if tensor.ndim == 1:
        return [short(x) if tensor.is_floating_point() else int(x) for x in tensor]
    return [nested(row) for row in tensor]


def make_case(name, kind, tokens, experts, k, capacity_factor, min_capacity, drop, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(1000):
        logits = logits_of(kind, tokens, experts, generator)
        if is_clear(logits, k, by_probability=k >= 3):
            break
    else:
        raise ValueError(f"{name}: no clear case found")
    weight_cotangent = torch.round(torch.randn(k, tokens, generator=generator) * 16) / 16

    # First without a capacity, for all the choices and queue positions.
    _, _, choices, positions, _, counts = run(logits.clone(), k, 1.0, 0, drop=False)
    assert int(choices.min()) >= 0
    variable = logits.clone().requires_grad_(True)
    # DeepSpeed writes into its logits only when it samples; a copy keeps the leaf clean anyway.
    l_aux, capacity, kept_choices, kept_positions, weights, kept_counts = run(
        variable * 1.0, k, capacity_factor, min_capacity, drop
    )
    assert torch.equal(counts, kept_counts)
    kept = kept_choices >= 0
    assert torch.equal(kept_choices[kept], choices[kept])
    if k == 1:
        assert bool(kept.all())  # which tokens drop is left to topk of equal values
    if k <= 2:
        assert torch.equal(kept_positions[kept], positions[kept])
        assert torch.equal(kept, (positions < capacity) | torch.tensor(not drop))
    gradient_root = (weights * weight_cotangent).sum() + AUX_COTANGENT * l_aux
    gradient_root.backward()
    # l_aux without the indicator's rounding: the same formula in FP64.
    with torch.no_grad():
        p = torch.softmax(logits.double(), dim=1)
        chosen = torch.zeros_like(p).scatter(1, choices.long().t()[:, : 1 if k <= 2 else k], 1)
        exact = experts * (p.mean(0) * chosen.mean(0)).sum() / (1 if k <= 2 else k)
        assert abs(exact.item() - l_aux.item()) < 1e-5 * exact.item(), name
        z_loss = torch.logsumexp(logits.double(), dim=1).square().mean()
    return {
        "name": name,
        "tokens": tokens,
        "experts": experts,
        "k": k,
        "capacity_factor": capacity_factor,
        "min_capacity": min_capacity,
        "drop_tokens": drop,
        "drop_policy": "probs" if k >= 3 else "position",
        "capacity": capacity,
        "l_aux": short(l_aux.item()),
        "z_loss": z_loss.item(),
        "exp_counts": nested(counts),
        "logits": nested(logits),
        "choices": nested(choices),
        "positions": nested(positions),
        "kept": nested(kept.int()),
        "kept_positions": nested(kept_positions),
        "weights": nested(weights.detach()),
        "weight_cotangent": nested(weight_cotangent),
        "aux_cotangent": AUX_COTANGENT,
        "logits_gradient": nested(variable.grad),
    }


def differing_capacity(k):
    """Small (tokens, experts, capacity factor) whose capacity in FP32 is not the one in FP64."""
    found = []
    for experts in (3, 5, 6, 7, 12):
        for tokens in range(experts, 40):
            for hundredths in range(50, 200, 5):
                factor = hundredths / 100
                wide = math.ceil(tokens / experts * (factor * k))
                narrow = int(
                    torch.ceil((tokens / experts) * torch.tensor(factor * k)).to(torch.int64)
                )
                if wide != narrow:
                    found.append((tokens, experts, factor, wide, narrow))
    # One where FP32 gives more, one where it gives less, where there are such.
    more = [case for case in found if case[4] > case[3]]
    less = [case for case in found if case[4] < case[3]]
    return more[:1] + less[:1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = pathlib.Path(__file__).parent / "gates.json"
    parser.add_argument("--output", type=pathlib.Path, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    plan = [
        # name, kind, tokens, experts, k, capacity factor, min capacity, drop
        ("document, factor 1", "document", 6, 4, 2, 1.0, 0, True),
        ("document, factor 0.5", "document", 6, 4, 2, 0.5, 0, True),
        ("document, min capacity 2", "document", 6, 4, 2, 0.25, 2, True),
        ("document, no dropping", "document", 6, 4, 2, 0.5, 0, False),
        ("one token", "random", 1, 4, 2, 1.0, 0, True),
        ("one token, no dropping", "random", 1, 8, 2, 1.0, 0, False),
        ("one token, min capacity 4", "random", 1, 8, 2, 1.0, 4, True),
        ("two experts", "random", 7, 2, 2, 1.0, 0, True),
        ("two experts, tight", "random", 9, 2, 2, 0.5, 0, True),
        ("two tokens", "random", 2, 3, 2, 0.5, 1, True),
        ("odd sizes", "random", 17, 5, 2, 1.0, 0, True),
        ("odd sizes, tight", "random", 17, 5, 2, 0.6, 0, True),
        ("odd sizes, generous", "random", 17, 5, 2, 2.0, 0, True),
        ("odd sizes, no dropping", "random", 23, 7, 2, 1.0, 0, False),
        ("fewer tokens than experts", "random", 5, 16, 2, 1.0, 0, True),
        ("fewer tokens than experts, min capacity 4", "random", 5, 16, 2, 1.0, 4, True),
        ("many experts", "random", 40, 16, 2, 1.0, 4, True),
        ("many experts, tight", "random", 41, 16, 2, 0.3, 0, True),
        ("skewed", "skewed", 31, 6, 2, 1.0, 0, True),
        ("skewed, factor 1.25", "skewed", 31, 6, 2, 1.25, 4, True),
        ("skewed, no dropping", "skewed", 31, 6, 2, 1.25, 4, False),
        ("all to one expert", "one", 13, 4, 2, 1.0, 0, True),
        ("all to one expert, tight", "one", 13, 8, 2, 0.5, 0, True),
        ("all to one expert, no dropping", "one", 13, 4, 2, 1.0, 0, False),
        ("all to the same two", "same two", 12, 5, 2, 0.5, 0, True),
        ("all to the same two of two", "same two", 11, 2, 2, 0.5, 0, True),
        ("capacity above the token count", "random", 6, 3, 2, 8.0, 0, True),
        ("min capacity above the token count", "random", 3, 3, 2, 1.0, 10, True),
        ("large logits", "large", 14, 4, 2, 1.0, 0, True),
        ("negative logits", "negative", 14, 4, 2, 0.75, 0, True),
        ("all equal", "equal", 10, 4, 2, 1.0, 0, True),
        ("ties", "ties", 21, 6, 2, 1.0, 0, True),
        ("ties, tight", "ties", 22, 3, 2, 0.5, 0, True),
        ("k = 1, nothing drops", "random", 15, 5, 1, 5.0, 0, True),
        ("k = 1, no dropping", "random", 19, 4, 1, 1.0, 0, False),
        ("k = 1, one token", "random", 1, 3, 1, 3.0, 0, True),
        ("k = 1, skewed", "skewed", 16, 6, 1, 1.0, 4, False),
        ("k = 1, ties", "ties", 18, 4, 1, 4.0, 0, True),
        ("k = 1, all to one expert", "one", 9, 4, 1, 4.0, 0, True),
        ("k = 3", "random", 16, 6, 3, 1.0, 0, True),
        ("k = 3, tight", "random", 17, 7, 3, 0.5, 0, True),
        ("k = 3, no dropping", "random", 11, 5, 3, 1.0, 0, False),
        ("k = 4", "random", 19, 8, 4, 1.25, 0, True),
        ("k = 4, skewed, tight", "skewed", 20, 8, 4, 0.5, 0, True),
        ("k = 4 of 4", "random", 9, 4, 4, 0.75, 0, True),
        ("k = 8 of 16", "random", 12, 16, 8, 0.8, 2, True),
    ]
    for tokens, experts, factor, wide, narrow in differing_capacity(2):
        name = f"capacity {narrow} in FP32, {wide} in FP64"
        plan.append((name, "skewed", tokens, experts, 2, factor, 0, True))

    cases = [make_case(*entry, seed=100 + i) for i, entry in enumerate(plan)]
    versions = {
        "deepspeed": deepspeed.__version__,
        "torch": torch.__version__.split("+")[0],
    }
    # One case a line: a change shows as the cases it touches.
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    arguments.output.write_text(
        f'{{"versions":{json.dumps(versions)},\n"cases":[\n{lines}\n]}}\n'
    )
    print(len(cases), "cases,", arguments.output.stat().st_size, "bytes")
    for case in cases:
        kept = sum(map(sum, case["kept"]))
        routes = case["k"] * case["tokens"]
        print(
            f"  {case['name']}: S {case['tokens']} E {case['experts']} C {case['capacity']}"
            f" kept {kept}/{routes} l_aux {case['l_aux']:.6f}"
        )


if __name__ == "__main__":
    main()
