"""Files of models: damage and hostile settings are refused in words, whatever the bytes; names mean one thing."""

import copy
import json
import random
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch
from helpers import stirred

import firm
from firm._model import save_network
from firm._model_file import FORMAT, signed
from firm.networks import PriorUNet
from firm.operators import Identity

TINY = dict(side=16, ch=8, mult=(1, 2), blocks=1, groups=4, attention=(8,))
CARD = {"trained_for": [{"name": "denoising", "sigma": 0.1}], "size": 16, "channels": 1, "value_range": [0.0, 1.0]}


def tiny():
    return firm.Firm(stirred(firm.UNet(1, **TINY), 0.2), firm.Solver(K=3), CARD)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    tiny().save(path)
    return path


def parts(path):
    with safetensors.safe_open(path, framework="pt") as file:
        text = file.metadata()["firm"]  # and copies of the weights: the file will change under them
        weights = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118 (not a dict)
    return text, weights


def rewrite(path, change):
    """Save the file again with its metadata changed, with the digest of what it holds now."""
    text, weights = parts(path)
    about = json.loads(text)
    del about["digest"]
    change(about)
    text = json.dumps(about)
    safetensors.torch.save_file(weights, path, metadata={"firm": signed(text, weights)})


def same(a, b):
    a, b = a.estimator.state_dict(), b.estimator.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_saves_and_loads_everything(tmp_path):
    model, y = tiny(), torch.randn(1, 1, 16, 16)
    paths = [tmp_path / "new folder" / name for name in ("full.safetensors", "half.safetensors")]
    for path, dtype in zip(paths, (torch.float32, torch.float16), strict=True):
        model.save(path, dtype)
    full, half = map(firm.load, paths)
    assert (full.solver, full.card, full.estimator.config) == (model.solver, model.card, model.estimator.config)
    assert not full.training
    assert torch.equal(*(firm.restore(m, Identity(), y).image for m in (model, full)))
    assert paths[1].stat().st_size < 0.6 * paths[0].stat().st_size
    for key, value in model.estimator.state_dict().items():
        assert half.estimator.state_dict()[key].dtype == torch.float32
        torch.testing.assert_close(half.estimator.state_dict()[key], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("load", [firm.load, firm.load_network])
def test_a_model_is_loaded_where_one_asks_for_it(saved, load):
    for device, where in ((None, "cpu"), ("cpu", "cpu"), ("meta", "meta"), (torch.device("meta"), "meta")):
        model = load(saved, device=device)
        assert {p.device.type for p in (*model.parameters(), *model.buffers())} == {where}
    own = load(saved, firm.UNet(1, **TINY).to("meta"))  # None is the CPU, wherever one's own network was
    assert {p.device.type for p in own.parameters()} == {"cpu"}


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        tiny().save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_a_damaged_or_foreign_file(saved):
    whole = saved.read_bytes()
    other = safetensors.torch.save({"w": torch.zeros(3)})
    for data in (*(whole[:keep] for keep in (0, 5, 100, -1)), b"\x89PNG\r\n" * 50, other):
        saved.write_bytes(data)
        with pytest.raises(ValueError, match=r"model\.safetensors cannot be read as safetensors of a FIRM model"):
            firm.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about.update(format=FORMAT + 1), rf"format {FORMAT + 1}, newer than this library reads"),
        (lambda about: about.pop("solver"), "metadata is incomplete"),
        (lambda about: about["solver"].pop("K"), "metadata is incomplete"),
        (lambda about: about["config"].update(ch=16), "weights do not fit UNet"),
        (lambda about: about["config"].update(width=3), "settings are not valid"),
        (lambda about: about["config"].update(ch=10**12), "settings are not valid.*ch"),
        (lambda about: about["solver"].update(rho=float("inf")), "settings are not valid.*rho"),
        (lambda about: about.update(estimator="Mine"), r"network class 'Mine': name it"),
    ],
)
def test_an_inconsistent_file(saved, change, message):
    rewrite(saved, change)
    with pytest.raises(ValueError, match=message):
        firm.load(saved)


