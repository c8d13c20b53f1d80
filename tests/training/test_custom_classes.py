"""Networks and tasks of one's own in training, evaluation and restoring; and what is told when they do not load."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import call, same, tells

import firm
from firm._util.custom import load_class
from firm._util.machine import Ranks
from firm.data import Images
from firm.training.config import ConfigError, load_config
from firm.training.loop import train
from firm.training.trainer import Trainer

RANK = Ranks(0, 1, torch.device("cpu"))
HERE = Path(__file__).parent
NETS, TASKS = HERE / "custom_networks.py", HERE.parent / "tasks" / "own_tasks.py"
NETWORK = f"network={{class: '{NETS}:Net', width: 8}}"


@pytest.fixture(scope="module")
def run(tmp_path_factory, pictures, tiny):
    """A short run with a network of one's own."""
    root = tmp_path_factory.mktemp("own")
    (root / "c.yaml").write_text(tiny + f"data: {pictures}\n")
    settings = [NETWORK, "task=denoising", "epochs=2", "warm_start_epochs=1", "size=16", f"out={root / 'run'}"]
    train(load_config(root / "c.yaml", settings), RANK, progress=False)
    return root


def custom(path, name="Net"):
    return firm.load_network(path, load_class(f"{NETS}:{name}", torch.nn.Module, "network"))


def test_a_custom_network_trains_and_is_saved_with_its_arguments(run):
    net = custom(run / "run" / "model.safetensors")
    assert (net.config, len(net.body[0].weight)) == ({"width": 8}, 8)
    assert float(net.body[1].running_mean.abs().max()) > 1e-3  # the average has the running means of the trained one
    assert int(net.body[1].num_batches_tracked) > 20


def test_the_saved_and_validated_network_is_the_average(make_trainer, tmp_path):
    """Not the one that the optimizer moves; before the average begins they are the same."""
    trainer = make_trainer("ema_from_epoch=0", "ema_decay=0.99", "lr=1e-2", "warm_start_epochs=4")
    start = {key: value.clone() for key, value in trainer.net.state_dict().items()}
    trainer.advance()
    trainer.save(tmp_path / "m.safetensors")
    saved, moved = firm.load(tmp_path / "m.safetensors").estimator.state_dict(), trainer.net.state_dict()
    key = "stem.conv.weight"
    expected = 0.99 * start[key] + 0.01 * moved[key]
    torch.testing.assert_close(saved[key], expected)
    assert not torch.allclose(saved[key], moved[key], atol=1e-4)


def test_a_custom_network_continues_bit_identical(make, tmp_path, interrupted, fit):
    settings = [NETWORK, "task=denoising", "epochs=2", "warm_start_epochs=1", "val_images=0"]
    fit(*settings, out="whole")
    assert interrupted(make(*settings, out="cut"), 12)["steps_now"] == 10
    whole, cut = (custom(tmp_path / name / "model.safetensors").state_dict() for name in ("whole", "cut"))
    assert same(whole, cut)


def test_a_checkpoint_knows_the_class_of_its_network(make):
    """Another class with the same arguments and weights is another network."""
    assert make(NETWORK, "task=denoising").network_about() == {"class": f"{NETS}:Net", "width": 8}


def test_a_custom_network_evaluates_and_restores_with_its_class_alone(run, pictures, tmp_path):
    model = run / "run" / "model.safetensors"
    common = [model, "--data", pictures, "--tasks", "denoising", "--steps", "1", "--limit", 2, "--out", tmp_path / "e"]
    done = call("evaluate", *common, "--network", f"{NETS}:Net")
    assert done.exit_code == 0, done.output
    assert "FIRM N=1" in done.output
    picture = pictures / "000.png"
    common = ["--task", "denoising", "--sigma", 0.1, "--model", model, "--out", tmp_path / "r"]
    done = call("restore", picture, *common, "--network", f"{NETS}:Net")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "r" / "000_restored.png").is_file()
    for words in (["evaluate", model, "--data", pictures], ["restore", picture, *common]):
        tells("was saved with the network class 'Net'", *words)
        tells("--network file.py:Net on the command line", *words)


