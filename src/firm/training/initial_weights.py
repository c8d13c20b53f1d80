"""Start from the weights of a saved model (``init_from``): also of one with other inputs, channels, or less depth."""

from __future__ import annotations

import copy
from itertools import islice

import torch
from torch import Tensor, nn

from firm._model import load_network
from firm._util.checks import finite, require, warn
from firm.networks import NETWORKS, Estimator, ResUNet
from firm.networks.estimator import OneImage
from firm.networks.res_unet import Level
from firm.training.objectives import ConfigError

Weights = dict[str, Tensor]
HEAD = {f"head.{part}" for part in ("weight", "bias", "conv.weight", "conv.bias")}
STEM, ITERATION, NOISE = "stem.conv.weight", "conditioning.iteration", "conditioning.noise."


def initial_weights(path: str, net: nn.Module, objective: str) -> Weights:
    """Read the weights of a saved model, and refuse those that do not fit or would mean something else.

    Parameters
    ----------
    path
        A bundled model's name, a .safetensors file, or a folder with one.
    net, objective
        The network to start, and what it is trained for. It may have further inputs, blocks or an iteration; at first
        both compute the same.

    Returns
    -------
    A state for ``net.load_state_dict``.
    """
    estimator = None if type(net) in NETWORKS.values() else copy.deepcopy(net)  # a file cannot build a custom one
    loaded = load_network(path, estimator)
    weights, target = loaded.state_dict(), net.state_dict()
    if isinstance(loaded, Estimator) and isinstance(net, Estimator):
        _check_alike(loaded, net, path, objective)
        weights = _recolored(weights, path, loaded.config["channels"], net.config["channels"], loaded.images)
        if isinstance(net, OneImage) and not isinstance(loaded, OneImage):
            weights = _narrowed(weights, target, loaded.images)
        if isinstance(loaded, ResUNet) and isinstance(net, ResUNet):
            weights = _deepened(weights, target, loaded, net)
    weights = _grown(weights, target)
    fits = {k: v.shape for k, v in weights.items()} == {k: v.shape for k, v in target.items()}
    require(fits, f"init_from: the weights of {path} do not fit this network", ConfigError)
    broken = any(not finite(value) and finite(target[key]) for key, value in weights.items())
    require(not broken, f"init_from: {path} has weights that are NaN or infinite", ConfigError)
    return weights


def _check_alike(loaded: Estimator, net: Estimator, name: str, objective: str) -> None:
    """Refuse weights whose shapes fit, or can be made to, but which mean something else in this network."""
    for key in ("time_scale", "groups"):
        was, now = (n.config.get(key) for n in (loaded, net))
        same = (
            f"init_from: {name} was trained with network.{key}={was}, not {now}: its weights mean something else here"
        )
        require(was == now, same, ConfigError)
    state = objective == "bridge" and isinstance(loaded, OneImage)  # a bridge sees its state first
    alike = type(loaded).images == type(net).images or isinstance(net, OneImage) or state
    require(alike, f"init_from: {name} has a {type(loaded).__name__}, which sees other images", ConfigError)
    had, has = (n.config.get("extra", ()) for n in (loaded, net))
    if "context" in had and "previous" in has and "previous" not in had:  # a further image can only be the last
        raise ConfigError(f"init_from: {name} sees the context, and cannot be given the previous iterate as well")
    if "noise" in had and {"previous", "context"} & (set(has) - set(had)):
        raise ConfigError(f"init_from: {name} sees the noise, and cannot be given the previous iterate or context too")


def _recolored(weights: Weights, path: str, had: int, has: int, images: int) -> Weights:
    """Bring weights for images of `had` channels to images of `has`.

    The network sees the mean of the new channels as each of the old ones, and all new channels begin with the mean of
    what it estimated of the old: on one channel a model for color does what it does on a gray picture.
    """
    if had == has:
        return weights
    one = f"their mean stands for each of the {had}, and all of them begin with the mean of its estimates"
    warn(f"init_from: {path} is for images of {had} channels, and these have {has}: {one}")
    found = dict(weights)
    for key, value in weights.items():
        if key == STEM:  # (outputs, images channels pixels, h, w), the pixels those of `unshuffle`
            each = value.unflatten(1, (images, had, -1)).sum(2, keepdim=True) / has
            found[key] = each.expand(-1, -1, has, -1, -1, -1).flatten(1, 3)
        elif key in HEAD:  # (channels pixels, ...)
            each = value.unflatten(0, (had, -1)).mean(0, keepdim=True)
            found[key] = each.expand(has, *each.shape[1:]).flatten(0, 1)
    return {key: value.contiguous() for key, value in found.items()}


def _grown(weights: Weights, target: Weights) -> Weights:
    """Bring `weights` to the shapes of `target`, a network that differs from theirs by further inputs only.

    At first the two compute the same: the stem's weights for further images are 0 (they are its last inputs), and so
    are the rows of the iteration.
    """
    found = dict(weights)
    if STEM in found and STEM in target:
        (outputs, inputs, *kernel), wanted = found[STEM].shape, target[STEM].shape
        if wanted[1] > inputs and (outputs, *kernel) == (wanted[0], *wanted[2:]):
            found[STEM] = torch.cat([found[STEM], found[STEM].new_zeros(outputs, wanted[1] - inputs, *kernel)], dim=1)
    if ITERATION in target and ITERATION not in found:
        found[ITERATION] = torch.zeros_like(target[ITERATION])
    return found


def _narrowed(weights: Weights, target: Weights, images: int) -> Weights:
    """Bring the weights of an estimator that sees so many `images` to `target`, the same network on one.

    That is a prior, or a bridge that sees its state alone. The one image stands for x and x_t, the first two. What else
    it saw, the iteration, and the noise level where `target` has none are dropped.
    """
    gone = [key for key in weights if key not in target and (key == ITERATION or key.startswith(NOISE))]
    found = {key: value for key, value in weights.items() if key not in gone}
    if STEM in found:
        x, x_t, *_ = found[STEM].chunk(images, dim=1)
        found[STEM] = x + x_t
    return found


def _deepened(weights: Weights, target: Weights, theirs: ResUNet, net: ResUNet) -> Weights:
    """Bring the `weights` of `theirs` to `net`, whose weights at first are `target` and whose levels have more blocks.

    They compute the same: the further blocks, the last of their levels, add nothing before they are trained.
    """
    were, are = ([m.widths for m in n.modules() if isinstance(m, Level)] for n in (theirs, net))
    if were == are or len(were) != len(are):
        return weights
    found = {key: value for key, value in target.items() if ".blocks." in key} | weights
    for key in ("conditioning.project.weight", "conditioning.project.bias"):  # rows for each block, in their order
        old = iter(weights[key].split(theirs.conditioning.widths))
        new = iter(target[key].split(net.conditioning.widths))
        rows: list[Tensor] = []
        for a, b in zip(were, are, strict=True):
            first = list(islice(new, len(b)))
            rows += [*islice(old, len(a)), *first[len(a) :]]
        found[key] = torch.cat(rows)
    return found