def test_every_flipped_bit_is_seen(saved):
    data = saved.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    rng, intact = random.Random(0), firm.load(saved)
    places = [rng.randrange(header, len(data)) for _ in range(60)] + [rng.randrange(header) for _ in range(200)]
    accepted = []
    for place in places:
        bit = 1 << rng.randrange(8)
        saved.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
        try:
            found = firm.load(saved)
        except ValueError:
            continue
        accepted.append(place)
        assert same(found, intact)  # as in 1e-05 and 1E-05
        assert (found.card, found.solver) == (intact.card, intact.solver)
    assert not [place for place in accepted if place >= header]
    assert len(accepted) <= 2


def test_networks_have_a_digest_too(tmp_path):
    path = tmp_path / "prior.safetensors"
    save_network(path, PriorUNet(1, **TINY), "prior", {})
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"prior\.safetensors is damaged or was changed after it was saved"):
        firm.load_network(path)


def test_a_changed_setting_and_a_missing_digest_are_seen(saved):
    text, weights = parts(saved)
    for changed in (text.replace('"K": 3', '"K": 4'), text.rpartition(', "digest"')[0] + "}"):
        safetensors.torch.save_file(weights, saved, metadata={"firm": changed})
        with pytest.raises(ValueError, match="its digest does not fit"):
            firm.load(saved)


def test_the_bundled_models_are_those_that_were_trained():
    """Each file is read with its digest, and its weights have the fingerprint that evaluations name."""
    assert {name: firm.load(name).fingerprint() for name in firm.bundled()} == {
        "photo": "262c9f7385a5b6ad", "cat-256": "3e9100d6ff14bce7", "face-128": "956abf20fb857432",
        "toy": "91b160c94dcc9d8b",
    }  # fmt: skip


NUMBERS = [10**30, 10**7, -1, 0, 0.5, -1e308, float("nan"), float("inf"), True]
WRONG = [None, [], [1, "x"], {}, {"a": 1}, "text", "", *NUMBERS]


def paths(value, at=()):
    """The places of a nested structure."""
    yield at
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from paths(value[key], (*at, key))


def put(about, place, value):
    changed = copy.deepcopy(about)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    if not place:
        return value
    inner[place[-1]] = value
    return changed


def test_settings_of_the_wrong_type_are_refused_in_words(tmp_path):
    """The only exception is ValueError, and what is not refused works."""
    saved = tmp_path / "model.safetensors"
    net = firm.UNet(1, side=16, ch=4, mult=(1,), blocks=1, groups=2, attention=())
    firm.Firm(net, firm.Solver(K=1), CARD).save(saved)
    text, weights = parts(saved)
    about = json.loads(text)
    del about["digest"]
    accepted, zeros = [], torch.zeros(1, 1, 16, 16)
    for place in paths(about):
        for wrong in WRONG:
            changed = json.dumps(put(about, place, wrong))
            text = signed(changed, weights) if changed.startswith("{") and changed != "{}" else changed
            saved.write_bytes(safetensors.torch.save(weights, metadata={"firm": text}))
            start = time.perf_counter()
            try:
                model = firm.load(saved)
            except ValueError:
                pass
            else:
                accepted.append((place, wrong))
                assert model.posterior_mean(Identity(), zeros, 0.5, zeros).shape == zeros.shape
            assert time.perf_counter() - start < 30, (place, wrong)
    # Only where another value may be right as well:
    free = {("card",), ("card", "trained_for"), ("card", "trained_for", 0), ("card", "trained_for", 0, "name"),
            ("card", "trained_for", 0, "sigma"), ("card", "value_range"), ("card", "value_range", 0),
            ("card", "value_range", 1), ("solver", "K"), ("solver", "rho"), ("solver", "beta"),
            ("config", "time_scale"), ("config", "attention"), ("config", "groups"), ("config", "side")}  # fmt: skip
    assert {place for place, _ in accepted} <= free, {place for place, _ in accepted} - free
    solver = [(place[1], wrong) for place, wrong in accepted if place[0] == "solver"]
    assert sorted(solver, key=str) == [("K", 0), ("beta", 0), ("beta", 0.5), ("rho", 0.5), ("rho", 10**7)]


