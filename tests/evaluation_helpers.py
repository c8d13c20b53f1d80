"""What the tests of evaluations share: small models, the command, and its table."""

import csv
import json

import torch
from helpers import call

import firm

SIZE = 16


def small_model(seed=0, channels=3, card=None, **settings):
    torch.manual_seed(seed)
    net = firm.UNet(channels, side=SIZE, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4, **settings)
    for p in net.parameters():
        p.data = 0.1 * torch.randn(p.shape)
    return firm.Firm(net, firm.Solver(K=1), card)


def save_model(path, seed, channels=3, **card):
    path.parent.mkdir(parents=True, exist_ok=True)
    small_model(seed, channels, card).save(path)
    return path


def command(pictures, out, *names, **options):
    """`firm evaluate`: denoising of small pictures with N = 1 unless `options` say otherwise; None leaves one out."""
    given = {"tasks": "denoising", "steps": "1", "size": SIZE, "data": pictures, "out": out, **options}
    words = [word for key, value in given.items() if value is not None for word in (f"--{key}", value)]
    return call("evaluate", *names, *words)


def results(done, out):
    assert done.exit_code == 0, done.output
    return json.loads((out / "results.json").read_text())


def csv_rows(out):
    with open(out / "images.csv", newline="") as file:
        return list(csv.DictReader(file))
