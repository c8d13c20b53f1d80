import time
from pathlib import Path

import pytest
import torch
import yaml
from helpers import call, says, tells

import firm
from firm._util.machine import describe_machine
from firm.networks import PRESETS
from firm.training.config import ConfigError, TrainConfig, dump_config, load_config
from firm.training.estimate import estimate
from firm.training.step import Velocity

CONFIGS = Path(__file__).parents[2] / "configs"


PARAMETERS = {
    "celeba": "34,474,531", "afhq": "59,918,883", "afhq-deblurring": "239,412,291",
    "compact": "15,742,220", "face-128": "8,200,835",
}  # fmt: skip
SHIPPED = sorted(CONFIGS.rglob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_shipped_configurations_dry_run(path, tmp_path):
    assert load_config(path).make_tasks()
    done = call("train", path, f"data={tmp_path}", "--dry-run", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(done.output)["data"] == str(tmp_path)
    assert f"# parameters: {PARAMETERS.get(path.stem, '')}" in done.output
    assert PARAMETERS.keys() <= {path.stem for path in SHIPPED}


def test_a_dry_run_looks_for_the_data_and_names_the_machine(tmp_path):
    tells("nowhere: there is no such folder or file", "train", CONFIGS / "compact.yaml", "data=nowhere", "--dry-run")
    done = call("train", CONFIGS / "compact.yaml", "--dry-run", "--device", "cpu")
    assert "# data is not set" in done.output
    assert f"# hours on one {describe_machine(torch.device('cpu'))['cpu']}" in done.output
    assert "H200" not in done.output


def test_the_papers_numbers():
    """Table 7, "Hyperparameters" and Appendix D, written down again."""
    celeba, afhq = load_config(CONFIGS / "paper/celeba.yaml"), load_config(CONFIGS / "paper/afhq.yaml")
    for c in (celeba, afhq):
        assert (c.K, c.beta, c.rho, c.t_min, c.t_max, c.tau_min, c.strata) == (5, 0.5, 0.01, 1e-3, 0.995, 0.1, 64)
        assert (c.lr, c.lr_end, c.weight_decay, c.clip_grad_norm) == (1e-4, 1e-6, 1e-4, 1.0)
        assert (c.batch_size, c.ema_decay, c.warmup_steps) == (32, 0.999, 0)
        assert (c.warm_start_epochs, c.ema_from_epoch, c.seed, c.bf16, c.betas) == (20, 20, 42, False, (0.9, 0.999))
        assert (c.objective, Velocity(c).reduction, c.output, c.flips) == ("paper", "sum", "direct", False)
    assert (celeba.epochs, celeba.steps_per_epoch, celeba.size) == (500, 2000, 128)
    assert (afhq.epochs, afhq.steps_per_epoch, afhq.size) == (700, 750, 256)


def test_overrides_and_types(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("lr: 1e-3\nmixture: [{name: denoising}]\n")
    c = load_config(path, ["lr=2e-4", "batch_size=64", "flips=true", "val_steps=[1, 2]", "max_minutes=6"])
    assert (c.lr, c.batch_size, c.flips, c.val_steps, c.max_minutes) == (2e-4, 64, True, (1, 2), 6.0)
    assert c.tasks() == [{"name": "denoising", "weight": 1.0}]
    assert load_config(path, ["task=deblurring"]).tasks() == [{"name": "deblurring", "weight": 1.0}]
    assert load_config(None, ["val_steps=3"]).val_steps == (3,)


def test_a_dump_loads_again(tmp_path):
    c = load_config(None, ["task=fourier", "network={ch: 64, mult: [1, 2]}", "val_steps=[2, 4]"])
    (tmp_path / "dump.yaml").write_text(dump_config(c))
    assert load_config(tmp_path / "dump.yaml") == c
    assert set(yaml.safe_load(dump_config(c))) == set(TrainConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("network.chs=8", "did you mean 'ch'"),
        ("batch.x=8", "'batch' has no parts"),
        ("batch_size=many", "batch_size must be a whole number, got 'many'"),
        ("batch_size=0", "batch_size must be at least 1"),
        ("lr=fast", "lr must be a number"),
        ("flips=1", "flips must be true or false"),
        ("flips", "key=value"),
        ("objective=ballanced", "did you mean 'balanced'"),
        ("network=celebA", "did you mean 'celeba'"),
        ("network=5", "a preset's name"),
        ("task=denosing", "did you mean 'denoising'"),
        ("task={name: denoising, sigma: 0.1}", "a task with settings goes into mixture"),
        ("pairing=optimal", "pairing=optimal belongs to objective=prior"),
        (("objective=prior", "output=correction"), "output=correction belongs to objective=paper and balanced"),
        (("objective=bridge", "iterate_weights=[1, 1, 1, 1, 1]"), "belongs to objective=paper and balanced, not to"),
        (("objective=prior", "task=deblurring"), "task is for objectives with measurements: objective=prior learns"),
        (
            ("dataset=celeba", "val_data=faces"),
            "val_data is for .* shards; celeba has a val split",
        ),
        ("mixture=denoising", "mixture must be a list"),
        ("mixture=[{weight: 1}]", "needs a name"),
        ("mixture=[{name: denoising, factor: 2}]", "denoising has no setting 'factor'"),
        ("mixture=[{name: denoising, sigma: [0.1, 0.3]}]", "noise_level: true"),
        ("betas=[0.9, 1]", "betas must be two numbers"),
        ("t_max=1.0", "t_min < t_max < 1"),
        ("lr_end=1", "lr_end"),
        ("beta=2", r"beta must be in \[0, 1\]"),
        ("warm_start_epochs=900", "warm_start_epochs"),
        ("accumulation_steps=5", "multiple of accumulation_steps"),
        ("mixture=[" + 33 * "{name: denoising}, " + "]", "number of tasks, 33"),
        ("size=100", "multiple of the network's stride, 8"),
        ("val_steps=[0]", "val_steps"),
        ("channels=0", "channels must be at least 1"),
        ("deterministic=true", "needs compile=false"),
        (("recompute=pointwise", "compile=false"), "recompute=pointwise is for compiled blocks: set compile=true"),
        ("val_steps=[", "not valid YAML"),
        ("network={mult: 3}", "mult must be a list of 1 to 12 whole numbers"),
        ("network={ch: 7}", "ch must be even"),
        ("network={channels: 5}", "must be those of the images, channels=3"),
        ("network={1: 2}", "has no argument '1'"),
        ("K=1000000000", "K must be at most 1000"),
        ("epochs=1000000000", "epochs x steps_per_epoch must be at most"),
        ("seed=1e30", "seed must be a whole number from 0"),
        ("lr=.inf", "lr must be a number"),
        ("mixture=[{name: deblurring, kernel_size: 1000000000}]", "kernel_size must be at most 16384"),
        ("mixture=[{name: denoising, weight: .inf}]", "weight must be positive, got inf"),
        ("mixture=[{name: denoising, 3: 4}]", "settings have names"),
        (("read_size=256", "dataset=arrays"), "read_size beyond size is for crop=random"),
        ("scale=[0.5, 1]", "scale needs crop=random"),
        ("memory_map=true", "needs cache=FOLDER"),
        (("value_range=[0, 1]", "dataset=celeba"), "value_range is for arrays and pictures of more than 8 bits"),
        ("read_size=64", "smaller than size"),
        (("crop=random", "scale=[0, 1]"), "scale must be positive"),
        (("crop=random", "scale=[2, 1]"), "scale must be a range"),
        ("network={ch: 8, ch: 16}", "network=.*'ch' is given twice"),
    ],
)
def test_wrong_settings_are_refused_with_a_hint(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(None, [override] if isinstance(override, str) else override)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1\n- 2\n", "expected settings"),
        ("", "the file is empty"),
        ("a: [1\n", "not valid YAML"),
        ("batch_size: 4\n", "data is not set"),
        ("bacth_size: 4\n", "did you mean 'batch_size'"),
        ("batch: 8\nsize: 16\nbatch: 16\n", "'batch' is given twice, in lines 1 and 3"),
        ("mixture:\n- {name: denoising}\n- name: deblurring\n  blur: 1.0\n  blur: 2.0\n", "'blur' is given twice"),
        ("out:\n", "out must name a folder for the run, such as outputs/train; it is empty"),
        ("data: pictures\nval_images: 0\n", "cut.png"),
    ],
)
def test_wrong_files(text, message, tmp_path, monkeypatch):
    """Of a key given twice, YAML would take the last; an empty folder would be the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "cut.png").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "c.yaml").write_text(text)
    tells(message, "train", "c.yaml", "--device", "cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.yaml", "pictures"]


NESTED = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(12)
)
HUGE = {  # what would take minutes or gigabytes, or end in a traceback
    "nested anchors": (NESTED + "mixture: *a12\n", "aliases counted as what they stand for, near line 5"),
    "itself": ("mixture: &a [*a]\n", "an alias inside of what it stands for"),
    "brackets": ("val_steps: " + 50_000 * "[", "more than 30 levels"),
    "values": ("val_steps: [" + 40_000 * "1," + "]", "more than 10,000 values"),
    "digits": ("seed: " + 4000 * "9", "a number of more than 40 digits"),
    "quoted digits": ("seed: '" + 4000 * "9" + "'", "seed must be a whole number"),
    "text": ("task: " + 5000 * "x", "a value of more than 4,096 characters"),
    "size": (300_000 * "#\n", "longer than 100,000 characters"),
    "date": ("seed: 2001-99-99", "month must be"),
}


@pytest.mark.parametrize("case", HUGE)
def test_hostile_files_are_refused_in_a_sentence_and_at_once(case, tmp_path):
    text, message = HUGE[case]
    (tmp_path / "c.yaml").write_text(text)
    start = time.monotonic()
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(tmp_path / "c.yaml")
    assert time.monotonic() - start < 10
    assert len(str(caught.value)) < 400


def test_no_traceback_for_what_is_not_a_model_or_a_file(config_file, tmp_path):
    net = firm.UNet(3, side=16, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4, time_scale=100)
    good, cut, spoilt = (tmp_path / f"{name}.safetensors" for name in ("good", "cut", "spoilt"))
    firm.Firm(net).save(good)
    cut.write_bytes(good.read_bytes()[:-100])
    net.head.conv.weight.data.fill_(float("nan"))
    firm.Firm(net).save(spoilt)
    for path, arguments, message in (
        (tmp_path, [], "not a file of settings"),
        (tmp_path / "absent.yaml", [], "no such configuration file"),
        (config_file, ["channels=5"], "channels must be 1"),
        (config_file, [f"init_from={cut}"], "damaged, cut short or another format"),
        (config_file, [f"init_from={config_file}"], "another format"),
        (config_file, [f"init_from={spoilt}"], "NaN or infinite"),
        (config_file, ["mixture=[{name: fourier, lines: 1000}]"], "lines must be between 1 and the width 16"),
        (config_file, ["network={blocks: 10000000}"], "from 1 to 100"),
        (config_file, ["network={mult: [200], ch: 8192}", "size=16"], "network: UNet("),  # 2.4e13 weights
    ):
        tells(message, "train", path, f"out={tmp_path / 'run'}", *arguments)


VERSION_3 = "network={ch: 128, mult: [1, 1], blocks: 3, attention: [], groups: 16, unshuffle: 4, noise_level: true}"
MEASURED = [  # peak GiB on one H200, docs/performance.md
    ("compact", ["batch_size=256"], 75.3),
    ("compact", ["batch_size=128", "recompute=pointwise"], 11.9),
    ("compact", ["batch_size=128", "bf16=false"], 60.7),
    ("face-128", [VERSION_3], 17.5),
    ("paper/celeba", ["bf16=true", "batch_size=256", "recompute=pointwise"], 96.5),
    ("paper/celeba", ["bf16=false"], 67.6),
]


@pytest.mark.parametrize(("name", "overrides", "gib"), MEASURED)
def test_the_estimate_of_memory_is_what_was_measured(name, overrides, gib):
    estimated = estimate(load_config(CONFIGS / f"{name}.yaml", overrides), torch.device("cpu"))["GB of memory"]
    assert estimated * 1e9 / 2**30 == pytest.approx(gib, rel=0.07)


def test_parts_of_the_network_are_changed_one_by_one(make):
    """Of the arguments in the file, and of a preset."""
    config = make("network.ch=16", "network.blocks=2")
    assert (config.network["ch"], config.network["blocks"], config.network["mult"]) == (16, 2, [1, 2])
    preset = load_config(None, ["network=afhq-deblurring", "network.ch=64", "size=256"])
    assert preset.network == {**PRESETS["afhq-deblurring"], "ch": 64}
    assert load_config(None, ["network.ch=64"]).network == {**PRESETS["celeba"], "ch": 64}  # the default's
    assert load_config(None, ["network.ch=64", "network=celeba"]).network == "celeba"  # the last word counts


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("learning_rate", "lr"), ("bs", "batch_size"), ("batch", "batch_size"), ("wd", "weight_decay"),
        ("optimiser", "optimizer"), ("grad_clip", "clip_grad_norm"), ("num_epochs", "epochs"), ("image_size", "size"),
        ("ema", "ema_decay"), ("accumulation", "accumulation_steps"), ("bacth_size", "batch_size"), ("min_lr", "lr"),
    ],
)  # fmt: skip
def test_what_others_call_a_setting_suggests_ours(written, meant):
    with pytest.raises(ConfigError, match=f"no setting '{written}'; did you mean '{meant}'"):
        load_config(None, [f"{written}=3"])


def test_keys_may_repeat_in_different_places_and_replace_merged_ones(tmp_path):
    small = "{ch: 8, mult: [1], blocks: 1, groups: 4}"
    text = f"mixture: [{{name: denoising}}, &one {{name: deblurring}}, {{<<: *one, name: fourier}}]\nnetwork: {small}\n"
    (tmp_path / "c.yaml").write_text(text)
    assert [e["name"] for e in load_config(tmp_path / "c.yaml").mixture] == ["denoising", "deblurring", "fourier"]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("other")])
@pytest.mark.parametrize(
    ("gpu", "more", "hint"),
    [
        (True, [], "recompute=pointwise needs less, then accumulation_steps=4"),
        (True, ["compile=false"], "accumulation_steps=4 needs less, then recompute=calls"),
        (True, ["--device", "cpu"], "accumulation_steps=4 needs less, then recompute=calls"),
        (False, [], "accumulation_steps=4 needs less, then recompute=calls"),
    ],
)
def test_training_without_enough_memory_says_what_needs_less(monkeypatch, tmp_path, error, gpu, more, hint):
    """What is of use there: nothing is compiled on a CPU."""

    def fails(*_, **__):
        raise error

    monkeypatch.setattr("firm.training.loop.train", fails)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    result = call("train", CONFIGS / "compact.yaml", f"data={tmp_path}", f"out={tmp_path / 'run'}", *more)
    if "other" in str(error):
        assert result.exception is error  # a mistake of the program stays one
    else:
        assert result.exit_code == 2
        assert says(result.output, f"there is not enough memory for this: {hint}")