def test_metadata_that_is_no_json_of_ours(saved):
    _, weights = parts(saved)
    for text in ("", "{", "[" * 100_000, "1" * 5000, '{"format": 1e999}', '{"format": true}', "null"):
        safetensors.torch.save_file(weights, saved, metadata={"firm": text})
        with pytest.raises(ValueError, match=r"of a FIRM model|newer than this library reads"):
            firm.load(saved)


def test_weights_of_another_type_or_missing(saved):
    text, weights = parts(saved)
    text = text.rpartition(', "digest"')[0] + "}"
    weights["head.conv.bias"] = weights["head.conv.bias"].long()
    for said in (r"head\.conv\.bias is torch\.int64", r"Missing key.*head\.conv\.bias"):
        safetensors.torch.save_file(weights, saved, metadata={"firm": signed(text, weights)})
        with pytest.raises(ValueError, match=rf"weights do not fit UNet: (?s:.)*{said}"):
            firm.load(saved)
        weights.pop("head.conv.bias", None)


class Own(torch.nn.Module):
    def __init__(self, settings=None):
        super().__init__()
        self.config = {"settings": settings or {"a": 1}}
        self.weight = torch.nn.Parameter(torch.zeros(self.config["settings"]["a"]))


def test_a_class_of_the_users_own_that_cannot_take_the_settings(tmp_path):
    path = tmp_path / "own.safetensors"
    firm.Firm(Own()).save(path)
    fresh = Own()
    fresh.weight.data += 3
    assert isinstance(firm.load(path, Own).estimator, Own)
    assert float(firm.load(path, fresh).estimator.weight) == 0
    rewrite(path, lambda about: about["config"].update(settings=[1]))
    with pytest.raises(ValueError, match="network settings are not valid"):
        firm.load(path, Own)


def test_a_local_file_does_not_shadow_a_bundled_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny().save("face-128")
    assert firm.load("face-128").card["name"] == "face-128"
    assert firm.load("./face-128").card == CARD
    assert firm.load(tmp_path / "face-128").card == CARD
    (tmp_path / "toy").mkdir()
    assert firm.load("toy").card["trained_for"] == "toy"
    with pytest.raises(FileNotFoundError, match=r"no model './toy': a folder without model.safetensors"):
        firm.load("./toy")
    tiny().save("toy/model.safetensors")  # as `firm train` leaves it
    assert firm.load("toy").card["trained_for"] == "toy"
    assert firm.load("./toy").card == firm.load(tmp_path / "toy").card == firm.load(Path("toy")).card == CARD


@pytest.mark.parametrize("wrap", [lambda m: firm.fast(m, "float32"), lambda m: firm.tiled(m, 8, 2),
                                  lambda m: firm.tiled(firm.fast(m, "float32"), 8, 2)])  # fmt: skip
def test_fast_and_tiled_models_are_saved_as_the_model(wrap, tmp_path):
    model = tiny()
    model.save(tmp_path / "plain.safetensors")
    wrap(model).save(tmp_path / "wrapped.safetensors")
    plain, wrapped = (firm.load(tmp_path / f"{name}.safetensors") for name in ("plain", "wrapped"))
    assert plain.fingerprint() == wrapped.fingerprint()
    assert (tmp_path / "plain.safetensors").read_bytes() == (tmp_path / "wrapped.safetensors").read_bytes()


def test_rounded_weights_are_not_saved(tmp_path):
    for model in (firm.fast(tiny(), "bf16"), firm.tiled(firm.fast(tiny(), "bf16"), 8, 2)):
        with pytest.raises(ValueError, match=r"in bfloat16 has rounded weights: save the model that firm\.fast was"):
            model.save(tmp_path / "rounded.safetensors")
    assert not list(tmp_path.iterdir())
