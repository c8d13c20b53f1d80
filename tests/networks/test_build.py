"""Networks from settings of unknown origin: senseless and far too large ones are refused before building."""

import pytest

from firm.networks import MLP, DRUNet, GradientResStep, ISTANet, ResUNet, UNet, build


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (ResUNet, dict(widths=()), "widths must be a list of 1 to 12"),
        (ResUNet, dict(widths=[4, 0]), r"widths must be whole numbers from 1 to 65536, got \[4, 0\]"),
        (ResUNet, dict(widths=[4, 8], blocks=[1, 2, 3]), r"blocks must be one number or one a level, got \(1, 2, 3\)"),
        (ResUNet, dict(attention=1), "attention must be true or false, got 1"),
        (ResUNet, dict(noise_level=1), "noise_level must be true or false"),
        (ResUNet, dict(extra=("contxt",)), "extra is a list out of previous, context, iteration"),
        (ResUNet, dict(extra=("previous", "previous")), "extra is a list out of previous, context, iteration"),
        (GradientResStep, dict(extra=("previous",)), "GradientResStep sees one image: it takes no extra"),
        (UNet, dict(time_scale="fast"), "time_scale must be a number"),
        (UNet, dict(time_scale=float("nan")), "time_scale must be a number"),
        (UNet, dict(mult=[1] * 1000), "mult must be a list of 1 to 12"),
        (UNet, dict(attention=[16] * 33), "attention must be a list of 0 to 32"),
        (UNet, dict(ch=10**5000), "ch must be a whole number from 1 to 8192, got a number of thousands of digits"),
        (UNet, dict(unshuffle=True), "unshuffle must be a whole number"),
        (UNet, dict(blocks="6"), "blocks must be a whole number"),
        (DRUNet, dict(blocks=10**7), "blocks must be a whole number from 1 to 100"),
        (DRUNet, dict(widths=3), "widths must be a list"),
        (ISTANet, dict(phases=10**8), "phases must be a whole number from 1 to 1000"),
        (MLP, dict(depth=10**9), "depth must be a whole number from 1 to 1000"),
    ],
    ids=lambda v: v.__name__ if isinstance(v, type) else "",
)
def test_wrong_settings_are_refused(kind, settings, said):
    with pytest.raises(ValueError, match=said):
        build(kind, settings)


def test_lists_stand_for_tuples_and_unknown_names_are_errors():
    net = build(ResUNet, dict(widths=[4, 8], blocks=[1, 2], extra=["previous"]))
    assert (net.config["widths"], net.config["blocks"], net.config["extra"]) == ((4, 8), (1, 2), ("previous",))
    assert build(UNet, dict(side=8, ch=8, mult=[1], blocks=1, attention=[])).config["attention"] == ()
    with pytest.raises(TypeError, match="widht"):
        build(ResUNet, dict(widht=3))