def test_a_model_is_loaded_with_the_class_it_was_saved_with(run, pictures, tmp_path):
    """The weights of another may happen to fit; the same class in a file that was moved is the same."""
    model, moved = run / "run" / "model.safetensors", tmp_path / "moved.py"
    moved.write_text(NETS.read_text() + "class Twin(Net):\n    def forward(self, x, x_t, t):\n        return x\n")
    net, twin = (load_class(f"{moved}:{name}", torch.nn.Module, "network") for name in ("Net", "Twin"))
    saved = firm.load(model, net).estimator
    with pytest.raises(ValueError, match=r"saved with the network class 'Net', not with 'Twin': name that one, load"):
        firm.load(model, twin)
    assert same(firm.load(model, twin(8)).estimator.state_dict(), saved.state_dict())  # an instance may be of any
    words = ["restore", pictures / "000.png", "--task", "denoising", "--sigma", 0.1, "--model", model]
    tells("network class 'Net', not with 'Twin'", *words, "--network", f"{moved}:Twin", "--out", tmp_path / "r")
    with pytest.raises(ValueError, match="'ResUNet', not with 'Twin': leave estimator= or --network out"):
        firm.load("face-128", twin)


def test_init_from_a_custom_model(run, fit, tmp_path):
    first = run / "run" / "model.safetensors"
    settings = ["task=denoising", "epochs=1", "warm_start_epochs=0", "lr=1e-12", "lr_end=0", "val_images=0"]
    fit(NETWORK, *settings, f"init_from={first}", out="next")
    a, b = (custom(path).body[0].weight for path in (first, tmp_path / "next" / "model.safetensors"))
    torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    for network, message in (
        (f"network={{class: '{NETS}:Net', width: 16}}", "do not fit Net"),
        ("network={ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4}", "was saved with the network class"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(network, *settings, f"init_from={first}", out="third")


def test_custom_networks_with_a_noise_level_and_for_the_prior(make, tmp_path, fit):
    network = f"network={{class: '{NETS}:Aware', width: 8, noise_level: true}}"
    short = ["epochs=1", "warm_start_epochs=0"]
    config = make(network, "mixture=[{name: denoising, sigma: [0.1, 0.2]}]", *short)
    assert fit(config)["finished"]
    net, y = custom(tmp_path / "run" / "model.safetensors", "Aware"), torch.zeros(1, 3, 16, 16)
    images = [firm.restore(firm.Firm(net), firm.operators.Identity(), y, sigma=s).image for s in (0.1, 0.2)]
    assert not torch.equal(*images)
    config = make(f"network={NETS}:Velocity", "objective=prior", *short, out="prior")
    assert fit(config)["finished"]
    net = custom(tmp_path / "prior" / "model.safetensors", "Velocity")
    assert net(torch.zeros(1, 3, 4, 4), torch.zeros(1)).shape == (1, 3, 4, 4)


BROKEN = {
    "broken.py": "class X(:\n",
    "needs.py": "\nimport nothing_of_this_name\n",
    "fails.py": "x = 1\n\n\ny = 1 / 0\n",
    "other.py": "class X:\n    pass\n",
}


@pytest.mark.parametrize("setting", ["task", "network", "objective"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nofile.py:X", "there is no file nofile.py"),
        ("no_package_of_this.name:X", "there is no module no_package_of_this.name"),
        ("broken.py:X", "broken.py cannot be run: line 1: SyntaxError"),
        ("needs.py:X", "line 2: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("fails.py:X", "line 4: ZeroDivisionError: division by zero"),
        ("other.py:Y", "has no Y; it has X"),
        ("other.py:X", "X must be a class derived from"),
        ("other.py:", "write file.py:Class or package.module:Class"),
    ],
)
def test_classes_that_do_not_load_are_told_without_a_traceback(setting, name, message, config_file, tmp_path):
    for file, text in BROKEN.items():
        (tmp_path / file).write_text(text)
    place = tmp_path / name if name.partition(":")[0] in BROKEN else name
    tells(message, "train", config_file, f"{setting}='{place}'", f"out={tmp_path / 'x'}")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("network", "message"),
    [("Fails', width: 3", r"Fails\(width\), .*: width must be even"),
     ("Net', depth: 3", "unexpected keyword argument 'depth'"), ("Unsaved'", "is saved as JSON")],
)  # fmt: skip
def test_networks_that_cannot_be_built(network, message, fit):
    with pytest.raises(ConfigError, match=message):
        fit(f"network={{class: '{NETS}:{network}}}")


def test_a_package_beside_the_user_is_found_and_nothing_else_is(tmp_path):
    """The current folder is looked in for a user's own module, not for the library's."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "tasks.py").write_text("from firm.tasks import BaseTask\nclass T(BaseTask):\n    pass\n")
    program = (
        "import sys; sys.path = [p for p in sys.path if p]\n"
        "import os; from firm.training.config import load_config\n"
        "load_config(None, []); print(os.getcwd() in sys.path)\n"
        "from firm.tasks import task_class; print(task_class('mine.tasks:T').name)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.stdout.split() == ["False", "t"]


def test_a_card_and_a_checkpoint_run_no_code(tmp_path, run, monkeypatch):
    """Names of classes in files that were loaded are never looked up."""
    trap = tmp_path / "trap.py"
    trap.write_text(f"open(r'{tmp_path / 'sprung'}', 'w').close()\nclass T: pass\n")
    card = {"trained_for": [{"name": f"{trap}:T"}], "objective": f"{trap}:T", "size": 16, "channels": 3}
    net = firm.UNet(3, side=16, ch=8, mult=(1,), blocks=1, attention=(), groups=4)
    firm.Firm(net, firm.Solver(K=1), card).save(tmp_path / "m.safetensors")
    model = firm.load(tmp_path / "m.safetensors")
    picture = tmp_path / "x.npy"
    np.save(picture, np.zeros((3, 16, 16), np.float32))
    assert call("restore", picture, "--task", "denoising", "--sigma", 0.1, "--model", tmp_path / "m.safetensors",
                "--out", tmp_path / "o").exit_code == 0  # fmt: skip
    from firm.restoration import Problem
    from firm.restoration.advice import advice

    told = advice(model.card, Problem.from_file(picture, "denoising", sigma=0.1))
    assert told == ["the model was not trained for denoising"]
    firm.Firm(torch.nn.Linear(2, 2), None, card).save(tmp_path / "n.safetensors")
    with pytest.raises(ValueError, match="network class 'Linear'"):
        firm.load(tmp_path / "n.safetensors")
    assert not (tmp_path / "sprung").exists()


def tasks_config(make, *tasks):
    entries = ", ".join(f"{{name: '{TASKS}:{t}'}}" if t[0].isupper() else f"{{name: {t}}}" for t in tasks)
    return make(f"mixture=[{entries}]")


def test_custom_tasks_train_in_a_mixture(make, make_trainer):
    """With and without closed forms, beside the library's; the losses are the tasks' own."""
    trainer = make_trainer(tasks_config(make, "Gain", "ClosedGain", "fourier", "random-inpainting"))
    for _ in range(2):
        loss, norm = trainer.advance()
        assert loss.isfinite()
        assert float(norm) > 0
    assert trainer.card()["trained_for"][0]["name"] == f"{TASKS}:Gain"
    scores = trainer.validate(Images(torch.zeros(2, 3, 16, 16), ["a", "b"]), None)
    assert {"psnr N=2", "psnr N=2 gain", "psnr N=2 closed-gain", "psnr N=2 fourier"} <= scores.keys()


def test_a_task_that_is_twice_in_a_mixture_is_scored_twice(make_trainer):
    mixture = "[{name: super-resolution}, {name: super-resolution, factor: 4}, {name: denoising}]"
    scores = make_trainer(f"mixture={mixture}").validate(Images(torch.zeros(2, 3, 16, 16), ["a", "b"]), None)
    names = ["psnr N=2 super-resolution 1", "psnr N=2 super-resolution 2", "psnr N=2 denoising"]
    assert list(scores) == ["psnr N=2", *names]
    assert scores["psnr N=2"] == pytest.approx(sum(scores[n] for n in names) / 3, abs=1e-3)


@pytest.mark.parametrize("name", ["WrongAdjoint", "WrongAdjointWithProx"])
def test_a_wrong_adjoint_is_refused_before_the_first_step(name, make, monkeypatch, fit):
    monkeypatch.setattr(Trainer, "advance", lambda self: pytest.fail("it took a step"))
    label = {"WrongAdjoint": "wrong-adjoint", "WrongAdjointWithProx": "wrong-adjoint-with-prox"}[name]
    with pytest.raises(ConfigError, match=f"the task {label}: .*A_adjoint is not the adjoint of A"):
        fit(tasks_config(make, "denoising", name))


def test_the_network_of_a_custom_objective_has_its_arguments(make, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom firm.training.objectives import Objective\nclass Net(torch.nn.Module):\n"
        "    def __init__(self, width): super().__init__()\nclass Own(Objective):\n    network_class = Net\n"
    )
    objective = f"objective={tmp_path / 'mine.py'}:Own"
    assert make(objective, "network={width: 8}").network_arguments() == (None, {"width": 8})  # no side
    with pytest.raises(ConfigError, match="Net has no argument 'ch'"):
        make(objective, "network={ch: 8}")
